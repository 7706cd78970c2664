// Decides whether a target may be asked: whether the card that it serves now is signed by the pinned key.
// Invariants: without a pin nothing is fetched; a verified decision is used for at most five minutes, and only for its pin; a
// card that cannot be fetched is no decision, one that is refused or does not verify quarantines; a decision that a newer pin
// or a later quarantine has overtaken is not used, and not recorded after it; of an unverified card only name, version and
// digest are logged or recorded.
import type { Logger } from "pino";
import type { AgentCard } from "../../cards/card-fields.ts";
import { type FetchFailure, fetchCard } from "../../cards/fetch.ts";
import type { RejectReason } from "../../cards/reject-reasons.ts";
import { importPinnedKey, verifyCard } from "../../cards/verify.ts";
import type { Clock } from "../../domain/clock.ts";
import { type GhostMxid, parseServerName, type ServerName } from "../../domain/identifiers.ts";
import { mayBePrivate } from "../../rendered-files/agents-file.ts";
import { type Backoff, backoffMs } from "../../runtime/backoff.ts";
import { KeyedSerial } from "../../runtime/concurrency.ts";
import type { Ledger } from "../ledger/ledger.ts";
import type { TargetDecision, TargetRecord } from "../ledger/target-trust.ts";
import type { AgentTarget } from "./loaded-agents.ts";
import { isPinned } from "./sender-policy.ts";

export type TrustDecision =
  | { readonly trust: "verified"; readonly card: AgentCard; readonly agentVersion: string }
  | { readonly trust: "quarantined"; readonly reason: "agent_card_untrusted" }
  | { readonly trust: "unknown"; readonly retryAfterMs: number };

export type TrustGate = Pick<CardTrustGate, "check">;

export interface TrustGateOptions {
  readonly ledger: Pick<Ledger, "targets">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly fetch?: typeof fetchCard;
}

const VERIFIED_MS = 5 * 60_000;
/** A refused card is not fetched again for each waiting delegation. */
const QUARANTINED_MS = 10_000;
const RETRY: Backoff = { firstMs: 1_000, maxMs: 60_000 };
/** The pin changed during the evaluation: the caller reads agents.yaml again first. */
const OVERTAKEN: TrustDecision = { trust: "unknown", retryAfterMs: 100 };
const QUARANTINED: TrustDecision = { trust: "quarantined", reason: "agent_card_untrusted" };
/** The agent's answer is final, though it is no card. The others may pass by themselves. */
const FINAL = new Set<FetchFailure>(["redirected", "too_large", "media_type_refused", "encoding_refused"]);
const PLAIN_VERSION = /^[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}$/;

type Why = RejectReason | FetchFailure | "not_pinned" | "removed" | undefined;

interface Evaluation {
  readonly decision: TrustDecision;
  readonly cardDigest?: string;
  readonly why?: Why;
}

interface TargetState {
  pin: string;
  decision: TrustDecision | undefined;
  validUntil: number;
  failures: number;
  inFlight: Promise<TrustDecision> | undefined;
}

export type CardTrustGate = ReturnType<typeof createCardTrustGate>;

export function createCardTrustGate({ ledger, clock, log, fetch = fetchCard }: TrustGateOptions) {
  const states = new Map<GhostMxid, TargetState>();
  const recording = new KeyedSerial<GhostMxid>();
  const pinOf = ({ entry, fingerprint }: AgentTarget) => (isPinned(entry) ? fingerprint : "none");

  function stateOf(target: AgentTarget): TargetState {
    const pin = pinOf(target);
    let state = states.get(target.ghost);
    if (state === undefined || state.pin !== pin) {
      state = { pin, decision: undefined, validUntil: 0, failures: 0, inFlight: undefined };
      states.set(target.ghost, state);
    }
    return state;
  }

  /** Concurrent callers share one evaluation of a pin. */
  function decide(target: AgentTarget, state: TargetState): Promise<TrustDecision> {
    state.inFlight ??= decideAnew(target, state).finally(() => {
      state.inFlight = undefined;
    });
    return state.inFlight;
  }

  async function decideAnew(target: AgentTarget, state: TargetState): Promise<TrustDecision> {
    const previous = await ledger.targets.get(target.ghost);
    const evaluation = await evaluate(target, state);
    const { decision } = evaluation;
    const isOvertaken = () => states.get(target.ghost) !== state;
    if (isOvertaken()) return OVERTAKEN;
    const now = clock.now();
    if (decision.trust === "unknown") {
      state.failures += 1;
      if (state.decision?.trust === "verified" && now < state.validUntil) return state.decision;
      state.decision = decision;
      state.validUntil = now + decision.retryAfterMs;
      return decision;
    }
    const recorded = await recording.run(target.ghost, async () =>
      isOvertaken() ? "overtaken" : await record(target, evaluation, previous),
    );
    if (recorded === "overtaken" || isOvertaken()) return OVERTAKEN;
    state.failures = 0;
    state.decision = decision;
    state.validUntil = now + (decision.trust === "verified" ? VERIFIED_MS : QUARANTINED_MS);
    return decision;
  }

  async function evaluate(target: AgentTarget, state: TargetState): Promise<Evaluation> {
    const { entry } = target;
    if (!isPinned(entry)) return { decision: QUARANTINED, why: "not_pinned" };
    const options = { clock, mayBePrivate: mayBePrivate(entry, entry.cardUrl) };
    const fetched = await fetch(entry.cardUrl, options);
    if (!fetched.fetched) {
      const { failure, status } = fetched;
      if (FINAL.has(failure)) return { decision: QUARANTINED, why: failure };
      log.warn({ event: "agent_card_unavailable", agent: target.agentId, failure, status });
      return { decision: { trust: "unknown", retryAfterMs: backoffMs(RETRY, state.failures) } };
    }
    const { keyId, jwk } = entry.cardIdentity;
    const verdict = await verifyCard(fetched.bytes, [await importPinnedKey(keyId, jwk)]);
    if (!verdict.accepted) return { decision: QUARANTINED, why: verdict.reason };
    const { card, digest } = verdict;
    // The version goes into audit records, which hold no free text.
    const agentVersion = PLAIN_VERSION.test(card.version) ? card.version : "other";
    return { decision: { trust: "verified", card, agentVersion }, cardDigest: digest };
  }

  async function record(
    target: AgentTarget,
    { decision, cardDigest, why }: Evaluation,
    previous?: TargetRecord,
  ): Promise<"recorded" | "unchanged" | "overtaken"> {
    if (decision.trust === "unknown") return "unchanged";
    const { ghost, agentId, fingerprint: targetFingerprint, entry } = target;
    const { trust } = decision;
    const agentVersion = trust === "verified" ? decision.agentVersion : undefined;
    const { keyId } = entry.cardIdentity ?? {};
    const card = { cardDigest, agentVersion, keyId, origin: originOf(entry.cardUrl) };
    return await write({ ghost, agentId, targetFingerprint, trust, ...card }, why, previous);
  }

  async function write(decided: Omit<TargetDecision, "checkedAt">, why: Why, previous?: TargetRecord) {
    const recorded = await ledger.targets.record({ ...decided, checkedAt: clock.now() }, previous);
    if (recorded !== "recorded") return recorded;
    const { trust, agentId, targetFingerprint: fingerprint, cardDigest } = decided;
    const event = trust === "verified" ? "agent_card_verified" : "agent_card_untrusted";
    log.info({ event, agent: agentId, fingerprint, cardDigest, why });
    return recorded;
  }

  return {
    async check(target: AgentTarget): Promise<TrustDecision> {
      const state = stateOf(target);
      const remainingMs = state.validUntil - clock.now();
      if (state.decision === undefined || remainingMs <= 0) return await decide(target, state);
      if (state.decision.trust === "unknown") return { trust: "unknown", retryAfterMs: remainingMs };
      return state.decision;
    },

    /** Decides anew, cache or not, and records it. A card that cannot be fetched leaves a valid decision. */
    refresh: async (target: AgentTarget): Promise<TrustDecision> => await decide(target, stateOf(target)),

    /** The card that was verified last for the target's present pin, as this process has seen it. */
    verifiedCard(target: AgentTarget): AgentCard | undefined {
      const { pin, decision } = states.get(target.ghost) ?? {};
      return pin === pinOf(target) && decision?.trust === "verified" ? decision.card : undefined;
    },

    /** Whether what was decided last about the ghost, here or for a question, was about the target's present pin. */
    isOfPresentPin: (target: AgentTarget): boolean => states.get(target.ghost)?.pin === pinOf(target),

    async revoke(target: AgentTarget): Promise<void> {
      states.delete(target.ghost);
      const removed = { decision: QUARANTINED, why: "removed" } as const;
      await recording.run(target.ghost, () => record(target, removed));
    },

    /** Revokes each recorded target that agents.yaml no longer names; one that was quarantined stays as it is recorded. */
    async revokeMissing(named: ReadonlyMap<GhostMxid, unknown>): Promise<void> {
      for (const { ghost, agentId, targetFingerprint } of await ledger.targets.list()) {
        if (named.has(ghost)) continue;
        await write({ ghost, agentId, targetFingerprint, trust: "quarantined" }, "removed");
      }
    },
  };
}

/** Host and port of a card's address, the scheme's own port included; undefined if it is no plain host. */
function originOf(cardUrl: string): ServerName | undefined {
  const { protocol, hostname, port } = new URL(cardUrl);
  return parseServerName(`${hostname}:${port || (protocol === "https:" ? "443" : "80")}`);
}
