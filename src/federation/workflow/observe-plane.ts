// How a plane is observed and judged, whichever procedure asks: what the organisation states itself (what is declared,
// rendered and reached), what its parts say, and what was tried as the partner.
// Invariant: each item of its own rests on a revision or a digest, and names it.
import type { Clock } from "../../domain/clock.ts";
import { undefinedFor } from "../../domain/errors.ts";
import type { Direction } from "../../records/conditions/condition.ts";
import { conditionsOf, fromInside } from "../../records/conditions/condition-table.ts";
import { evaluate, PART_MANAGED } from "../../records/conditions/evaluate.ts";
import { type EvidenceItem, isOwnRoom, operatorItem } from "../../records/format/evidence-item.ts";
import type { Scope } from "../../records/format/fields.ts";
import { targetFingerprint } from "../../rendered-files/agents-file.ts";
import { InvocationFile } from "../../rendered-files/gateway-files.ts";
import { ClientsFile } from "../../rendered-files/issuer-clients.ts";
import { parseYaml } from "../../runtime/load-yaml.ts";
import type { PlaneName } from "../plane-order.ts";
import { GATEWAY_CLIENTS, GATEWAY_INVOCATION } from "../planes/gateway/render.ts";
import type { RenderedFiles } from "../planes/plane.ts";
import { probeFromInside } from "../probes/from-inside.ts";
import { isPublicForOthers } from "../probes/read-answers.ts";
import type { Federation } from "../reconcile/context.ts";
import type { DesiredState } from "../reconcile/desired-state.ts";
import { applicantsOf, findPartner, type Partner, planeState } from "../registry/partner.ts";
import type { Step } from "./procedures.ts";
import { type JudgedCondition, judged, type Observed, type Reached } from "./run-step.ts";

export const RECONCILED = "reconciled";
const NAMES_MAX = 200;

type Finding = Omit<Parameters<typeof operatorItem>[1], "plane" | "partner">;
export type Seal = ReturnType<typeof sealFor>;

export const sealFor = (clock: Clock, partner: string, plane: PlaneName) => (finding: Finding) =>
  operatorItem(clock.now(), { plane, partner, ...finding });

/** @param declared how the plane, or what was changed of it, is to be */
export function reconciledItems(
  seal: Seal,
  { desired: { revision, planes }, partner, applied }: Reached,
  plane: PlaneName,
  declared: Direction,
): readonly EvidenceItem[] {
  const { digest } = planes[plane];
  const left = (applied?.outOfReach ?? []).filter((one) => one.partner === partner);
  // Rooms that are out of reach because of another partner say nothing of this one, whose own rooms are all observed.
  const isOfOthers = plane === "rooms" && applied?.outcome === "incomplete" && left.length === 0;
  const isWhole = applied?.outcome === "in_force" || isOfOthers;
  const isReached = isWhole && applied.digest === digest;
  const names = [...new Set(left.map(({ subject }) => subjectWord(subject)))];
  return Array.from({ length: Math.max(1, Math.ceil(names.length / NAMES_MAX)) }, (_, part) =>
    seal({
      ...{ probe: RECONCILED, layer: "reconciler", verdict: isReached ? declared : "unknown" },
      reason: isReached ? "in_force" : (applied?.outcome ?? "never_applied"),
      references: [revision, digest, ...names.slice(part * NAMES_MAX, (part + 1) * NAMES_MAX)],
    }),
  );
}

/** Tries the planes of this organisation, `own`, as the partner. */
export type ObserveFromOutside = (
  own: string,
  partner: ReturnType<typeof findPartner>,
  planes: readonly PlaneName[],
  inside: readonly EvidenceItem[],
) => Promise<readonly EvidenceItem[]>;

export interface PlaneQuestion extends Pick<Step, "direction" | "conditions"> {
  readonly plane: PlaneName;
  readonly scope: Scope;
  readonly outside?: ObserveFromOutside | undefined;
  /** The partner's entry as it was when its scope was determined; absent where that is the one that was reached. */
  readonly before?: Pick<Partner, "gateway" | "card"> | undefined;
  /** Items that show the use of an agent to be refused whose card stays public for others. */
  readonly refusals?: (agent: string) => readonly EvidenceItem[];
  /** Of what is pinned for each agent; that of the partner's entry when absent. */
  readonly fingerprints?: ReadonlyMap<string, string>;
}

export const asking = (context: Federation, ask: (reached: Reached) => PlaneQuestion) => ({
  observe: (reached: Reached) => observePlane(context, reached, ask(reached)),
  evaluate: (reached: Reached, observed: Observed) => judgePlane(reached, observed, ask(reached)),
});

/** What the organisation states itself, what its parts say, and what was tried as the partner. */
export async function observePlane(
  { planes, clock }: Pick<Federation, "planes" | "clock">,
  reached: Reached,
  question: Omit<PlaneQuestion, "conditions">,
): Promise<Required<Observed>> {
  const { plane, direction, scope, outside } = question;
  const { desired } = reached;
  const entry = findPartner(desired.registry, reached.partner);
  const { partner } = entry;
  const seal = sealFor(clock, partner.serverName, plane);
  const { client, applicants, agents: offered, pins, rooms } = scope;
  const covered = { rooms: rooms ?? [], gateway: [client, ...applicants], card: [...offered, ...pins] };
  const covering = plane === "border" || plane === "transport" ? [] : covered[plane];
  const inside = await probeFromInside({ planes, clock }, desired, entry, [plane], covering);
  const tried = (await outside?.(desired.registry.organisation.serverName, entry, [plane], inside)) ?? [];
  const staying = inside.filter((item) => item.probe === "card_fetch" && isPublicForOthers(item));
  const agents = direction === "closed" ? new Set(staying.flatMap(({ subject }) => subject ?? [])) : [];
  const use = [...agents].map((subject) => {
    const refused = question.refusals?.(subject) ?? [];
    const [verdict, reason] =
      refused.length > 0 ? (["closed", "use_refused"] as const) : (["open", "no_refusal_observed"] as const);
    const references = [desired.revision, ...refused.map(({ digest }) => digest)];
    return seal({ probe: "card_use", layer: "gateway", subject, verdict, reason, references });
  });
  const own = [
    ...reconciledItems(seal, reached, plane, planeState(partner, plane)),
    ...absences(seal, desired, partner, question),
    ...(plane === "gateway" && direction === "closed" ? renderedFor(seal, desired, partner, scope) : []),
    ...use,
    ...(plane === "rooms" ? missingRooms(seal, scope, inside) : []),
  ];
  return { items: [...own, ...inside, ...tried], tried };
}

/** What there is nothing of, in the partner's entry as it is and as it was, and the parts that are not managed here. */
function absences(
  seal: Seal,
  { revision }: DesiredState,
  partner: Partner,
  { plane, direction, scope, before }: Omit<PlaneQuestion, "conditions">,
): readonly EvidenceItem[] {
  const references = [revision];
  const nothing = (probe: string, reason: string, layer = "registry") =>
    seal({ probe, layer, verdict: "closed", reason, references });
  const { parts, agents, pins, rooms } = scope;
  const entries = [partner, before ?? partner];
  const isOffered = agents.length > 0 || entries.some(({ gateway }) => (gateway?.invokes ?? []).length > 0);
  const hasAny = entries.some(({ card }) => Object.keys(card.consumes).length > 0);
  const isConsumed = pins.length > 0 || (direction === "closed" && hasAny);
  const items: EvidenceItem[] = [];
  if ((plane === "gateway" || plane === "card") && !isOffered) {
    items.push(nothing("agents_offered", "no_agent_offered"));
  }
  if (plane === "card" && !isConsumed) items.push(nothing("agents_consumed", "no_agent_consumed"));
  if (plane === "rooms" && direction === "open" && (rooms ?? []).length === 0) {
    items.push(nothing("rooms_kept", "no_room_kept", "journal"));
  }
  const needed = new Set(conditionsOf(plane, direction).flatMap((condition) => condition.parts));
  const unmanaged = [...needed].filter((part) => !parts.includes(part));
  const about = { layer: "configuration", verdict: "unknown", reason: "unmanaged", references } as const;
  return [...items, ...unmanaged.map((subject) => seal({ probe: PART_MANAGED, subject, ...about }))];
}

/** What the rendered files say of the partner's clients, those included with which it had applied. */
function renderedFor(
  seal: Seal,
  { registry, revision, planes }: DesiredState,
  partner: Partner,
  { client, applicants }: Scope,
): readonly EvidenceItem[] {
  const named = renderedClients(planes.gateway.files);
  const declared = applicantsOf(registry, partner).map(({ clientId }) => clientId);
  return [...new Set([partner.azp, client, ...declared, ...applicants])].map((subject) => {
    const isNamed = named?.has(subject) ?? true;
    const verdict = isNamed ? "open" : "closed";
    const reason = isNamed ? "azp_rendered" : "azp_not_rendered";
    const references = [revision, planes.gateway.digest];
    return seal({ probe: "render", layer: "registry", subject, verdict, reason, references });
  });
}

/** Clients that the gateway's rendered files let in; undefined where that cannot be read. */
function renderedClients(files: RenderedFiles): ReadonlySet<string> | undefined {
  const text = (path: string) => files.get(path) ?? "";
  try {
    const { agents } = parseYaml(InvocationFile, text(GATEWAY_INVOCATION), GATEWAY_INVOCATION);
    const { clients } = parseYaml(ClientsFile, text(GATEWAY_CLIENTS), GATEWAY_CLIENTS);
    const enabled = clients.filter((client) => client.enabled).map(({ clientId }) => clientId);
    return new Set([...Object.values(agents).flatMap((agent) => agent.clients), ...enabled]);
  } catch (error) {
    return undefinedFor()(error);
  }
}

function missingRooms(seal: Seal, { rooms }: Scope, inside: readonly EvidenceItem[]) {
  if (inside.some(({ probe }) => probe === "plane")) return [];
  const found = new Set(inside.filter(isOwnRoom).map(({ subject }) => subject));
  const lost = (rooms ?? []).filter((room) => !found.has(room));
  return lost.flatMap((subject) =>
    ["room_acl", "room_enforcement", "room_members"].map((probe) =>
      seal({ probe, layer: "homeserver", subject, verdict: "unknown", reason: "not_observed" }),
    ),
  );
}

/** The conditions of a plane as they are now; without a probe from outside, those that one's own parts show. */
export function judgePlane(
  { desired, partner }: Reached,
  { items }: Observed,
  { plane, direction, conditions, scope, outside, fingerprints }: PlaneQuestion,
): readonly JudgedCondition[] {
  const all = conditionsOf(plane, direction, conditions === "partner" ? "partner" : "agent");
  const asked = conditions === "in_force" ? all.filter(({ name }) => name === "in_force") : all;
  const evaluated = evaluate(outside === undefined ? fromInside(asked) : asked, items, {
    ...{ organisation: desired.registry.organisation.serverName, partner },
    ...{ plane, scope, from: null, until: null },
    ...{ revision: desired.revision, render: desired.planes[plane].digest, outOfReach: new Set<string>() },
    fingerprints: fingerprints ?? fingerprintsOf(findPartner(desired.registry, partner).partner),
  });
  return evaluated.map((one) => judged(one, { items, fromOutside: outside !== undefined }));
}

const fingerprintsOf = ({ card }: Partner): ReadonlyMap<string, string> =>
  new Map(
    Object.entries(card.consumes).flatMap(([agent, { cardUrl, cardIdentity }]) =>
      cardIdentity === undefined ? [] : [[agent, targetFingerprint(agent, { cardUrl, cardIdentity })]],
    ),
  );

const INVISIBLE = /[^\x21-\x7e]/g;
const LENGTH_MAX = 512;

/** A subject out of reach as an identifier that can be signed and typed: `!room at server` becomes `!room@server`. */
export function subjectWord(named: string): string {
  const word = named.replaceAll(" at ", "@").replaceAll(INVISIBLE, "_").slice(0, LENGTH_MAX);
  return word === "" ? "_" : word;
}
