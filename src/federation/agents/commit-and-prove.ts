// Commits a change of one agent's identity, brings the planes that it changes into force, and proves that one identity fails
// and the other verifies. Invariants: a change that would reach planes 1 to 3 is refused before it is committed; what could
// not be observed is unknown; a decision of the bridge counts only for the very target that is pinned now; what was shown is
// on the disk before it is returned.
import { join, resolve } from "node:path";
import { type Fetched, fetchCard } from "../../cards/fetch.ts";
import { importPinnedKey, verifyCard } from "../../cards/verify.ts";
import type { Clock } from "../../domain/clock.ts";
import { isSettled } from "../../records/conditions/evaluate.ts";
import { type EvidenceItem, operatorItem } from "../../records/format/evidence-item.ts";
import type { Part, Scope } from "../../records/format/fields.ts";
import { targetFingerprint } from "../../rendered-files/agents-file.ts";
import { PublicationFile } from "../../rendered-files/gateway-files.ts";
import { pollUntil } from "../../runtime/concurrency.ts";
import { parseYaml } from "../../runtime/load-yaml.ts";
import { type Change, type ChangeOptions, commitChange } from "../change/commit-change.ts";
import type { FederationConfig } from "../config.ts";
import type { PlaneName } from "../plane-order.ts";
import { CARD_PUBLICATION, cardRender } from "../planes/card/render.ts";
import { lastCardDecisions } from "../planes/card/runtime.ts";
import { renderAll } from "../planes/render.ts";
import { type Federation, timestamp } from "../reconcile/context.ts";
import { filesOf } from "../reconcile/desired-state.ts";
import type { Registry } from "../registry/partner.ts";
import type { PinnedIdentity } from "../registry/retired-identities.ts";
import { judgePlane, reconciledItems, type Seal, sealFor } from "../workflow/observe-plane.ts";
import { PIN, ROTATE } from "../workflow/procedures.ts";
import { type JudgedCondition, type Reached, runStep } from "../workflow/run-step.ts";
import { cardIdentityOf, refuse } from "./identity-rules.ts";

export type IdentityResult = Readonly<Awaited<ReturnType<typeof proveIdentity>>>;
type CommittedIdentity = Awaited<ReturnType<typeof commitIdentity>>;

export async function commitIdentity(context: Federation, options: ChangeOptions) {
  const examine = ({ before, after }: Change) => void requireUntouched(before.registry, after);
  const committed = await commitChange(context, { ...options, examine });
  const { change, base } = committed;
  // What is committed already is compared with itself, so that its digests are reported as well.
  return { ...committed, untouched: requireUntouched(base.registry, change?.after ?? base.registry) };
}

interface ChangedIdentity {
  readonly act: "rotate" | "pin" | "withdraw" | "add" | "remove";
  readonly agent: string;
  readonly partner: string;
  readonly keyId: string | null;
  readonly oldKeyId: string | null;
  readonly procedure: typeof PIN;
  /** The programs that can confirm it: our bridge, where one carries the agent. */
  readonly parts: readonly Part[];
  readonly fingerprint?: string;
  /** What was observed of the agent itself, once a plane is in force that its conditions are about. */
  readonly observe: (seal: Seal, plane: PlaneName, reached: Reached) => Promise<readonly EvidenceItem[]>;
}

/** Brings the managed planes of a procedure into force, and evaluates each. @throws DrawbridgeError `head_refused` */
export async function proveIdentity(
  context: Federation,
  { change, revision, untouched }: CommittedIdentity,
  { procedure, parts, fingerprint, observe, ...about }: ChangedIdentity,
) {
  const { agent, partner } = about;
  const { clock } = context;
  const items = untouched.map(({ plane, before, after }) =>
    operatorItem(clock.now(), {
      ...{ plane, partner, subject: agent, probe: "render_unchanged", layer: "registry" },
      ...{ verdict: "open", reason: "unchanged", references: [`before=${before}`, `after=${after}`] },
    }),
  );
  const conditions: JudgedCondition[] = [];
  const scope: Scope = {
    ...{ parts: [...parts], client: partner, applicants: [], agents: [], pins: [agent] },
    ...{ rooms: null, policy: null, started_at: null },
  };
  const fingerprints = new Map(fingerprint === undefined ? [] : [[agent, fingerprint]]);
  for (const { plane, direction, conditions: shown } of procedure.steps) {
    if (context.planes[plane].unmanaged) continue;
    const sealPlane = sealFor(clock, partner, plane);
    const seal: Seal = (finding) => sealPlane({ subject: agent, ...finding });
    const step = await runStep(context, {
      ...{ plane, partner, how: "apply" },
      observe: async (reached) => {
        const inForce = reconciledItems(sealPlane, reached, plane, direction);
        return { items: [...inForce, ...(shown === "agent" ? await observe(seal, plane, reached) : [])] };
      },
      evaluate: (reached, observed) =>
        judgePlane(reached, observed, { plane, direction, conditions: shown, scope, fingerprints }),
    });
    items.push(...step.observed.items);
    for (const one of step.conditions) {
      conditions.push(one.condition === "in_force" ? { ...one, condition: `${plane}_in_force` } : one);
    }
  }
  const complete = conditions.every(isSettled);
  // Which bridges carry an agent of ours is for those to say who pin it.
  const said =
    procedure === ROTATE ? conditions.filter(({ verdict }) => verdict !== "unmanaged") : conditions;
  const result = { ...about, revision, items, conditions: said, complete };
  // Before what it rests on is forgotten.
  const evidence = keepEvidence(context, result);
  return { ...result, committed: change !== undefined, untouched, evidence };
}

export async function provePin(
  context: Federation,
  committed: CommittedIdentity,
  parts: AgentParts,
  pinned: Omit<IdentityProofInput, "seal"> & { readonly cardUrl: string } & Pick<
      ChangedIdentity,
      "act" | "agent" | "partner"
    >,
): Promise<IdentityResult> {
  const { act, agent, partner, cardUrl, old, fresh } = pinned;
  const fingerprint = targetFingerprint(agent, { cardUrl, cardIdentity: cardIdentityOf(fresh) });
  return proveIdentity(context, committed, {
    ...{ act, agent, partner, keyId: fresh.keyId, oldKeyId: old?.keyId ?? null },
    ...{ procedure: PIN, parts: partsOf(parts), fingerprint },
    observe: async (seal) => [
      ...(await cardItems({ seal, ...pinned })),
      ...(await askBridge(parts, { agent, seal, wanted: "verified" }, { fingerprint })),
    ],
  });
}

type Proved = Pick<ChangedIdentity, "act" | "agent" | "partner"> & Pick<CommittedIdentity, "revision">;
type Shown = { items: readonly EvidenceItem[]; conditions: readonly JudgedCondition[]; complete: boolean };

function keepEvidence({ state, clock }: Federation, result: Proved & Shown): string {
  const at = timestamp(clock.now()).replaceAll(/[-:]/g, "");
  const { act, agent, partner, revision, items, conditions, complete } = result;
  const name = `agents/evidence/${at}-${act}-${agent}.json`;
  state.write(name, { version: 1, act, agent, partner, revision, complete, conditions, items });
  return join(state.path, name);
}

function requireUntouched(old: Registry, now: Registry) {
  const [before, after] = [renderAll(old), renderAll(now)];
  return (["transport", "rooms", "border"] as const).map((plane) => {
    const found = { plane, before: filesOf(plane, before).digest, after: filesOf(plane, after).digest };
    if (found.before === found.after) return found;
    throw refuse("planes_1_to_3_untouched", `the change would reach the ${plane} plane`);
  });
}

export type AgentParts = Readonly<ReturnType<typeof agentParts>>;

export const partsOf = ({ decision }: AgentParts): readonly Part[] =>
  decision === undefined ? ["homeserver"] : ["homeserver", "bridge"];

interface IdentityProofInput {
  readonly seal: Seal;
  readonly old: PinnedIdentity | undefined;
  readonly fresh: PinnedIdentity;
  readonly oldCards: readonly Uint8Array[];
  readonly served: Fetched;
}

/** The old identity fails against the new pin, and the new one does not verify by the old. */
export async function cardItems({ seal, old, fresh, oldCards, served }: IdentityProofInput) {
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

async function proveCard(seal: Seal, probe: string, card: Uint8Array, pin: PinnedIdentity) {
  const result = await verifyByPin(card, pin);
  return seal({
    ...{ probe, layer: "card", verdict: result.accepted ? "open" : "closed" },
    reason: result.accepted ? "card_verified" : result.reason,
    references: [`pin=${pin.keyId}`, ...(result.accepted ? [`card=${result.digest}`] : [])],
  });
}

export const verifyByPin = async (card: Uint8Array, { keyId, jwk }: PinnedIdentity) =>
  verifyCard(card, [await importPinnedKey(keyId, jwk)]);

export const isSignedBy = async (card: Uint8Array, pin: PinnedIdentity): Promise<boolean> =>
  (await verifyByPin(card, pin)).accepted;

const BY_BRIDGE = { withinMs: 20_000, everyMs: 200 };

/** Waits for the bridge's decision about a target; `undecided`: what it means that it has made none. */
export async function askBridge(
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
  const found = await pollUntil(clock, BY_BRIDGE, () => decision(agent), isWanted);
  const finding = { probe: "card_trust", layer: "bridge" } as const;
  if (found === "unreadable") return [seal({ ...finding, verdict: "unknown", reason: "audit_unreadable" })];
  const decided = fingerprint === undefined || found?.fingerprint === fingerprint ? found : undefined;
  const reason =
    decided === undefined ? undecided : decided.accepted ? "agent_card_verified" : "agent_card_untrusted";
  const isUnknown = decided === undefined && wanted === "verified";
  const verdict = isUnknown ? "unknown" : decided?.accepted === true ? "open" : "closed";
  return [seal({ ...finding, verdict, reason, references: found ? [found.fingerprint] : [] })];
}

export function agentParts({ card, directory }: FederationConfig, clock: Clock) {
  /** The bridge's last word on an agent, if its audit file can be read; absent: this organisation runs no bridge. */
  const decisionIn = (file: string) => async (agent: string) => {
    const decisions = await lastCardDecisions(resolve(directory, file));
    if (decisions === undefined) return "unreadable";
    const last = decisions.get(agent);
    return last && { accepted: last.outcome === "accepted", fingerprint: last.target.fingerprint };
  };
  const fetch = (url: string) => fetchCard(url, { clock });
  return { fetch, clock, ...(card !== undefined && { decision: decisionIn(card.bridgeAuditFile) }) };
}

/** Where an agent's card is public; undefined when this deployment publishes none, or not this one. */
export function publishedCardUrl({ gateway }: FederationConfig, registry: Registry, agent: string) {
  const text = cardRender.render(registry).get(CARD_PUBLICATION) ?? "";
  const { cards } = parseYaml(PublicationFile, text, `rendered/${CARD_PUBLICATION}`);
  const card = Object.hasOwn(cards, agent) ? cards[agent] : undefined;
  if (gateway === undefined || card === undefined) return undefined;
  return `${gateway.url.replace(/\/+$/, "")}${card.cardPath}`;
}
