// A room that is probed: who takes part, what each of them sees of it, and what crosses in it, directly or through a third
// server. Invariants: that the target has left, or that nobody of the partner's is there, is somebody's own word; that
// something did not arrive is stated only if what the witness sent after receiving it did, or if another refusal explains
// it; what the witness may have passed on is never said to have come directly.
import type { RoomId } from "../../domain/identifiers.ts";
import { mapConcurrent } from "../../runtime/concurrency.ts";
import type { MatrixAnswer } from "../homeserver/api.ts";
import type { ProbeConfig, ProbeUser } from "./config.ts";
import { partnerServer } from "./partner-server.ts";
import {
  type Attempt,
  homeserverRefusal,
  homeserverUnclear,
  notApplicable,
  notConfigured,
  type OutsideProbe,
  observe,
  type ProbeResult,
  type ProbeSubject,
} from "./read-answers.ts";
import { type Person, type ProbeSources, personWith } from "./user.ts";

export type RoomPeople = Readonly<ReturnType<typeof peopleOf>>;

export function peopleOf(config: ProbeConfig, sources: ProbeSources) {
  const person = (user: ProbeUser | undefined) => user && personWith(user, config.directory, sources);
  const { as, target } = config;
  return {
    ...{ partnerName: as.serverName, targetName: target.serverName, server: partnerServer(config, sources) },
    ...{ partner: person(as.user), other: person(as.otherUser) },
    ...{ witness: person(config.witness), observer: person(config.observer) },
  };
}

export interface Explanation {
  readonly layer: string;
  readonly reason: string;
  readonly references?: readonly string[];
}

export interface RoomOptions {
  readonly arrivalTimeoutMs: number;
  /** Set when the target's transport refuses the partner, and so sends it nothing either. */
  readonly transport: Explanation | undefined;
  readonly violationOf?: ((eventId: string) => Promise<Explanation | undefined>) | undefined;
  /** Also sends a state event, which stays in the room for ever: for rooms that are thrown away. */
  readonly withState?: boolean;
}

const POLL_FIRST_MS = 100;
/** An event that has not arrived within a moment is asked for less often, because many rooms are probed at once. */
const POLL_MAX_MS = 500;
const PAUSE_PART = 4;
const NO_WITNESS = notApplicable("witness_is_no_member");

export type ProbedRoom = ReturnType<typeof probedRoom>;

export function probedRoom(id: RoomId, people: RoomPeople, options: RoomOptions, { clock }: ProbeSources) {
  const { partnerName, targetName, server, other, partner, observer, witness } = people;
  const joiner = (other ?? partner)?.userId ?? `@probe:${partnerName}`;
  return {
    ...{ id, people, options, joiner },

    item: (probe: OutsideProbe, vantage: ProbeSubject["vantage"], attempt: Attempt) =>
      observe({ plane: "rooms", partner: partnerName, subject: id, probe, vantage }, clock, attempt),

    /** Nothing of a room arrives at a server that has left it, by its own word or as the witness sees it. */
    async hasLeft(): Promise<Explanation | undefined> {
      if ((await observer?.isJoined(id)) !== false) return undefined;
      const left = { layer: "room_membership", reason: "target_has_left" } as const;
      if ((await witness?.joinedFrom(id, targetName))?.length === 0) return left;
      const asked = await server?.makeJoin(targetName, id, joiner).catch(() => undefined);
      return asked?.reason === "not_in_room" ? left : undefined;
    },

    /** A server without members in a room is sent nothing of it, by those who see it so. */
    async isEmptied(viewer: Person | undefined): Promise<Explanation | undefined> {
      const members = await viewer?.joinedFrom(id, partnerName);
      return members?.length === 0 ? { layer: "room_membership", reason: "no_member" } : undefined;
    },

    /** By the observer's word. */
    async isJoined({ serverName, userId }: Person): Promise<boolean | undefined> {
      return (await observer?.joinedFrom(id, serverName))?.includes(userId);
    },

    pause: (ms: number) => clock.sleep(Math.min(ms, options.arrivalTimeoutMs / PAUSE_PART)),

    /** Repeats a check until it holds, the time is over, or a check after `isEnough` has failed. */
    async within(
      attempt: () => Promise<boolean | undefined>,
      isEnough: () => boolean = () => false,
      timeoutMs = options.arrivalTimeoutMs,
    ): Promise<boolean> {
      const deadline = clock.now() + timeoutMs;
      for (let pollMs = POLL_FIRST_MS; ; pollMs = Math.min(pollMs * 1.5, POLL_MAX_MS)) {
        const isLast = isEnough();
        if (await attempt()) return true;
        const leftMs = deadline - clock.now();
        if (isLast || leftMs <= 0) return false;
        await clock.sleep(Math.min(pollMs, leftMs));
      }
    },
  };
}

/** Whether the witness has got what it is to pass on; `absent` where nobody stands in the room as one. */
type AtWitness = "held" | "late" | "absent" | undefined;

const LATE = notApplicable("witness_lacks_event");
/** What comes directly may be this much slower than what goes to the witness, though something speaks against it. */
const DIRECT_MS = 1_000;

type Direction = ReturnType<typeof directionsOf>[number];

function directionsOf(room: ProbedRoom, partner: Person, observer: Person) {
  const { witness, targetName } = room.people;
  const inwards = {
    vantage: "partner",
    outsider: "user_is_no_member",
    receives: (eventId: string) => observer.sees(room.id, eventId),
    /** Whether the receiver is shown nothing of the room at all, so that an absence says nothing. */
    isBlind: async () => false,
    /** Whether the receiver will never be shown the event, so that waiting shows nothing. */
    isMoot: () => observer.isShutOut(room.id),
    /** The refusal that is nearest to the event. */
    whyNot: async (eventId: string) =>
      (await room.options.violationOf?.(eventId)) ??
      room.options.transport ??
      (await refusedByAcl(room, targetName)) ??
      (await room.hasLeft()),
    whyNotRelayed: async () => (await room.hasLeft()) ?? (await refusedByAcl(room, witness?.serverName)),
    /** Why nothing can be sent: the sender's own homeserver refuses, and nobody of the partner's is in the room any more. */
    refused: async () => (await room.isEmptied(observer)) ?? (await room.hasLeft()),
  } as const;
  const message = { ...inwards, probe: "message_to_target", send: () => partner.send(room.id) } as const;
  const state = { ...inwards, probe: "state_to_target", send: () => partner.sendState(room.id) } as const;
  const outwards = {
    probe: "message_to_partner",
    vantage: "operator",
    outsider: "observer_is_no_member",
    send: () => observer.send(room.id),
    receives: (eventId: string) => partner.holds(room.id, eventId),
    isBlind: async () => !(await partner.isJoined(room.id)),
    isMoot: async () => (await partner.isNoAdministrator()) && (await partner.isShutOut(room.id)),
    whyNot: async () => (await room.isEmptied(observer)) ?? room.options.transport,
    whyNotRelayed: () => room.isEmptied(witness),
    refused: () => room.hasLeft(),
  } as const;
  return room.options.withState === true ? [message, state, outwards] : [message, outwards];
}

/** What was found, and the ID of the event that was sent last: to the partner. */
export async function crossRoom(room: ProbedRoom) {
  const { partner, observer } = room.people;
  if (partner === undefined || observer === undefined) {
    const missing = () => notConfigured(partner === undefined ? "user" : "observer");
    const toTarget = await room.item("message_to_target", "partner", missing);
    const toPartner = await room.item("message_to_partner", "operator", missing);
    // The probes of history need the ID of a new event, also where nobody observes its arrival.
    const sent = await observer?.send(room.id).catch(() => undefined);
    return { items: [toTarget, toPartner], eventId: sent?.eventId };
  }
  const takers = directionsOf(room, partner, observer).map((direction) => {
    return { direction, waited: reached(), checked: reached() };
  });
  const crossed = await mapConcurrent(takers, takers.length, async ({ direction, ...own }) => {
    const meet: Meet = (point) => {
      own[point].resolve();
      return Promise.all(takers.map((one) => one[point].promise));
    };
    try {
      return await cross(room, direction, meet);
    } finally {
      for (const { resolve } of Object.values(own)) resolve();
    }
  });
  return { items: crossed.flatMap(({ items }) => items), eventId: crossed.at(-1)?.eventId };
}

/** Waits until all directions are as far, or over: the witness writes only when each has looked for what comes directly. */
type Meet = (point: "waited" | "checked") => Promise<unknown>;

const reached = () => Promise.withResolvers<void>();

/** A server refuses what it receives of a room for the reason for which it refuses a join. */
async function refusedByAcl(room: ProbedRoom, at: string | undefined): Promise<Explanation | undefined> {
  const { server } = room.people;
  if (at === undefined) return undefined;
  const found = await server?.makeJoin(at, room.id, room.joiner).catch(() => undefined);
  if (found?.verdict !== "closed" || found.layer !== "room_acl") return undefined;
  return { layer: "room_acl", reason: "server_banned" };
}

async function cross(room: ProbedRoom, direction: Direction, meet: Meet) {
  let crossing: Awaited<ReturnType<typeof send>> | undefined;
  const item = await room.item(direction.probe, direction.vantage, async () => {
    crossing = await send(room, direction, meet);
    return crossing.direct;
  });
  // A failure of one way, such as a homeserver that is down, leaves the other way unknown too.
  const { verdict, status, reason } = item;
  const same = { verdict, layer: "network", status, reason };
  const unsaid = room.people.witness === undefined ? notConfigured("witness") : same;
  const relayed = crossing === undefined ? unsaid : crossing.viaWitness;
  if (relayed === undefined) return { items: [item], eventId: crossing?.eventId };
  const viaWitness = await room.item(`${direction.probe}_via_witness`, "witness", () => relayed);
  return { items: [item, viaWitness], eventId: crossing?.eventId };
}

// The witness writes when the direct way was waited for. Where nothing can come directly, that is only a moment after
// the witness has the event; an event that nobody would be shown is not waited for.
async function send(room: ProbedRoom, direction: Direction, meet: Meet) {
  const { answer, eventId } = await direction.send();
  if (eventId === undefined) {
    const refused = await notSent(answer, direction);
    const viaWitness = room.people.witness === undefined ? notConfigured("witness") : refused;
    return { direct: refused, viaWitness, eventId };
  }
  let [isMoot, isEnough] = [false, false];
  let atWitness: AtWitness;
  const prepare = async () => {
    if ((await direction.whyNot(eventId)) === undefined) return;
    isEnough = isMoot = await direction.isMoot();
    if (isMoot) return;
    atWitness = await arrivalAtWitness(room, eventId);
    if (atWitness !== "held") return;
    await room.pause(DIRECT_MS);
    isEnough = true;
  };
  const preparing = prepare();
  // The preparation is awaited below, unless the event comes first: then nothing that went wrong meanwhile matters.
  preparing.catch(() => undefined);
  const receives = () => direction.receives(eventId);
  const arrived = { layer: "homeserver", status: 200, reason: "arrived", references: [eventId] };
  const hasCome = { direct: { verdict: "open", ...arrived } as const, viaWitness: undefined, eventId };
  if (await room.within(receives, () => isEnough)) return hasCome;
  await preparing;
  if (!isMoot) {
    atWitness ??= await arrivalAtWitness(room, eventId);
    await meet("waited");
  }
  const relay = await passOn(room, eventId, direction, atWitness, meet);
  if (relay.hasCome) return hasCome;
  const isBlind = !relay.passed && (await direction.isBlind());
  // The event is there, and may have come either way.
  const isThere = relay.finding?.verdict === "open";
  const judged = (explanation: Explanation | undefined, reason: string): ProbeResult => {
    const isMissing = relay.passed === true && !isThere;
    if (isBlind && explanation === undefined) return notApplicable("user_is_no_member");
    return {
      verdict: isMissing || explanation !== undefined ? "closed" : "unknown",
      layer: explanation?.layer ?? "not_observed",
      status: null,
      reason: explanation?.reason ?? (isMissing ? reason : isThere ? "arrived_late" : "unexplained_absence"),
      references: [eventId, ...(explanation?.references ?? [])],
    };
  };
  const viaWitness = async () => {
    const explanation = await direction.whyNotRelayed();
    return explanation === undefined && relay.isLate ? LATE : judged(explanation, "not_relayed");
  };
  return {
    direct: judged(await direction.whyNot(eventId), "not_arrived"),
    viaWitness: relay.finding ?? (await viaWitness()),
    eventId,
  };
}

async function arrivalAtWitness(room: ProbedRoom, eventId: string): Promise<AtWitness> {
  const { witness } = room.people;
  if (witness === undefined || !(await witness.isJoined(room.id))) return "absent";
  return (await room.within(() => witness.sees(room.id, eventId))) ? "held" : "late";
}

/** The witness writes after it has the event, so that what it relays arrives first. `hasCome`: the event came before that. */
async function passOn(room: ProbedRoom, eventId: string, { receives }: Direction, at: AtWitness, meet: Meet) {
  const { witness } = room.people;
  if (witness === undefined) return { finding: notConfigured("witness"), hasCome: await receives(eventId) };
  if (at === undefined) return (await witness.isJoined(room.id)) ? {} : { finding: NO_WITNESS };
  if (at === "absent") return { finding: NO_WITNESS, hasCome: await receives(eventId) };
  if (at === "late") return { isLate: true, hasCome: await receives(eventId) };
  if (await receives(eventId)) return { hasCome: true };
  await meet("checked");
  const { eventId: later } = await witness.send(room.id);
  if (later === undefined) return {};
  const passed = await room.within(() => receives(later));
  if (!(await receives(eventId))) return { passed };
  const found = { layer: "witness_homeserver", status: 200, reason: "relayed" } as const;
  return { passed, finding: { verdict: "open", ...found, references: [eventId, later] } as const };
}

/** The sender's own homeserver did not take the event. That alone says nothing about the target. */
async function notSent(answer: MatrixAnswer, { refused, outsider }: Direction): Promise<ProbeResult> {
  if (homeserverRefusal(answer) === undefined) return homeserverUnclear(answer);
  const explanation = await refused();
  if (explanation === undefined) return notApplicable(outsider);
  return { verdict: "closed", status: null, ...explanation };
}
