// Proves that one identity of an agent fails and the other verifies. Invariants: what could not be observed is unknown and
// proves nothing; a decision of the bridge counts only for the very target that is pinned now.

import { resolve } from "node:path";
import { type Fetched, fetchCard } from "../../cards/fetch.ts";
import { importPinnedKey } from "../../cards/pinned-keys.ts";
import { verifyCard } from "../../cards/verify.ts";
import type { Clock } from "../../domain/clock.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { Part } from "../../records/format/fields.ts";
import { PublicationFile } from "../../rendered-files/gateway-files.ts";
import { parseYaml } from "../../runtime/load-yaml.ts";
import type { FederationConfig } from "../config.ts";
import { lastCardDecisions } from "../planes/card/bridge.ts";
import { CARD_PUBLICATION, cardRender } from "../planes/card/render.ts";
import type { Registry } from "../registry/partner.ts";
import type { PinnedIdentity } from "../registry/retired-identities.ts";
import type { Seal } from "../workflow/declared-evidence.ts";

export interface AgentParts {
  readonly fetch: (url: string) => Promise<Fetched>;
  /** The bridge's last word on an agent, if its audit file can be read; absent: this organisation runs no bridge. */
  readonly decision?: (agent: string) => Promise<BridgeDecision | "unreadable" | undefined>;
  readonly clock: Clock;
}

export function partsOf({ decision }: AgentParts): readonly Part[] {
  return decision === undefined ? ["homeserver"] : ["homeserver", "bridge"];
}

export interface BridgeDecision {
  readonly accepted: boolean;
  readonly fingerprint: string;
}

export interface IdentityProofInput {
  readonly seal: Seal;
  readonly old: PinnedIdentity | undefined;
  readonly fresh: PinnedIdentity;
  readonly oldCards: readonly Uint8Array[];
  readonly served: Fetched;
}

/** The old identity fails against the new pin, and the new one does not verify by the old. */
export async function proveIdentities(input: IdentityProofInput): Promise<readonly EvidenceItem[]> {
  const { seal, old, fresh, oldCards, served } = input;
  const unknown = { layer: "none", verdict: "unknown" } as const;
  const items: EvidenceItem[] = [];
  for (const card of oldCards) items.push(await proveCard(seal, "old_identity", card, fresh));
  if (old !== undefined && oldCards.length === 0) {
    const about = { reason: "no_card_of_the_old_key", references: [`pin=${fresh.keyId}`] };
    items.push(seal({ probe: "old_identity", ...unknown, ...about }));
  }
  if (!served.fetched) {
    const { failure: reason, status = null } = served;
    return [...items, seal({ probe: "new_identity", ...unknown, reason, status })];
  }
  items.push(await proveCard(seal, "new_identity", served.bytes, fresh));
  if (old !== undefined) items.push(await proveCard(seal, "served_by_old_pin", served.bytes, old));
  return items;
}

async function proveCard(
  seal: Seal,
  probe: string,
  card: Uint8Array,
  pin: PinnedIdentity,
): Promise<EvidenceItem> {
  const result = await verifyByPin(card, pin);
  return seal({
    ...{ probe, layer: "card", verdict: result.accepted ? "open" : "closed" },
    reason: result.accepted ? "card_verified" : result.reason,
    references: [`pin=${pin.keyId}`, ...(result.accepted ? [`card=${result.digest}`] : [])],
  });
}

export async function verifyByPin(card: Uint8Array, { keyId, jwk }: PinnedIdentity) {
  return verifyCard(card, [await importPinnedKey(keyId, jwk)]);
}

export async function isSignedByPin(card: Uint8Array, pin: PinnedIdentity): Promise<boolean> {
  return (await verifyByPin(card, pin)).accepted;
}

const BRIDGE_WITHIN_MS = 20_000;
const POLL_MS = 200;

/** Waits for the bridge's decision about a target; `undecided`: what it means that it has made none. */
export async function proveByBridge(
  { decision, clock }: AgentParts,
  { agent, seal, wanted }: { agent: string; seal: Seal; wanted: "verified" | "quarantined" },
  { fingerprint, undecided = "never_decided" }: { fingerprint?: string; undecided?: string } = {},
): Promise<readonly EvidenceItem[]> {
  if (decision === undefined) return [];
  const isWanted = (one: Awaited<ReturnType<typeof decision>>) =>
    one !== "unreadable" &&
    (wanted === "verified"
      ? one?.accepted === true && one.fingerprint === fingerprint
      : one === undefined || !one.accepted);
  let found = await decision(agent);
  for (const deadline = clock.now() + BRIDGE_WITHIN_MS; !isWanted(found) && clock.now() < deadline; ) {
    await clock.sleep(POLL_MS);
    found = await decision(agent);
  }
  const finding = { probe: "card_trust", layer: "bridge" } as const;
  if (found === "unreadable") return [seal({ ...finding, verdict: "unknown", reason: "audit_unreadable" })];
  const decided = fingerprint === undefined || found?.fingerprint === fingerprint ? found : undefined;
  const reason =
    decided === undefined ? undecided : decided.accepted ? "agent_card_verified" : "agent_card_untrusted";
  const isUnknown = decided === undefined && wanted === "verified";
  const verdict = isUnknown ? "unknown" : decided?.accepted === true ? "open" : "closed";
  const references = found === undefined ? [] : [found.fingerprint];
  return [seal({ ...finding, verdict, reason, references })];
}

export function agentParts({ card, directory }: FederationConfig, clock: Clock): AgentParts {
  const fetch: AgentParts["fetch"] = (url) => fetchCard(url, { clock });
  if (card === undefined) return { fetch, clock };
  return {
    fetch,
    clock,
    decision: async (agent) => {
      const decisions = await lastCardDecisions(resolve(directory, card.bridgeAuditFile));
      if (decisions === undefined) return "unreadable";
      const last = decisions.get(agent);
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
