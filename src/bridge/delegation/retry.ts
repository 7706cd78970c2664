// Trying a dispatch again, or giving it up. Invariants: an undelivered question is given up when its
// deadline comes, with the reason that stood in the way; one that the agent may have is looked for a few
// times more, and then ends `outcome_unknown`.
import type { TerminalReason } from "../ledger/states.ts";
import type { Outcome } from "../ledger/types.ts";
import type { Flow } from "./flow.ts";
import { failed } from "./outcome.ts";
import { finish, type Verdict } from "./verdict.ts";

/** Past the deadline the agent is still looked at this often: a bridge that was away must not lose an answer. */
const LATE_LOOKS_MIN = 6;

/** When the question must have been accepted, milliseconds since the Unix epoch. */
export function dispatchDeadline(flow: Flow): number {
  return flow.claimed.admittedAt + flow.deps.limits.dispatchDeadline;
}

/**
 * @param undelivered the agent surely has nothing of the question
 * @param askedMs the least wait that somebody asked for
 */
export function again(flow: Flow, reason: TerminalReason, undelivered: boolean, askedMs = 0): Verdict {
  const wakeAt = flow.now + Math.max(flow.backoff(), askedMs);
  const deadline = dispatchDeadline(flow);
  if (undelivered && wakeAt >= deadline) return finish(givenUp(reason));
  if (!undelivered && flow.now >= deadline && flow.claimed.attempts >= LATE_LOOKS_MIN) {
    return finish(failed("dispatch", "outcome_unknown"));
  }
  return { kind: "defer", wakeAt, reason, undelivered };
}

export function givenUp(reason: TerminalReason): Outcome {
  return failed("dispatch", reason, reason === "rate_limited" ? "rate_limited" : "delegation_failed");
}
