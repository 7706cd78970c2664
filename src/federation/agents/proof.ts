// Proves that one identity of an agent fails and the other verifies: by verification against the pins, by the card that
// is served, and by what the bridge has decided. Invariants: what could not be observed is unknown and proves nothing; a
// decision of the bridge counts only for the very target that is pinned now.

import { resolve } from "node:path";
import { type FetchedCard, fetchCard } from "../../cards/fetch.ts";
import { importPinnedKey } from "../../cards/pinned-keys.ts";
import { verifyCard } from "../../cards/verify.ts";
import type { Clock } from "../../domain/clock.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  operatorItem,
} from "../../records/format/evidence-item.ts";
import { PublicationFile } from "../../rendered-files/gateway-files.ts";
import { parseYaml } from "../../runtime/load-yaml.ts";
import type { FederationConfig } from "../config.ts";
import { CardAudit } from "../planes/card/card-audit.ts";
import { CARD_PUBLICATION, cardRender } from "../planes/card/render.ts";
import type { Registry } from "../registry/partner.ts";
import type { PinnedIdentity } from "../registry/retired.ts";

/** What of the real parts an identity is proved on. */
export interface AgentParts {
  readonly fetch: (url: string) => Promise<FetchedCard>;
  /** The bridge's last word on an agent; absent: this organisation runs no bridge. */
  readonly decision?: (agent: string) => Promise<BridgeDecision | undefined>;
  readonly clock: Clock;
}

export interface BridgeDecision {
  readonly accepted: boolean;
  readonly fingerprint: string;
}

type Finding = Pick<EvidenceItemBody, "plane" | "probe" | "layer" | "verdict" | "reason"> &
  Partial<Pick<EvidenceItemBody, "references" | "status">>;
export type Seal = (finding: Finding) => EvidenceItem;

/** Seals findings about one agent of one partner, as the operator. */
export function sealFor(partner: string, agent: string, clock: Clock): Seal {
  return (finding) => operatorItem(clock.now(), { partner, subject: agent, ...finding });
}

/** What must be observed before a change of identity is complete. */
export interface Condition {
  readonly condition: string;
  readonly verdict: "met" | "not_met" | "unknown";
  readonly found: string;
  readonly hint: string;
}

export interface Proof {
  readonly items: readonly EvidenceItem[];
  readonly conditions: readonly Condition[];
}

export function joinProofs(proofs: readonly Proof[]): Proof {
  return {
    items: proofs.flatMap(({ items }) => items),
    conditions: proofs.flatMap(({ conditions }) => conditions),
  };
}

export interface IdentityProofInput {
  readonly seal: Seal;
  /** Undefined: nothing was pinned before. */
  readonly old: PinnedIdentity | undefined;
  readonly fresh: PinnedIdentity;
  /** Cards that the old key has signed, as far as any is at hand. */
  readonly oldCards: readonly Uint8Array[];
  /** The card that is, or will be, served. */
  readonly served: FetchedCard;
}

/** The old identity fails against the new pin, and the new one does not verify by the old. */
export async function proveIdentities(input: IdentityProofInput): Promise<Proof> {
  const { seal, old, fresh, oldCards, served } = input;
  const failsByNewPin = { probe: "old_identity", condition: "old_identity_fails", pin: fresh } as const;
  const proofs: Proof[] = [];
  for (const card of oldCards) {
    proofs.push(await proveCard(seal, card, { ...failsByNewPin, wanted: "closed", hint: STILL_TRUSTED }));
  }
  if (old !== undefined && oldCards.length === 0) {
    const reason = "no_card_of_the_old_key";
    proofs.push(notProved(seal, { ...failsByNewPin, hint: NO_OLD_CARD }, { reason }));
  }
  const verifies = {
    ...{ probe: "new_identity", condition: "new_identity_verifies", pin: fresh, hint: NOT_SERVED },
  } as const;
  if (!served.fetched) {
    const finding = { reason: served.failure, status: served.status ?? null, references: [] };
    return joinProofs([...proofs, notProved(seal, verifies, finding)]);
  }
  proofs.push(await proveCard(seal, served.bytes, { ...verifies, wanted: "open" }));
  if (old !== undefined) {
    const byOldPin = { probe: "served_by_old_pin", condition: "old_key_not_served", pin: old } as const;
    proofs.push(await proveCard(seal, served.bytes, { ...byOldPin, wanted: "closed", hint: NOT_SERVED }));
  }
  return joinProofs(proofs);
}

/** What a card is proved against: a pin, and whether it is to verify (`open`) or to fail. */
interface CardProof {
  readonly probe: string;
  readonly condition: string;
  readonly pin: PinnedIdentity;
  readonly wanted: "open" | "closed";
  readonly hint: string;
}

async function proveCard(
  seal: Seal,
  card: Uint8Array,
  { probe, condition, pin, wanted, hint }: CardProof,
): Promise<Proof> {
  const result = await verifyCard(card, [await importPinnedKey(pin.keyId, pin.jwk)]);
  const verdict = result.accepted ? "open" : "closed";
  const reason = result.accepted ? (wanted === "open" ? "card_verified" : "accepted") : result.reason;
  const digest = result.accepted && wanted === "open" ? [`card=${result.digest}`] : [];
  const references = [`pin=${pin.keyId}`, ...digest];
  return {
    items: [seal({ plane: "card", probe, layer: "card", verdict, reason, references })],
    conditions: [{ condition, verdict: verdict === wanted ? "met" : "not_met", found: reason, hint }],
  };
}

/** There is no card to prove it with. */
function notProved(
  seal: Seal,
  { probe, condition, pin, hint }: Omit<CardProof, "wanted">,
  finding: Partial<Finding> & { readonly reason: string },
): Proof {
  const about = { plane: "card", probe, layer: "none", verdict: "unknown" } as const;
  return {
    items: [seal({ ...about, references: [`pin=${pin.keyId}`], ...finding })],
    conditions: [{ condition, verdict: "unknown", found: finding.reason, hint }],
  };
}

/** What to report of a card that was named as the old key's, and is not: it counts for nothing. */
export async function unusedCardNotes(
  oldCard: Uint8Array | undefined,
  old: readonly PinnedIdentity[],
): Promise<readonly string[]> {
  if (oldCard === undefined) return [];
  if (old.length === 0) return ["--old-card was not used: this replaces no key."];
  for (const pin of old) if (await isSignedByPin(oldCard, pin)) return [];
  const keys = old.map(({ keyId }) => keyId).join(", ");
  return [`--old-card was not used: it does not verify by the old key (${keys}).`];
}

/** Whether a card verifies by this pin alone. */
export async function isSignedByPin(card: Uint8Array, { keyId, jwk }: PinnedIdentity): Promise<boolean> {
  return (await verifyCard(card, [await importPinnedKey(keyId, jwk)])).accepted;
}

const BRIDGE_WITHIN_MS = 20_000;
const POLL_MS = 200;

/** Waits for the bridge's decision about a target. */
export async function proveByBridge(
  { decision, clock }: AgentParts,
  { agent, seal, wanted }: { agent: string; seal: Seal; wanted: "verified" | "quarantined" },
  fingerprint?: string,
): Promise<Proof> {
  if (decision === undefined) return { items: [], conditions: [] };
  const isWanted = (one: BridgeDecision | undefined) =>
    wanted === "verified"
      ? one?.accepted === true && one.fingerprint === fingerprint
      : one === undefined || !one.accepted;
  let found = await decision(agent);
  for (const deadline = clock.now() + BRIDGE_WITHIN_MS; !isWanted(found) && clock.now() < deadline; ) {
    await clock.sleep(POLL_MS);
    found = await decision(agent);
  }
  const decided = fingerprint === undefined || found?.fingerprint === fingerprint ? found : undefined;
  const reason =
    decided === undefined
      ? "never_decided"
      : decided.accepted
        ? "agent_card_verified"
        : "agent_card_untrusted";
  const isUnknown = decided === undefined && wanted === "verified";
  const verdict = isUnknown ? "unknown" : decided?.accepted === true ? "open" : "closed";
  const references = found === undefined ? [] : [found.fingerprint];
  return {
    items: [seal({ plane: "card", probe: "card_trust", layer: "bridge", verdict, reason, references })],
    conditions: [
      {
        condition: wanted === "verified" ? "bridge_has_verified" : "bridge_trusts_it_no_more",
        verdict: isWanted(found) ? "met" : isUnknown ? "unknown" : "not_met",
        found: reason,
        hint: "The target stays quarantined, and questions to it are refused with a notice. Read the bridge's log, then run this again.",
      },
    ],
  };
}

const STILL_TRUSTED = "Do not go on: report that a card by the old key verifies against the new pin.";
const NO_OLD_CARD =
  "Run the same command again with --old-card FILE: a card that the old key has signed, from the publisher or a copy of one's own.";
const NOT_SERVED =
  "Have the publisher serve the card that the new key has signed, then run the same command again; until then the target is quarantined.";

export function agentParts({ card, directory }: FederationConfig, clock: Clock): AgentParts {
  const fetch: AgentParts["fetch"] = (url) => fetchCard(url, { clock });
  if (card === undefined) return { fetch, clock };
  const audit = new CardAudit(resolve(directory, card.bridgeAuditFile));
  return {
    fetch,
    clock,
    decision: async (agent) => {
      const last = (await audit.lastDecisions())?.get(agent);
      if (last === undefined) return undefined;
      return { accepted: last.outcome === "accepted", fingerprint: last.target.fingerprint };
    },
  };
}

/** Where an agent's card is public; undefined when this deployment publishes none, or not this one. */
export function publishedCardUrl(
  { gateway }: FederationConfig,
  registry: Registry,
  agent: string,
): string | undefined {
  const text = cardRender.render(registry).get(CARD_PUBLICATION) ?? "";
  const { cards } = parseYaml(PublicationFile, text, `rendered/${CARD_PUBLICATION}`);
  const card = Object.hasOwn(cards, agent) ? cards[agent] : undefined;
  if (gateway === undefined || card === undefined) return undefined;
  return `${gateway.url.replace(/\/+$/, "")}${card.cardPath}`;
}
