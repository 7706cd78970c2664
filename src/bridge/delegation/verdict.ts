// What a step of a delegation comes to.
import type { Outcome } from "../ledger/types.ts";
import type { DeferReason } from "./metrics.ts";

export type Verdict =
  | { readonly kind: "finish"; readonly outcome: Outcome }
  | {
      readonly kind: "defer";
      /** Milliseconds since the Unix epoch. */
      readonly wakeAt: number;
      readonly reason: DeferReason;
      /** The agent surely has nothing of this delegation. */
      readonly undelivered: boolean;
    };

export const finish = (outcome: Outcome): Verdict => ({ kind: "finish", outcome });
