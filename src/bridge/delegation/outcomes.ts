// How a step of a delegation ends: what makes an ending (state, stage, reason and notice), and the endings that name a rule.
// docs/reference/delegation-outcomes.md lists every ending in words.
import type { DelegationOutcome, LimiterRefusal } from "../ledger/delegation-transitions.ts";
import type { DeferNote } from "../ledger/leases.ts";
import type { NoticeKind, TerminalReason, TerminalStage } from "../ledger/states.ts";
import type { Phase } from "./a2a/protocol.ts";
import type { DeferReason } from "./dependencies.ts";

/** Ended without an answer, after the agent was or could have been called; the room gets a notice. */
export function failed(
  stage: TerminalStage,
  reason: TerminalReason,
  notice: NoticeKind = "delegation_failed",
): DelegationOutcome {
  return { state: "failed", stage, reason, notice };
}

/** Refused before a request to the agent was made. */
function denied(stage: TerminalStage, reason: TerminalReason, notice?: NoticeKind): DelegationOutcome {
  return { state: "denied", stage, reason, ...(notice !== undefined && { notice }) };
}

export const AGENT_REMOVED = denied("policy", "agent_removed", "policy_denied");
export const SENDER_REJECTED = denied("policy", "sender_policy_rejected", "policy_denied");
export const CARD_UNTRUSTED = denied("agent_card", "agent_card_untrusted", "delegation_stopped");
/** The room does not let the sender say that, and nobody there sees it, so that nobody is told. */
export const NOT_ACCEPTED = denied("policy", "sender_policy_rejected");
export const ANSWER_NOT_ACCEPTED: DelegationOutcome = { ...NOT_ACCEPTED, state: "failed", stage: "dispatch" };
/** A request may have reached the agent, and nothing shows what became of it. */
export const UNKNOWN = failed("dispatch", "outcome_unknown");
export const rateLimited = (reason: LimiterRefusal) => denied("limiter", reason, "rate_limited");
/** Trust was lost after the agent had been called. */
export const TRUST_LOST = failed("follow", "agent_card_untrusted", "delegation_stopped");

/** The ledger puts the reason of the cancellation in the place of this one, and writes the notice about it. */
export function canceled(stage: TerminalStage): DelegationOutcome {
  return { state: "canceled", stage, reason: "source_redacted" };
}

const ENDS: Readonly<Record<Phase, TerminalReason | undefined>> = {
  ...{ failed: "agent_failed", canceled: "agent_failed", rejected: "agent_rejected" },
  ...{ auth_required: "auth_required", input_required: undefined, open: undefined, completed: undefined },
};

/** The outcome of a task that ended, or waits for a sign-in, without an answer; undefined for the other phases. */
export function endOfPhase(phase: Phase, stage: TerminalStage): DelegationOutcome | undefined {
  const reason = ENDS[phase];
  return reason && failed(stage, reason);
}

/**
 * Whether the agent may have a request with the question: then it is sent again only after a search for its task, or to an
 * agent that recognises message IDs.
 */
export type Reach = "surely_absent" | "may_have";

/** `denied` means that the agent has nothing; where it may have something, the delegation has failed. */
export const refused = (outcome: DelegationOutcome, reach: Reach): DelegationOutcome => ({
  ...outcome,
  state: reach === "may_have" ? "failed" : "denied",
});

export type DelegationVerdict =
  | { readonly kind: "finish"; readonly outcome: DelegationOutcome }
  | Readonly<{ kind: "defer"; wakeAt: number; reason: DeferReason; note?: DeferNote }>;

export const finish = (outcome: DelegationOutcome): DelegationVerdict => ({ kind: "finish", outcome });
