// What follows each failure of an agent, and a failed dispatch (docs/decisions/0005-dispatch-at-most-once.md). Invariants: an
// undelivered question is given up at its deadline; one that the agent may have is tried six times at least, and ends
// `outcome_unknown` then; no wait is without end.
import type { DelegationOutcome } from "../ledger/delegation-transitions.ts";
import type { TerminalReason } from "../ledger/states.ts";
import type { A2aFailureKind } from "./a2a/classify-failure.ts";
import { type DelegationVerdict, failed, finish, type Reach, UNKNOWN } from "./outcomes.ts";
import type { RunningDelegation } from "./running-delegation.ts";

type FailureVerdict =
  | { readonly kind: "end"; readonly reason: TerminalReason }
  | { readonly kind: "retry"; readonly reason: TerminalReason; readonly reach: Reach };

const retry = (reason: TerminalReason, reach: Reach = "surely_absent"): FailureVerdict => {
  return { kind: "retry", reason, reach };
};
const end = (reason: TerminalReason): FailureVerdict => ({ kind: "end", reason });

/** The verdict on each failure of SendMessage and SendStreamingMessage. */
export const SEND_VERDICTS: Readonly<Record<A2aFailureKind, FailureVerdict>> = {
  not_delivered: retry("agent_unavailable"),
  not_found: retry("agent_unavailable"),
  throttled: retry("rate_limited"),
  unauthenticated: retry("token_refused"),
  ambiguous: retry("agent_unavailable", "may_have"),
  forbidden: end("agent_refused"),
  agent_error: end("agent_failed"),
  not_a2a: end("agent_protocol_error"),
  protocol: end("agent_protocol_error"),
  unsupported: end("agent_protocol_error"),
  task_not_found: end("agent_protocol_error"),
  too_large: end("answer_too_large"),
};

/** The verdict on each failure to read a task that the agent has accepted. */
export const FOLLOW_VERDICTS: Readonly<Record<A2aFailureKind, FailureVerdict>> = {
  ...SEND_VERDICTS,
  // The agent took the task, so that something before it speaks.
  not_a2a: retry("agent_unavailable"),
  task_not_found: end("agent_failed"),
};

/** Even past the deadline: a bridge that was away must not lose an answer because the agent is away for a moment. */
const TRIES_MIN = 6;
/** The longest wait that an agent or its issuer may ask for, before a question is sent again or its task is read again. */
const ASKED_WAIT_MS_MAX = 5 * 60_000;

export const grantedWait = (askedMs = 0): number => Math.min(askedMs, ASKED_WAIT_MS_MAX);

/** In epoch milliseconds. The time begins with the first try: what waited behind a question, or for the bridge, is tried. */
export const dispatchDeadline = ({ claimed, deps }: RunningDelegation) =>
  claimed.triedAt + deps.limits.dispatchDeadline;

/**
 * @param askedMs the least wait that somebody asked for, cut at five minutes; one that ends after the deadline gives a
 *   question up at once that the agent surely does not have
 */
export function retryOrGiveUp(
  running: RunningDelegation,
  reason: TerminalReason,
  reach: Reach,
  askedMs = 0,
): DelegationVerdict {
  const { now } = running;
  const deadline = dispatchDeadline(running);
  const isLate = now >= deadline;
  const backoffMs = running.backoff();
  const undelivered = reach === "surely_absent";
  if (undelivered && now + Math.max(backoffMs, askedMs) >= deadline) return finish(givenUp(reason));
  if (isLate && running.claimed.attempts >= TRIES_MIN) return finish(UNKNOWN);
  const wakeAt = now + Math.max(backoffMs, grantedWait(askedMs));
  const note = { undelivered, reason };
  return { kind: "defer", wakeAt: isLate ? wakeAt : Math.min(wakeAt, deadline), reason, note };
}

export function givenUp(reason: TerminalReason): DelegationOutcome {
  return failed("dispatch", reason, reason.endsWith("rate_limited") ? "rate_limited" : "delegation_failed");
}
