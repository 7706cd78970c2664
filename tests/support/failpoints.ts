// Named instants at which a test kills a process: just before or just after one of its writes to the ledger. They exist in
// tests alone: a process under test is given a ledger that kills it there.
import type { Ledger } from "../../src/bridge/ledger/ledger.ts";

export interface Failpoint {
  /** A method of the ledger's delegations or statuses, or `admit`. */
  readonly method: keyof Ledger["delegations"] | keyof Ledger["statuses"] | "admit";
  readonly when: "before" | "after";
  /** At which of its calls, counted from 1. */
  readonly call: number;
}

export const FAILPOINTS = {
  /** A wish to cancel is durable, and nobody has acted on it. */
  control_intent_committed_pre_claim: { method: "admit", when: "after", call: 1 },
  /** The agent has canceled its task, and the delegation has not ended. */
  cancel_accepted_pre_record: { method: "finish", when: "before", call: 1 },
  /** The agent has the answer to its question, and that is not recorded. */
  continuation_accepted_pre_record: { method: "recordAccepted", when: "before", call: 2 },
  /** The room has the agent's question, and that is not recorded. */
  question_accepted_pre_record: { method: "recordAsked", when: "before", call: 1 },
  /** The room has the status message, and that is not recorded. */
  progress_accepted_pre_record: { method: "recordShown", when: "before", call: 1 },
  /** The status message was pinned or unpinned, and that is not recorded. */
  pin_accepted_pre_record: { method: "recordShown", when: "before", call: 1 },
  /** A task is polled, and its next poll is not recorded. */
  long_task_polling: { method: "defer", when: "before", call: 2 },
} as const satisfies Readonly<Record<string, Failpoint>>;
export type FailpointName = keyof typeof FAILPOINTS;

/** An object whose methods kill the process at the failpoint. */
export function killing<T extends object>(target: T, failpoint: Failpoint | undefined): T {
  let calls = 0;
  return new Proxy(target, {
    get(object, method) {
      const member = Reflect.get(object, method) as unknown;
      if (method !== failpoint?.method || typeof member !== "function") return member;
      return async (...args: unknown[]) => {
        calls += 1;
        const isHere = calls === failpoint.call;
        if (isHere && failpoint.when === "before") await dead();
        const result = (await member.apply(object, args)) as unknown;
        if (isHere) await dead();
        return result;
      };
    },
  });
}

/** Never returns. */
function dead(): Promise<never> {
  process.kill(process.pid, "SIGKILL");
  return new Promise(() => {});
}
