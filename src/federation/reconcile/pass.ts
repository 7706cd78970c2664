// One pass: the branch's head is accepted if it is good, and every plane is brought to it, in closing or opening order.
// Invariants: a bad head changes nothing and is reported; no plane keeps the others from being applied, except that the
// transport is cut only after the rooms have sent their bans and ACLs. After the border has closed the rooms are applied
// once more, because what a closing partner had sent before may have been processed in between.
import { CLOSING_ORDER, OPENING_ORDER, PLANE_NAMES, type PlaneName } from "../plane-order.ts";
import { clientsInForce, closedPlanes, planeState, type Registry } from "../registry/partner.ts";
import type { Revision } from "../repository/repository.ts";
import { readHead, readPlane, writeHead } from "../state/plane-records.ts";
import { assess, type HeadContext } from "./accept-head.ts";
import { type AppliedPlane, type PlaneStep, stepPlane } from "./apply-plane.ts";
import { type Federation, timestamp } from "./context.ts";
import { type DesiredState, stateAt } from "./desired-state.ts";

/** How often one pass restarts for a branch that changes faster than planes are applied. */
const RESTARTS_MAX = 20;

export interface PassOptions extends Pick<PlaneStep, "force" | "again" | "checkDrift"> {
  readonly plane?: PlaneName | undefined;
  readonly allowNonFastForward?: boolean;
  readonly signal?: AbortSignal;
}

export type PlaneReport = AppliedPlane & { readonly plane: PlaneName };
export type PassResult = Awaited<ReturnType<typeof runPass>>;

/** `revision`: what was applied, the head or the last good one; `direction`: undefined where that is one plane, or nothing. */
export async function runPass(context: Federation, options: PassOptions = {}) {
  for (let restarts = 0; ; restarts++) {
    const result = await onePass(context, options, restarts < RESTARTS_MAX);
    if (result !== "superseded") return result;
  }
}

async function onePass(context: Federation, options: PassOptions, mayRestart: boolean) {
  const states = new Map<Revision, DesiredState | undefined>();
  const stateOf = async (revision: Revision) => {
    if (!states.has(revision)) states.set(revision, await stateAt(context, revision).catch(() => undefined));
    return states.get(revision);
  };
  const { allowNonFastForward = false } = options;
  const head = await context.repository.head();
  const { desired, refusal, isNew } = await acceptHead({ ...context, allowNonFastForward }, head, stateOf);
  if (desired === "superseded") return "superseded";
  if (desired === undefined)
    return { head, refusal, revision: undefined, direction: undefined, desired, planes: [] };
  const { revision } = desired;
  states.set(revision, desired);

  const direction = await directionTo(context, desired, stateOf);
  const order = options.plane === undefined ? direction : undefined;
  const how = { ...options, stateOf, context, desired };
  if (isNew) context.reporter.event({ event: "head_accepted", revision, order: order ?? null });
  const reports = new Map<PlaneName, PlaneReport>();
  for (const plane of direction === "closing" ? CLOSING_ORDER : OPENING_ORDER) {
    if (options.plane !== undefined && plane !== options.plane) continue;
    if (options.signal?.aborted) break;
    if (mayRestart && (await context.repository.head()) !== head) return "superseded";
    const report = await stepOrHold({ ...how, plane }, order);
    if (report.step === "superseded" && mayRestart) return "superseded";
    reports.set(plane, report);
    const isNow = report.step === "applied";
    if (plane === "border" && direction === "closing" && roomsPrecedeBorder(context, desired, isNow)) {
      const once = { force: true, again: true, checkDrift: false };
      const again = await stepPlane({ ...how, ...once, plane: "rooms" });
      if (again.step === "superseded" && mayRestart) return "superseded";
      reports.set("rooms", { plane: "rooms", ...again });
    }
  }
  return { head, refusal, revision, direction: order, desired, planes: [...reports.values()] };
}

/** The state that is to be in force: the head's, or the last good one's; and whether it was not accepted before. */
async function acceptHead(context: HeadContext, head: Revision | undefined, stateOf: PlaneStep["stateOf"]) {
  const { state, clock, reporter } = context;
  const before = readHead(state);
  const accepted = before.accepted?.revision;
  const assessment = await assess(head, context);
  const at = timestamp(clock.now());
  const isSuperseded = await state.locked("head", clock, async () => {
    // Another process may have accepted a newer revision while this one was being read.
    if (readHead(state).accepted?.revision !== accepted) return true;
    if (assessment.good) {
      const { revision } = assessment.desired;
      const isKnown = accepted === revision && before.refused === null;
      if (!isKnown) writeHead(state, { version: 1, accepted: { revision, at }, refused: null });
    } else {
      const { reason } = assessment.refusal;
      const isKnown = before.refused?.revision === (head ?? null) && before.refused.reason === reason;
      if (!isKnown) writeHead(state, { ...before, refused: { revision: head ?? null, reason, at } });
    }
    return false;
  });
  if (isSuperseded) return { desired: "superseded", refusal: undefined, isNew: false } as const;
  if (assessment.good) {
    const isNew = accepted !== assessment.desired.revision;
    return { desired: assessment.desired, refusal: undefined, isNew };
  }
  const { refusal } = assessment;
  reporter.event({ event: "head_refused", revision: head ?? null, ...refusal, inForce: accepted ?? null });
  return { desired: accepted === undefined ? undefined : await stateOf(accepted), refusal, isNew: false };
}

/** Closing, if any plane still admits somebody whom the revision does not, or none changes: an edit by hand may admit. */
async function directionTo(context: Federation, desired: DesiredState, stateOf: PlaneStep["stateOf"]) {
  const before = new Set<Registry | undefined>();
  for (const plane of PLANE_NAMES) {
    if (context.planes[plane].unmanaged) continue;
    const { inForce, applied, applying } = readPlane(context.state, plane);
    if (inForce === null) before.add(undefined);
    for (const mark of [inForce, applied, applying]) {
      if (mark === null || mark.digest === desired.planes[plane].digest) continue;
      before.add((await stateOf(mark.revision))?.registry);
    }
  }
  const closes = [...before].some((registry) => directionOf(registry, desired.registry) === "closing");
  return closes || before.size === 0 ? "closing" : "opening";
}

async function stepOrHold(step: PlaneStep, order: Direction | undefined): Promise<PlaneReport> {
  const { context, plane, desired } = step;
  const record = readPlane(context.state, plane);
  const cuts = plane === "transport" && record.applied?.digest !== desired.planes.transport.digest;
  if (cuts && order === "closing" && !roomsWereSent(context, desired)) {
    context.reporter.note(plane, "waits until the rooms plane has been applied");
    return { plane, step: "held", record, drift: 0, changed: false };
  }
  return { plane, ...(await stepPlane(step)) };
}

/** Whether the rooms were closed to somebody before the border had closed, and not applied since. @param isNow it was closed just now: the clock may have been set back since */
function roomsPrecedeBorder(context: Federation, desired: DesiredState, isNow: boolean): boolean {
  if (desired.registry.partners.every(({ partner }) => planeState(partner, "rooms") === "open")) return false;
  const rooms = readPlane(context.state, "rooms").applied;
  const border = readPlane(context.state, "border").applied;
  return (
    rooms?.digest === desired.planes.rooms.digest &&
    border?.outcome === "in_force" &&
    border.digest === desired.planes.border.digest &&
    (isNow ? rooms.at !== border.at : Date.parse(rooms.at) < Date.parse(border.at))
  );
}

/** Whether this revision's bans and ACLs were sent, as far as they could be. */
function roomsWereSent(context: Federation, desired: DesiredState): boolean {
  const { applied, applying } = readPlane(context.state, "rooms");
  return (
    applying === null &&
    applied?.digest === desired.planes.rooms.digest &&
    (applied.outcome === "in_force" || applied.outcome === "incomplete")
  );
}

// Whether a change closes or opens. Invariants: one that closes anything for anybody is applied in closing order, also
// when it opens something else; where it is unknown what was in force, everybody counts as admitted.

export type Direction = "closing" | "opening";

export function directionOf(before: Registry | undefined, after: Registry): Direction {
  if (before === undefined) {
    const isOpen = after.partners.every(({ partner }) => closedPlanes(partner).length === 0);
    return isOpen ? "opening" : "closing";
  }
  const admitted = new Set(admissionsOf(after));
  return admissionsOf(before).every((one) => admitted.has(one)) ? "opening" : "closing";
}

/** All that a registry admits, a text each. */
function admissionsOf(registry: Registry): string[] {
  const partners = registry.partners.flatMap(({ partner }) => {
    const { serverName, azp, gateway, card } = partner;
    const subjects: Partial<Record<PlaneName, readonly unknown[]>> = {
      gateway: [azp, ...(gateway?.invokes ?? []).map((agent) => [azp, agent])],
      card: Object.keys(card.consumes),
    };
    return PLANE_NAMES.filter((plane) => planeState(partner, plane) === "open").flatMap((plane) =>
      [[], ...(subjects[plane] ?? [])].map((subject) => [serverName, plane, subject]),
    );
  });
  const clients = clientsInForce(registry)
    .filter(({ enabled }) => enabled)
    .flatMap(({ clientId, invokes }) => [[clientId], ...invokes.map((agent) => [clientId, agent])]);
  const agents = Object.keys(registry.organisation.agents);
  return [...partners, ...clients.map((client) => ({ client })), ...agents].map((one) => JSON.stringify(one));
}
