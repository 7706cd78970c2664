// Trying a dispatch again, or giving it up. Invariants: an undelivered question is given up when its
// deadline comes, with the reason that stood in the way; one that the agent may have is looked for at the
// deadline once more at least, and then ends; no wait that somebody asks for holds a room for long.
import type { TerminalReason } from "../ledger/states.ts";
import type { Outcome } from "../ledger/types.ts";
import type { Flow } from "./flow.ts";
import { failed } from "./outcome.ts";
import { finish, type Verdict } from "./verdict.ts";

/**
 * A question that the agent may have is not let go before so many tries, all since its admission, even past
 * the deadline: a bridge that was away must not lose an answer because the agent is away for a moment.
 */
const TRIES_MIN = 6;
/** The longest wait that an agent or its issuer may ask for: meanwhile the question holds its room. */
const ASKED_WAIT_MS_MAX = 5 * 60_000;

/** When the question must have been accepted, milliseconds since the Unix epoch. */
export function dispatchDeadline(flow: Flow): number {
  return flow.claimed.admittedAt + flow.deps.limits.dispatchDeadline;
}

/**
 * @param undelivered the agent surely has nothing of the question
 * @param askedMs the least wait that somebody asked for; beyond five minutes it is cut, and one that ends
 *   after the deadline gives an undelivered question up at once
 */
export function again(flow: Flow, reason: TerminalReason, undelivered: boolean, askedMs = 0): Verdict {
  const { now } = flow;
  const deadline = dispatchDeadline(flow);
  const isLate = now >= deadline;
  const backoffMs = flow.backoff();
  if (undelivered && now + Math.max(backoffMs, askedMs) >= deadline) return finish(givenUp(reason));
  if (isLate && flow.claimed.attempts >= TRIES_MIN) return finish(failed("dispatch", "outcome_unknown"));
  const wakeAt = now + Math.max(backoffMs, Math.min(askedMs, ASKED_WAIT_MS_MAX));
  return { kind: "defer", wakeAt: isLate ? wakeAt : Math.min(wakeAt, deadline), reason, undelivered };
}

export function givenUp(reason: TerminalReason): Outcome {
  return failed("dispatch", reason, reason === "rate_limited" ? "rate_limited" : "delegation_failed");
}
