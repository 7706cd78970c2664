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
  /** Another process holds the store now. */
  | "fence_lost"
  | "database_unavailable"
  /** This thread has no machine of the ghost. */
  | "not_open"
  /** The library refused what it was given. */
  | "refused";

export type FromThread =
  | { readonly id: number; readonly result: unknown }
  | { readonly id: number; readonly error: ThreadErrorKind }
  /** The machine is ahead of its store, and was closed. */
  | { readonly lost: GhostMxid; readonly why: ThreadErrorKind };

/** Collects messages and posts them in one list; one that cannot be posted holds up no other. */
export class Outbox<Message> {
  readonly #post: (messages: readonly Message[]) => void;
  readonly #schedule: (flush: () => void) => void;
  readonly #onUnpostable: (message: Message) => void;
  #held: Message[] = [];

  /** @param schedule called with the first message held, to flush later */
  constructor(
    post: (messages: readonly Message[]) => void,
    schedule: (flush: () => void) => void,
    onUnpostable: (message: Message) => void,
  ) {
    this.#post = post;
    this.#schedule = schedule;
    this.#onUnpostable = onUnpostable;
  }

  put(message: Message): void {
    this.#held.push(message);
    if (this.#held.length === 1) this.#schedule(() => this.flush());
  }

  flush(): void {
    if (this.#held.length === 0) return;
    const messages = this.#held;
    this.#held = [];
    if (this.#isPosted(messages)) return;
    for (const message of messages) if (!this.#isPosted([message])) this.#onUnpostable(message);
  }

  #isPosted(messages: readonly Message[]): boolean {
    try {
      this.#post(messages);
      return true;
    } catch {
      return false;
    }
  }
}
