// Probes inside a room that both share: what crosses, can the partner's people come in, is its server given history?
// Invariant: who joins leaves again once history was asked for, which members alone are given, or is named.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { crossRoom } from "./event-delivery.ts";
import type { PartnerServer } from "./partner-server.ts";
import { NO_WITNESS, type ProbedRoom } from "./probed-room.ts";
import {
  homeserverRefusal,
  homeserverUnclear,
  notApplicable,
  notConfigured,
  type OutsideProbe,
  type ProbeResult,
  unreachable,
} from "./read-answers.ts";

/** Whose copy of the room is asked: the target's, or the third server's. */
interface Door {
  /** Absent without a witness, which is a hindrance. */
  readonly server: string | undefined;
  readonly hindrance: ProbeResult | undefined;
  readonly probes: Readonly<Record<"makeJoin" | "join" | "event" | "backfill", OutsideProbe>>;
}

interface Circumstances {
  readonly isLeft: boolean;
  readonly eventId: string | undefined;
}

const LEAVE_TIMEOUT_MS = 60_000;

const AT_TARGET: Door["probes"] = {
  makeJoin: "make_join",
  join: "remote_join",
  event: "event_at_target",
  backfill: "backfill_at_target",
};
const AT_WITNESS: Door["probes"] = {
  makeJoin: "make_join_at_witness",
  join: "remote_join_via_witness",
  event: "event_at_witness",
  backfill: "backfill_at_witness",
};

export async function probeRoom(room: ProbedRoom): Promise<EvidenceItem[]> {
  const { items, eventId } = await crossRoom(room);
  const { witness, targetName } = room.people;
  const isLeft = (await room.hasLeft().catch(() => undefined)) !== undefined;
  const target = { server: targetName, hindrance: undefined, probes: AT_TARGET };
  const third = { server: witness?.serverName, hindrance: await hindranceAt(room), probes: AT_WITNESS };
  const now = { isLeft, eventId };
  return [...items, ...(await through(room, target, now)), ...(await through(room, third, now))];
}

async function hindranceAt(room: ProbedRoom): Promise<ProbeResult | undefined> {
  const { witness } = room.people;
  if (witness === undefined) return notConfigured("witness");
  try {
    return (await witness.isJoined(room.id)) ? undefined : NO_WITNESS;
  } catch (error) {
    return unreachable(error);
  }
}

/** What one server lets happen: a join is asked for, made, used to ask for history, and taken back. */
async function through(room: ProbedRoom, door: Door, now: Circumstances): Promise<EvidenceItem[]> {
  const { makeJoin, join, event, backfill } = door.probes;
  const asked = await room.item(makeJoin, "partner", () => prepareJoin(room, door, now));
  const visit = { isAsked: false };
  const joined = await room.item(join, "partner", async () =>
    unlessNotAsked(await joinBy(room, door, now, visit), asked),
  );
  try {
    let looking: Promise<ProbeResult | undefined> | undefined;
    const history = (ask: (server: PartnerServer, at: string, eventId: string) => Promise<ProbeResult>) => {
      const { server } = room.people;
      if (server === undefined) return notConfigured("signing_key");
      if (door.hindrance !== undefined) return door.hindrance;
      const { eventId } = now;
      if (eventId === undefined) return notApplicable("no_fresh_event");
      looking ??= lackOf(room, door, eventId);
      return looking.then((lack) => lack ?? ask(server, String(door.server), eventId));
    };
    return [
      asked,
      joined,
      await room.item(event, "partner", () => history((server, at, id) => server.event(at, id))),
      await room.item(backfill, "partner", () =>
        history((server, at, id) => server.backfill(at, room.id, id)),
      ),
    ];
  } finally {
    if (visit.isAsked && joined.verdict !== "closed") await leaveAgain(room);
  }
}

function prepareJoin(
  room: ProbedRoom,
  { server, hindrance, probes }: Door,
  { isLeft }: Circumstances,
): Promise<ProbeResult> | ProbeResult {
  const origin = room.people.server;
  if (origin === undefined) return notConfigured("signing_key");
  // What others let happen in a room that the target is not in is no way to the target.
  if (isLeft && probes === AT_WITNESS) return notApplicable("target_has_left");
  return hindrance ?? origin.makeJoin(String(server), room.id, room.joiner());
}

async function joinBy(
  room: ProbedRoom,
  { server, hindrance }: Door,
  { isLeft }: Circumstances,
  visit: { isAsked: boolean },
): Promise<ProbeResult> {
  const { other, partner, observer } = room.people;
  if (other === undefined) return notConfigured("other_user");
  if (isLeft) return notApplicable("target_has_left");
  if (hindrance !== undefined) return hindrance;
  // While the partner's server has a member, a join is its own decision and says nothing.
  if ((await partner?.isJoined(room.id)) === true) return notApplicable("server_is_member");
  visit.isAsked = true;
  const answer = await other.join(room.id, [String(server)]);
  if (answer.status !== 200) return homeserverRefusal(answer) ?? homeserverUnclear(answer);
  const seen = await room.within(async () =>
    (await observer?.joinedFrom(room.id, other.serverName))?.includes(other.userId),
  );
  const reason = seen ? "joined_and_seen" : "joined";
  return { verdict: "open", layer: "homeserver", status: 200, reason };
}

/** Until it is done or refused. @throws DrawbridgeError `homeserver_unavailable` */
async function leaveAgain(room: ProbedRoom): Promise<void> {
  const { other } = room.people;
  const leave = async () => {
    const answer = await other?.leave(room.id).catch(() => undefined);
    return answer !== undefined && answer.status < 429;
  };
  if (await room.within(leave, () => false, LEAVE_TIMEOUT_MS)) return;
  throw new DrawbridgeError(
    "homeserver_unavailable",
    `${other?.userId} came into ${room.id} to probe it, and cannot leave`,
    { hint: "Have this user leave the room by hand once its homeserver answers; then probe again." },
  );
}

/** A server that has not received what it is asked for would answer as one that refuses. */
async function lackOf(room: ProbedRoom, { probes }: Door, eventId: string): Promise<ProbeResult | undefined> {
  const { witness } = room.people;
  if (probes === AT_TARGET || witness === undefined) return undefined;
  const hasIt = await room.within(() => witness.sees(room.id, eventId));
  return hasIt ? undefined : notApplicable("witness_lacks_event");
}

/** A homeserver that was refused repeatedly answers 502 itself: then the join that was asked for by hand counts. */
function unlessNotAsked(found: ProbeResult, asked: EvidenceItem): ProbeResult {
  const isOwnFailure = found.verdict === "unknown" && found.status !== null && found.status >= 500;
  return isOwnFailure && asked.verdict === "closed" ? notApplicable("own_server_did_not_ask") : found;
}
