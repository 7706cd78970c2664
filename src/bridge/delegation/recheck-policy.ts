// The policy before each call of an agent: it is still configured, its card is trusted, and the sender may ask.
// Invariants: always in this order, always from the files as they are now; an agent whose identity has changed since
// the question was asked does not get it; no request is made to an agent or an issuer from here.
import type { AgentCard } from "../../cards/card-fields.ts";
import type { AgentTarget } from "../agents/loaded-agents.ts";
import { isSenderAllowed } from "../agents/sender-policy.ts";
import type { DelegationOutcome } from "../ledger/delegation-transitions.ts";
import type { ClaimedDelegation } from "../ledger/leases.ts";
import type { DelegationDependencies } from "./dependencies.ts";
import { AGENT_REMOVED, CARD_UNTRUSTED, failed, SENDER_REJECTED, TRUST_LOST } from "./outcomes.ts";

export interface ClearedTarget {
  readonly kind: "cleared";
  readonly target: AgentTarget;
  readonly card: AgentCard;
  readonly agentVersion: string;
}

type Stopped = { readonly kind: "stopped"; readonly outcome: DelegationOutcome };

export type Recheck = ClearedTarget | Stopped | { readonly kind: "unknown"; readonly retryAfterMs: number };

const NO_AGENT_ATTEMPTS_MAX = 4;

/** Some seconds of no agent having the ghost: another process may have read a newer agents.yaml than this one. */
export const mayBeNew = ({ outcome }: Stopped, { attempts }: Pick<ClaimedDelegation, "attempts">) =>
  outcome === AGENT_REMOVED && attempts < NO_AGENT_ATTEMPTS_MAX;

/** While a task is followed, an agent that is gone is as untrusted as one whose pin is. */
export function stoppedFollowing(check: Stopped): DelegationOutcome {
  return check.outcome.reason === "sender_policy_rejected"
    ? failed("follow", "sender_policy_rejected", "policy_denied")
    : TRUST_LOST;
}

export async function recheck(
  deps: Pick<DelegationDependencies, "directory" | "trust">,
  claimed: ClaimedDelegation,
): Promise<Recheck> {
  const target = (await deps.directory.current()).byGhost.get(claimed.ghost);
  if (target === undefined) return { kind: "stopped", outcome: AGENT_REMOVED };
  if (target.fingerprint !== claimed.targetFingerprint) return { kind: "stopped", outcome: CARD_UNTRUSTED };

  const decision = await deps.trust.check(target);
  if (decision.trust === "quarantined") return { kind: "stopped", outcome: CARD_UNTRUSTED };
  // Checked even while the card is unknown: a refusal need not wait for the card.
  if (!isSenderAllowed(target.entry, claimed.sender)) return { kind: "stopped", outcome: SENDER_REJECTED };
  if (decision.trust === "unknown") return { kind: "unknown", retryAfterMs: decision.retryAfterMs };
  return { kind: "cleared", target, card: decision.card, agentVersion: decision.agentVersion };
}
