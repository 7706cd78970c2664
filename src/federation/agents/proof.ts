// Proves that one identity of an agent fails and the other verifies: by verification against the pins, by the card that
// is served, and by what the bridge has decided. Invariants: what could not be observed is unknown and proves nothing; a
// decision of the bridge counts only for the very target that is pinned now.

import { resolve } from "node:path";
import { type FetchedCard, fetchCard } from "../../cards/fetch.ts";
import { importPinnedKey } from "../../cards/pinned-keys.ts";
import { verifyCard } from "../../cards/verify.ts";
import type { Clock } from "../../domain/clock.ts";
import type { Direction, Verdict } from "../../records/conditions/condition.ts";
import { evaluate } from "../../records/conditions/evaluate.ts";
import { conditionsOf } from "../../records/conditions/table.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  operatorItem,
} from "../../records/format/evidence-item.ts";
import type { Part } from "../../records/format/scope.ts";
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

/** The parts that can confirm a change of an agent which our bridge carries. */
export function partsOf({ decision }: AgentParts): readonly Part[] {
  return decision === undefined ? ["homeserver"] : ["homeserver", "bridge"];
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

/** A condition of a change of identity, as an operator reads it. */
export interface Judged {
  readonly condition: string;
  readonly verdict: Verdict;
  readonly found: string;
  readonly hint: string;
}

export interface ChangedIdentity {
  readonly agent: string;
  /** Server name: whose agent it is. */
  readonly partner: string;
  /** Our own server name. */
  readonly own: string;
  /** `open`: the agent is pinned or rotated; `closed`: it is withdrawn. */
  readonly direction: Direction;
  /** What has to confirm it besides: our bridge, where one carries the agent. */
  readonly parts: readonly Part[];
  /** Of the target that is pinned now. */
  readonly fingerprint?: string;
}

/** Evaluates what was observed of one agent by the table of conditions. */
export function judgeIdentity(items: readonly EvidenceItem[], changed: ChangedIdentity): readonly Judged[] {
  const { agent, partner, own, direction, parts, fingerprint } = changed;
  const judged = evaluate(conditionsOf("card", direction, "agent"), items, {
    ...{ organisation: own, partner, plane: "card", from: null, until: null, revision: null, render: null },
    scope: {
      parts: [...parts],
      ...{ client: own, agents: [], pins: [agent], rooms: null, policy: null, started_at: null },
    },
    outOfReach: new Set(),
    ...(fingerprint !== undefined && { fingerprints: new Map([[agent, fingerprint]]) }),
  });
  return judged.map(({ condition, verdict, evidence, lacks }) => {
    const item = lacks[0]?.item ?? items.find(({ digest }) => evidence.includes(digest));
    return { condition, verdict, found: item?.reason ?? verdict, hint: HINTS[condition] ?? "" };
  });
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
export async function proveIdentities(input: IdentityProofInput): Promise<readonly EvidenceItem[]> {
  const { seal, old, fresh, oldCards, served } = input;
  const unknown = (probe: string, finding: Partial<Finding> & { readonly reason: string }) =>
    seal({
      ...{ plane: "card", probe, layer: "none", verdict: "unknown", references: [`pin=${fresh.keyId}`] },
      ...finding,
    });
  const items: EvidenceItem[] = [];
  for (const card of oldCards) items.push(await proveCard(seal, "old_identity", card, fresh));
  if (old !== undefined && oldCards.length === 0) {
    items.push(unknown("old_identity", { reason: "no_card_of_the_old_key" }));
  }
  if (!served.fetched) {
    const finding = { reason: served.failure, status: served.status ?? null, references: [] };
    return [...items, unknown("new_identity", finding)];
  }
  items.push(await proveCard(seal, "new_identity", served.bytes, fresh));
  if (old !== undefined) items.push(await proveCard(seal, "served_by_old_pin", served.bytes, old));
  return items;
}

/** Whether a card verifies by a pin: `open` when it does. */
async function proveCard(
  seal: Seal,
  probe: string,
  card: Uint8Array,
  pin: PinnedIdentity,
): Promise<EvidenceItem> {
  const result = await verifyCard(card, [await importPinnedKey(pin.keyId, pin.jwk)]);
  return seal({
    ...{ plane: "card", probe, layer: "card", verdict: result.accepted ? "open" : "closed" },
    reason: result.accepted ? "card_verified" : result.reason,
    references: [`pin=${pin.keyId}`, ...(result.accepted ? [`card=${result.digest}`] : [])],
  });
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

/**
 * Waits for the bridge's decision about a target.
 * @param undecided what it means that the bridge has decided nothing about it
 */
export async function proveByBridge(
  { decision, clock }: AgentParts,
  { agent, seal, wanted }: { agent: string; seal: Seal; wanted: "verified" | "quarantined" },
  { fingerprint, undecided = "never_decided" }: { fingerprint?: string; undecided?: string } = {},
): Promise<readonly EvidenceItem[]> {
  if (decision === undefined) return [];
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
    decided === undefined ? undecided : decided.accepted ? "agent_card_verified" : "agent_card_untrusted";
  const isUnknown = decided === undefined && wanted === "verified";
  const verdict = isUnknown ? "unknown" : decided?.accepted === true ? "open" : "closed";
  const references = found === undefined ? [] : [found.fingerprint];
  return [seal({ plane: "card", probe: "card_trust", layer: "bridge", verdict, reason, references })];
}

const QUARANTINED =
  "The target stays quarantined, and questions to it are refused with a notice. Read the bridge's log, then run this again.";
const NOT_SERVED =
  "Have the publisher serve the card that the new key has signed, then run the same command again; until then the target is quarantined.";
/** By condition. */
const HINTS: Readonly<Record<string, string>> = {
  old_identity_fails:
    "Where no card of the old key is at hand, run the same command again with --old-card FILE: one that the old key has signed, from the publisher or a copy of one's own. Where such a card verifies against the new pin, do not go on: report that.",
  new_identity_verifies: NOT_SERVED,
  old_key_not_served: NOT_SERVED,
  bridge_has_verified: QUARANTINED,
  bridge_trusts_it_no_more: QUARANTINED,
};

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
