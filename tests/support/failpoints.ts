// Named instants at which a test kills the bridge: just before or just after one of its writes to the ledger, to a ghost's
// store or to the homeserver. They exist in tests alone: the program killable-bridge.ts is the bridge with these methods
// replaced. A test arms an instant with so many kills; each process that comes to it takes one and dies.
// Invariants: a kill is the removal of one file, so that of several processes one takes it; while no kill is armed every
// call goes through unchanged.
import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { isFor } from "../../src/bridge/ledger/transaction-ids.ts";
import type { TransactionId } from "../../src/domain/identifiers.ts";

type Args = readonly unknown[];

/** Whose methods: a part of the ledger, the client of the homeserver, or the writer of the ghosts' stores. */
type Part = "intake" | "delegations" | "statuses" | "envelopes" | "homeserver" | "stores";

export interface Failpoint {
  readonly of: Part | readonly Part[];
  readonly methods: readonly string[];
  readonly when: "before" | "after";
  /** Which calls count; all of them when absent. */
  readonly counts?: (args: Args, method: string) => boolean;
  /** What each call gets while it is armed. */
  readonly given?: (args: Args, method: string) => Args;
  /** At which of the calls that count while it is armed, from 1; the first when absent. */
  readonly call?: number;
  /** The call waits until the homeserver has the acknowledgement of what people said. */
  readonly afterAcknowledgement?: boolean;
}

const isSpoken = (event: { readonly type?: string; readonly sender?: string }) =>
  (event.type === "message" || event.type === "encrypted") && event.sender?.startsWith("@agent_") !== true;
/** A transaction with something that a person said; the homeserver repeats it as it was. */
const spoken = ([admission]: Args) =>
  (admission as { events: readonly { type?: string; sender?: string }[] }).events.some(isSpoken);
/** A transaction with a question that an agent asked. */
const posted = ([admission]: Args) =>
  ((admission as { posted?: readonly unknown[] }).posted ?? []).length > 0;
const outcome = (args: Args) => args[1] as { readonly state: string; readonly sent?: object };
const sentFor =
  (purpose: "reply" | "progress", type?: string) =>
  ([, , eventType, transactionId]: Args) =>
    isFor(transactionId as TransactionId, purpose) && (type === undefined || eventType === type);

export const FAILPOINTS = {
  /** The question, or its intake envelope, is committed, and the homeserver does not know that. */
  ledger_committed_pre_ack: { of: "intake", methods: ["admit"], when: "after", counts: spoken },
  /** The homeserver will not repeat the question, and nobody works on it. */
  acknowledged_pre_claim: {
    of: ["delegations", "intake"],
    methods: ["claim", "admit"],
    when: "before",
    counts: (_args, method) => method === "claim",
    // As if no slot were free: the question would else be claimed as it is admitted.
    given: (args, method) => (method === "admit" ? [{ ...(args[0] as object), slotFor: undefined }] : args),
    afterAcknowledgement: true,
  },
  /** The agent has made a task, and that is not recorded. */
  a2a_accepted_pre_record: { of: "delegations", methods: ["recordAccepted"], when: "before" },
  /** A wish to cancel is durable, and nobody has acted on it. */
  control_intent_committed_pre_claim: { of: "intake", methods: ["admit"], when: "after", counts: spoken },
  /** The agent has canceled its task, and the delegation has not ended. */
  cancel_accepted_pre_record: {
    of: "delegations",
    methods: ["finish"],
    when: "before",
    counts: (args) => outcome(args).state === "canceled",
  },
  /** The agent has the answer to its question, and that is not recorded. */
  continuation_accepted_pre_record: {
    of: "delegations",
    methods: ["recordAccepted", "recordReply"],
    when: "before",
  },
  /** The room has the agent's question, and neither who sent it nor the homeserver's delivery of it has recorded that. */
  question_accepted_pre_record: {
    of: ["delegations", "intake"],
    methods: ["recordAsked", "admit"],
    when: "before",
    counts: (args, method) => method === "recordAsked" || posted(args),
  },
  /** The room has the status message, and that is not recorded. */
  progress_accepted_pre_record: {
    of: "homeserver",
    methods: ["sendEvent"],
    when: "after",
    counts: sentFor("progress"),
  },
  /** The room has the pin of the status message, and that is not recorded. */
  pin_accepted_pre_record: {
    of: "statuses",
    methods: ["recordShown"],
    when: "before",
    counts: ([, shown]) => (shown as { readonly pinned: boolean }).pinned,
  },
  /** The answer is durable, and nothing of it was sent. */
  result_persisted_pre_matrix: {
    of: "delegations",
    methods: ["recordReply", "pendingSends"],
    when: "after",
    counts: (args, method) => method === "recordReply" || args[1] === "reply",
  },
  /** The room has the answer, and that is not recorded. */
  matrix_accepted_pre_record: {
    of: "delegations",
    methods: ["finish"],
    when: "before",
    counts: (args) => outcome(args).sent !== undefined,
  },
  /** A task is polled, and its next poll is not recorded. */
  long_task_polling: {
    of: "delegations",
    methods: ["defer"],
    when: "before",
    counts: ([, , note]) => (note as { readonly followed?: object } | undefined)?.followed !== undefined,
    call: 2,
  },
  /** A machine has taken a room key in, and its store has not. */
  room_key_received_pre_persist: { of: "stores", methods: ["write"], when: "before" },
  /** A late key has opened the question, and its delegations are not committed. */
  decrypted_pre_derivation: { of: "envelopes", methods: ["derive"], when: "before" },
  /** The answer is encrypted, and the homeserver does not have it. */
  outbound_megolm_prepared_pre_send: {
    of: "homeserver",
    methods: ["sendEvent"],
    when: "before",
    counts: sentFor("reply", "m.room.encrypted"),
  },
} as const satisfies Readonly<Record<string, Failpoint>>;
export type FailpointName = keyof typeof FAILPOINTS;

/** Names the folder of armed kills to the program under test. */
export const KILLS_FOLDER = "DRAWBRIDGE_TEST_KILLS";

const ACKNOWLEDGED = "acknowledged";
const WAIT_MS = 5;

/** The kills that are armed, in a folder that a test and its processes share. */
export class ArmedKills {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = folder;
    mkdirSync(folder, { recursive: true });
  }

  arm(name: FailpointName, kills: number): void {
    for (let number = 1; number <= kills; number++)
      writeFileSync(join(this.#folder, `${name}.${number}`), "");
  }

  /** Nothing is armed any more, and nothing is acknowledged. */
  clear(): void {
    for (const file of readdirSync(this.#folder)) rmSync(join(this.#folder, file), { force: true });
  }

  /** How many kills nobody has taken. */
  left(name: FailpointName): number {
    return this.#armed(name).length;
  }

  /** The homeserver got the acknowledgement of something that a person said. */
  acknowledge(): void {
    writeFileSync(join(this.#folder, ACKNOWLEDGED), "");
  }

  isAcknowledged(): boolean {
    return readdirSync(this.#folder).includes(ACKNOWLEDGED);
  }

  /** Whether this process takes a kill now. */
  async take(name: FailpointName, { afterAcknowledgement }: Failpoint): Promise<boolean> {
    const isAwaited = () => afterAcknowledgement === true && !this.isAcknowledged();
    while (this.left(name) > 0 && isAwaited()) await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
    return this.#armed(name).some((file) => {
      try {
        rmSync(join(this.#folder, file));
        return true;
      } catch {
        return false; // Another process was faster.
      }
    });
  }

  #armed(name: FailpointName): string[] {
    return readdirSync(this.#folder).filter((file) => file.startsWith(`${name}.`));
  }
}

/** Replaces the methods of `target` at which some failpoint is. */
export function killing<T extends object>(target: T, of: Part, kills: ArmedKills): T {
  for (const [name, point] of Object.entries(FAILPOINTS) as [FailpointName, Failpoint][]) {
    if (![point.of].flat().includes(of)) continue;
    for (const method of point.methods) if (method in target) replace(target, method, name, point, kills);
  }
  return target;
}

function replace(
  target: object,
  method: string,
  name: FailpointName,
  point: Failpoint,
  kills: ArmedKills,
): void {
  const member = Reflect.get(target, method) as (...args: unknown[]) => Promise<unknown>;
  let calls = 0;
  const dieIfDue = async () => {
    if (++calls >= (point.call ?? 1) && (await kills.take(name, point))) await dead();
  };
  Reflect.set(target, method, async function (this: unknown, ...args: unknown[]) {
    if (kills.left(name) === 0) return member.apply(this, args);
    const given = [...(point.given?.(args, method) ?? args)];
    if (point.counts?.(args, method) === false) return member.apply(this, given);
    if (point.when === "before") await dieIfDue();
    const result = await member.apply(this, given);
    if (point.when === "after") await dieIfDue();
    return result;
  });
}

/** Never returns. */
function dead(): Promise<never> {
  process.kill(process.pid, "SIGKILL");
  return new Promise(() => {});
}
