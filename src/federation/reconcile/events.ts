// What the reconciler reports while it works: to a log, or to a person who waits.
// Invariant: content-free: revisions, digests, planes, reasons, codes, identifiers.
import type { PlaneName } from "../plane-order.ts";
import type { OutOfReach } from "../planes/plane.ts";
import type { DriftRecord } from "../state/drift-records.ts";
import type { RefusalReason } from "../state/plane-records.ts";

export type ReconcileEvent =
  | {
      readonly event: "head_accepted";
      readonly revision: string;
      /** Of the planes; null where one plane alone is applied. */
      readonly order: "closing" | "opening" | null;
    }
  /** The branch's head is not accepted; the last good revision stays in force. */
  | {
      readonly event: "head_refused";
      readonly revision: string | null;
      readonly reason: RefusalReason;
      readonly detail: string;
      readonly hint: string;
      /** What stays in force; null when nothing was ever accepted. */
      readonly inForce: string | null;
    }
  | { readonly event: "plane_begun"; readonly plane: PlaneName; readonly revision: string }
  | {
      readonly event: "plane_ended";
      readonly plane: PlaneName;
      readonly revision: string;
      readonly digest: string;
      readonly outcome: string;
      readonly changed: boolean;
      readonly reason: string | null;
      readonly hint: string | null;
      readonly outOfReach: readonly OutOfReach[];
      readonly retryAt: string | null;
      readonly durationMs: number;
    }
  | { readonly event: "plane_waits"; readonly plane: PlaneName; readonly holder: LockHolder }
  | { readonly event: "drift"; readonly record: DriftRecord }
  | { readonly event: "drift_unknown"; readonly plane: PlaneName; readonly code: string }
  | { readonly event: "state_damaged"; readonly file: string };

/** Who is at work on a plane: the service that follows the branch, or a command that runs beside it. */
export type LockHolder = "reconciler" | "command" | "unknown";

export interface Reporter {
  event(event: ReconcileEvent): void;
  /** A line of a plane's progress, for a person. */
  note(plane: PlaneName, text: string): void;
}
