// What the bridge and a thread of machines send each other, several messages in one list, because waking the other thread
// costs more than a message.
// Invariants: an error travels as its kind alone; messages leave in the order in which they were put.
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { DeviceTrustPolicy } from "./decrypt-event.ts";
import type { ClaimedStore, GhostMachine } from "./machine.ts";

export interface ThreadData {
  readonly databaseUrl: string;
  readonly policy: DeviceTrustPolicy;
}

/** Methods of a machine that are called across threads by name. */
export type MachineCalls = Omit<GhostMachine, "identity" | "close">;
export type MachineCall = keyof MachineCalls;

export type ToThread =
  | { readonly id: number; readonly do: "open"; readonly store: ClaimedStore }
  | { readonly id: number; readonly do: "shut"; readonly ghost: GhostMxid }
  /** Shuts every machine and closes the database connections. */
  | { readonly id: number; readonly do: "close" }
  | {
      readonly id: number;
      readonly do: "call";
      readonly ghost: GhostMxid;
      readonly call: MachineCall;
      readonly args: readonly unknown[];
    };

export type ThreadErrorKind =
  /** The store is another device's, or its key does not open it. */
  | "foreign"
  | "fence_lost"
  | "database_unavailable"
  | "not_open"
  /** The library refused what it was given. */
  | "refused";

export type FromThread =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: ThreadErrorKind }
  /** The machine is ahead of its store, and was closed. */
  | { readonly lost: GhostMxid; readonly why: ThreadErrorKind };

/**
 * Collects messages and posts them in one list; one that cannot be posted holds up no other.
 * @param schedule called with the first message held, to flush later
 */
export function createOutbox<Message>(
  post: (messages: readonly Message[]) => void,
  schedule: (flush: () => void) => void,
  onUnpostable: (message: Message) => void,
) {
  let held: Message[] = [];
  const isPosted = (messages: readonly Message[]) => {
    try {
      post(messages);
      return true;
    } catch {
      return false;
    }
  };
  const flush = () => {
    const messages = held;
    held = [];
    if (messages.length === 0 || isPosted(messages)) return;
    for (const message of messages) if (!isPosted([message])) onUnpostable(message);
  };
  const put = (message: Message) => {
    held.push(message);
    if (held.length === 1) schedule(flush);
  };
  return { put, flush };
}
