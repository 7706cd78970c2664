// All probes from outside that a probe.yaml allows, over the planes that are asked about; in a room: what crosses, whether
// the partner's people can come in, whether its server is given history. Invariants: a probe whose section is missing is
// listed as left out, with what it lacks; none is reported closed without an answer that refused, or an absence that is
// explained; who joins leaves again once history was asked for, which members alone are given, or is named.
import type { RoomId } from "../../domain/identifiers.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { mapConcurrent } from "../../runtime/concurrency.ts";
import { PLANE_NAMES, type PlaneName } from "../plane-order.ts";
import type { ProbeConfig } from "./config.ts";
import { probeCards, probeInvocation } from "./partner-at-gateway.ts";
import { type History, sendWithoutKey } from "./partner-server.ts";
import { crossRoom, type ProbedRoom, peopleOf, probedRoom, type RoomOptions } from "./probed-room.ts";
import {
  homeserverRefusal,
  homeserverUnclear,
  notApplicable,
  notConfigured,
  observe,
  type ProbeResult,
  unreachable,
} from "./read-answers.ts";
import type { ProbeSources } from "./user.ts";

type People = ProbedRoom["people"];

interface OutsideOptions extends Pick<RoomOptions, "violationOf" | "withState"> {
  readonly planes?: ReadonlySet<PlaneName>;
  /** Rooms that are tried besides those of probe.yaml, such as replacements. */
  readonly rooms?: readonly RoomId[];
}

export async function probeFromOutside(config: ProbeConfig, sources: ProbeSources, options: OutsideOptions) {
  const planes = options.planes ?? new Set(PLANE_NAMES);
  const people = peopleOf(config, sources);
  const items: EvidenceItem[] = [];
  try {
    if (planes.has("gateway")) items.push(...(await probeInvocation(config, sources)));
    if (planes.has("card")) items.push(...(await probeCards(config, sources)));
    // Whether the server itself is let in explains what does not arrive in rooms.
    const reach = await probeServer(config, people, sources);
    items.push(...reach.filter((item) => planes.has(item.plane)));
    if (planes.has("rooms")) items.push(...(await probeRooms(config, people, reach, sources, options)));
    return items;
  } finally {
    await people.server?.close();
  }
}

async function probeServer(config: ProbeConfig, people: People, sources: ProbeSources) {
  const { clock } = sources;
  const { server, partner, observer, partnerName, targetName } = people;
  const { invitee } = config.target;
  const about = { partner: partnerName, vantage: "partner" } as const;
  const sending = { ...about, plane: "transport", probe: "federation_send", subject: targetName } as const;
  const inviting = { ...about, plane: "border", probe: "invite", subject: invitee ?? targetName } as const;
  return [
    await observe(sending, clock, () => server?.send() ?? sendWithoutKey(config, sources)),
    await observe(inviting, clock, () => {
      if (server === undefined) return notConfigured("signing_key");
      if (invitee === undefined) return notConfigured("invitee");
      return server.invite(partner?.userId ?? `@probe:${partnerName}`, invitee, observer);
    }),
  ];
}

async function probeRooms(
  config: ProbeConfig,
  people: People,
  reach: readonly EvidenceItem[],
  sources: ProbeSources,
  options: OutsideOptions,
): Promise<EvidenceItem[]> {
  const partner = people.partnerName;
  const about = { plane: "rooms", partner, vantage: "partner", probe: "message_to_target" } as const;
  const { rooms: more = [], violationOf, withState = false } = options;
  if (config.target.rooms.length === 0 && more.length === 0)
    return [await observe({ ...about, subject: null }, sources.clock, () => notConfigured("rooms"))];
  const isRefused = reach.some(({ probe, verdict }) => probe === "federation_send" && verdict === "closed");
  const transport = isRefused ? { layer: "transport", reason: "federation_denied" } : undefined;
  const roomOptions = { arrivalTimeoutMs: config.arrivalTimeout, transport, violationOf, withState };
  const rooms = new Set<RoomId>();
  const items: EvidenceItem[] = [];
  for (const subject of config.target.rooms) {
    const room = await resolveRoom(subject, people);
    if (room !== undefined) rooms.add(room);
    else items.push(await observe({ ...about, subject }, sources.clock, () => notConfigured("known_room")));
  }
  for (const room of more) rooms.add(room);
  // All at once and to their end, also where one fails: whoever came into a room is to have left it.
  const probe = (room: RoomId) => probeRoom(probedRoom(room, people, roomOptions, sources));
  const found = await mapConcurrent([...rooms], rooms.size, probe);
  return [...items, ...found.flat()];
}

async function resolveRoom(named: string, people: People): Promise<RoomId | undefined> {
  for (const person of [people.observer, people.witness, people.partner]) {
    const room = await person?.resolve(named).catch(() => undefined);
    if (room !== undefined) return room;
  }
  return undefined;
}

/** Whose copy of the room is asked, the target's or the third server's. */
interface Door {
  /** Absent without a witness, which is a hindrance. */
  readonly server: string | undefined;
  readonly hindrance: ProbeResult | undefined;
  readonly isLeft: boolean;
  readonly eventId: string | undefined;
  readonly probes: typeof AT_TARGET | typeof AT_WITNESS;
}

const LEAVE_TIMEOUT_MS = 60_000;

const AT_TARGET = ["make_join", "remote_join", "event_at_target", "backfill_at_target"] as const;
const JOINING_AT_WITNESS = ["make_join_at_witness", "remote_join_via_witness"] as const;
const AT_WITNESS = [...JOINING_AT_WITNESS, "event_at_witness", "backfill_at_witness"] as const;

export async function probeRoom(room: ProbedRoom): Promise<EvidenceItem[]> {
  const { items, eventId } = await crossRoom(room);
  const { witness, targetName } = room.people;
  const isLeft = (await room.hasLeft().catch(() => undefined)) !== undefined;
  const target = { server: targetName, hindrance: undefined, probes: AT_TARGET };
  const third = { server: witness?.serverName, hindrance: await hindranceAt(room), probes: AT_WITNESS };
  const atTarget = await through(room, { ...target, isLeft, eventId });
  return [...items, ...atTarget, ...(await through(room, { ...third, isLeft, eventId }))];
}

async function hindranceAt(room: ProbedRoom): Promise<ProbeResult | undefined> {
  const { witness } = room.people;
  if (witness === undefined) return notConfigured("witness");
  return witness
    .isJoined(room.id)
    .then((isJoined) => (isJoined ? undefined : notApplicable("witness_is_no_member")), unreachable);
}

/** What one server lets happen: a join is asked for, made, used to ask for history, and taken back. */
async function through(room: ProbedRoom, door: Door): Promise<EvidenceItem[]> {
  const [makeJoin, join, event, backfill] = door.probes;
  const { server: origin } = room.people;
  const { hindrance, eventId } = door;
  const asked = await room.item(makeJoin, "partner", () => {
    if (origin === undefined) return notConfigured("signing_key");
    // What others let happen in a room that the target is not in is no way to the target.
    if (door.isLeft && door.probes === AT_WITNESS) return notApplicable("target_has_left");
    return hindrance ?? origin.makeJoin(String(door.server), room.id, room.joiner);
  });
  const visit = { isAsked: false };
  const joined = await room.item(join, "partner", async () => {
    const found = await joinBy(room, door, visit);
    // A homeserver that was refused repeatedly answers 502 itself: then the join that was asked for by hand counts.
    const isOwnFailure = found.verdict === "unknown" && found.status !== null && found.status >= 500;
    return isOwnFailure && asked.verdict === "closed" ? notApplicable("own_server_did_not_ask") : found;
  });
  let given: readonly EvidenceItem[] = [];
  let isOut = true;
  try {
    let lacking: Promise<ProbeResult | undefined> | undefined;
    const history = (kind: History) => {
      if (origin === undefined) return notConfigured("signing_key");
      if (hindrance !== undefined) return hindrance;
      if (eventId === undefined) return notApplicable("no_fresh_event");
      lacking ??= lackOf(room, door, eventId);
      return lacking.then((lack) => lack ?? origin.history(kind, String(door.server), room.id, eventId));
    };
    given = [
      await room.item(event, "partner", () => history("event")),
      await room.item(backfill, "partner", () => history("backfill")),
    ];
  } finally {
    if (visit.isAsked && joined.verdict !== "closed") isOut = await leaveAgain(room, joined);
  }
  const { verdict, status } = joined;
  const references = [room.joiner];
  const stays = { verdict, layer: "homeserver", status, reason: "cannot_leave", references };
  return [asked, isOut ? joined : await room.item(join, "partner", () => stays), ...given];
}

async function joinBy(room: ProbedRoom, { server, hindrance, isLeft }: Door, visit: { isAsked: boolean }) {
  const { other, partner } = room.people;
  if (other === undefined) return notConfigured("other_user");
  if (isLeft) return notApplicable("target_has_left");
  if (hindrance !== undefined) return hindrance;
  // While the partner's server has a member, a join is its own decision and says nothing.
  if ((await partner?.isJoined(room.id)) === true) return notApplicable("server_is_member");
  visit.isAsked = true;
  const answer = await other.join(room.id, [String(server)]);
  if (answer.status !== 200) return homeserverRefusal(answer) ?? homeserverUnclear(answer);
  const observed = await room.within(() => room.isJoined(other));
  const reason = observed ? "joined_and_observed" : "joined";
  return { verdict: "open", layer: "homeserver", status: 200, reason } as const;
}

/** Whether the user who came in, or may have, is out again: of one who was let in, its homeserver's refusal does not say so. */
async function leaveAgain(room: ProbedRoom, { verdict }: EvidenceItem): Promise<boolean> {
  const { other } = room.people;
  if (other === undefined) return true;
  let isRefused = false;
  const leave = async () => {
    const { status } = await other.leave(room.id);
    isRefused = status !== 200 && status < 429;
    return status === 200 || (isRefused && (verdict !== "open" || (await room.isJoined(other)) === false));
  };
  const isOut = () => leave().catch(() => false);
  return room.within(isOut, () => isRefused, LEAVE_TIMEOUT_MS);
}

/** A server that has not received what it is asked for would answer as one that refuses. */
async function lackOf(room: ProbedRoom, { probes }: Door, eventId: string): Promise<ProbeResult | undefined> {
  const { witness } = room.people;
  if (probes === AT_TARGET || witness === undefined) return undefined;
  const hasIt = await room.within(() => witness.sees(room.id, eventId));
  return hasIt ? undefined : notApplicable("witness_lacks_event");
}
