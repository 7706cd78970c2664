// A transaction in: read, derive, commit. When `handle` returns, all of it is durable and may be
// acknowledged; when it throws, nothing was kept and the homeserver will come again.
import type { Clock } from "../../domain/clock.ts";
import type { AgentDirectory } from "../agents/directory.ts";
import type { Admitted } from "../ledger/admission.ts";
import type { IntakeLedger } from "../ledger/postgres.ts";
import { aboutOf, candidatesOf, derive, redactedIn, roomStateOf } from "./derive.ts";
import type { Namespace } from "./namespace.ts";
import { type ReadEvents, readEvents } from "./read-events.ts";

export interface IntakeOptions {
  readonly ledger: IntakeLedger;
  readonly agents: AgentDirectory;
  readonly namespace: Namespace;
  readonly clock: Clock;
  readonly capacity: { readonly room: number; readonly global: number };
  readonly noticeIntervalMs: number;
}

export interface HandledTransaction extends Admitted {
  readonly read: ReadEvents;
  /** Whether ghosts' memberships changed, so that there may be something to do about rooms. */
  readonly roomStateChanged: boolean;
}

export type TransactionHandler = (
  transactionId: string,
  body: Uint8Array,
  events: readonly unknown[],
) => Promise<HandledTransaction>;

export function createTransactionHandler(options: IntakeOptions): TransactionHandler {
  const { ledger, agents, namespace, clock } = options;
  return async (transactionId, body, rawEvents) => {
    const { byGhost } = await agents.current();
    const read = readEvents(rawEvents, body);
    const candidates = candidatesOf(read.events, namespace);
    const roomState = roomStateOf(read.events, namespace);
    const admitted = await ledger.admit({
      transactionId,
      body,
      receivedAt: clock.now(),
      eventCount: rawEvents.length,
      malformed: read.malformed,
      roomState,
      redacted: redactedIn(read.events),
      about: aboutOf(candidates),
      derive: (known) => derive(candidates, known, byGhost, namespace),
      capacity: options.capacity,
      noticeIntervalMs: options.noticeIntervalMs,
    });
    return { ...admitted, read, roomStateChanged: roomState.length > 0 };
  };
}
