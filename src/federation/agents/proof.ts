// Proves that one identity of an agent fails and the other verifies: by verification against the pins, by what
// is served, and by what the bridge has decided. Invariants: what could not be seen is unknown and proves
// nothing; a decision of the bridge counts only for the very target that is pinned now.

import { resolve } from "node:path";
import type { FetchedCard } from "../../cards/fetch.ts";
import { fetchCard } from "../../cards/fetch.ts";
import { importPinnedKey } from "../../cards/pinned-keys.ts";
import { verifyCard } from "../../cards/verify.ts";
import type { Clock } from "../../domain/clock.ts";
import {
  type EvidenceItem,
  type EvidenceItemBody,
  evidenceItem,
} from "../../records/format/evidence-item.ts";
import { PublicationFile } from "../../rendered-files/publication-file.ts";
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

export function sealFor(partner: string, agent: string, clock: Clock): Seal {
  return (finding) =>
    evidenceItem({
      schema: "svc.federation.evidence_item.v1",
      partner,
      vantage: "operator",
      subject: agent,
      status: null,
      references: [],
      at: new Date(clock.now()).toISOString(),
      durationMs: null,
      ...finding,
    });
}

/** Something that must have been seen before a change of identity is complete. */
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

export interface ProofWants {
  readonly seal: Seal;
  readonly agent: string;
  /** Undefined: nothing was pinned before. */
  readonly old: PinnedIdentity | undefined;
  readonly fresh: PinnedIdentity;
  /** Cards that the old key has signed, as far as any is at hand. */
  readonly oldCards: readonly Uint8Array[];
  /** The card that is, or will be, served. */
  readonly served: FetchedCard;
}

/** The old identity fails against the new pin, and the new one does not verify by the old. */
export async function proveIdentities(wants: ProofWants): Promise<Proof> {
  const { seal, old, fresh, oldCards, served } = wants;
  const newPin = [await importPinnedKey(fresh.keyId, fresh.jwk)];
  const items: EvidenceItem[] = [];
  const conditions: Condition[] = [];
  const push = (item: EvidenceItem, condition: Condition) => {
    items.push(item);
    conditions.push(condition);
  };

  for (const card of oldCards) {
    const verdict = await verifyCard(card, newPin);
    const reason = verdict.accepted ? "accepted" : verdict.reason;
    push(
      seal({
        plane: "card",
        probe: "old_identity",
        layer: "card",
        verdict: verdict.accepted ? "open" : "closed",
        reason,
        references: [`pin=${fresh.keyId}`],
      }),
      condition("old_identity_fails", verdict.accepted ? "not_met" : "met", reason, STILL_TRUSTED),
    );
  }

  if (old !== undefined && oldCards.length === 0) {
    const reason = "no_card_of_the_old_key";
    push(
      seal({
        plane: "card",
        probe: "old_identity",
        layer: "none",
        verdict: "unknown",
        reason,
        references: [`pin=${fresh.keyId}`],
      }),
      condition("old_identity_fails", "unknown", reason, NO_OLD_CARD),
    );
  }

  if (!served.fetched) {
    const what = seal({
      plane: "card",
      probe: "new_identity",
      layer: "none",
      verdict: "unknown",
      reason: served.failure,
      status: served.status ?? null,
    });
    push(what, condition("new_identity_verifies", "unknown", served.failure, NOT_SERVED));
    return { items, conditions };
  }
  const verdict = await verifyCard(served.bytes, newPin);
  const reason = verdict.accepted ? "card_verified" : verdict.reason;
  push(
    seal({
      plane: "card",
      probe: "new_identity",
      layer: "card",
      verdict: verdict.accepted ? "open" : "closed",
      reason,
      references: [`pin=${fresh.keyId}`, ...(verdict.accepted ? [`card=${verdict.digest}`] : [])],
    }),
    condition("new_identity_verifies", verdict.accepted ? "met" : "not_met", reason, NOT_SERVED),
  );
  if (old === undefined) return { items, conditions };
  const byOld = await verifyCard(served.bytes, [await importPinnedKey(old.keyId, old.jwk)]);
  const oldReason = byOld.accepted ? "accepted" : byOld.reason;
  push(
    seal({
      plane: "card",
      probe: "served_by_old_pin",
      layer: "card",
      verdict: byOld.accepted ? "open" : "closed",
      reason: oldReason,
      references: [`pin=${old.keyId}`],
    }),
    condition("old_key_not_served", byOld.accepted ? "not_met" : "met", oldReason, NOT_SERVED),
  );
  return { items, conditions };
}

/** What is to be told of a card that was named as the old key's, and is not: it counts for nothing. */
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
  wants: { readonly agent: string; readonly seal: Seal; readonly wanted: "verified" | "quarantined" },
  fingerprint?: string,
): Promise<Proof> {
  if (decision === undefined) return { items: [], conditions: [] };
  const { agent, seal, wanted } = wants;
  const isWanted = (one: BridgeDecision | undefined) =>
    wanted === "verified"
      ? one?.accepted === true && one.fingerprint === fingerprint
      : one === undefined || !one.accepted;
  let found = await decision(agent);
  for (const deadline = clock.now() + BRIDGE_WITHIN_MS; !isWanted(found) && clock.now() < deadline; ) {
    await clock.sleep(POLL_MS);
    found = await decision(agent);
  }
  const isMet = isWanted(found);
  const isAbout = fingerprint === undefined || found?.fingerprint === fingerprint;
  const reason =
    found === undefined || !isAbout
      ? "never_decided"
      : found.accepted
        ? "agent_card_verified"
        : "agent_card_untrusted";
  const verdict =
    reason === "never_decided" && wanted === "verified" ? "unknown" : found?.accepted && isAbout;
  return {
    items: [
      seal({
        plane: "card",
        probe: "card_trust",
        layer: "bridge",
        verdict: verdict === "unknown" ? "unknown" : verdict === true ? "open" : "closed",
        reason,
        references: found === undefined ? [] : [found.fingerprint],
      }),
    ],
    conditions: [
      condition(
        wanted === "verified" ? "bridge_has_verified" : "bridge_trusts_it_no_more",
        isMet ? "met" : verdict === "unknown" ? "unknown" : "not_met",
        reason,
        "The target stays quarantined, and who asks is told so. Look at the bridge's log, then run this again.",
      ),
    ],
  };
}

const STILL_TRUSTED = "Do not go on: report that a card by the old key verifies against the new pin.";
const NO_OLD_CARD =
  "Run the same command again with --old-card FILE: a card that the old key has signed, from the publisher or a copy of one's own.";
const NOT_SERVED =
  "Have the publisher serve the card that the new key has signed, then run the same command again; until then the target is quarantined.";

function condition(name: string, verdict: Condition["verdict"], found: string, hint: string): Condition {
  return { condition: name, verdict, found, hint };
}

// The real parts that an agent's identity is proved on: where its card is served, and what the bridge says.

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
