// Brings a guest organisation's ghost into a room. Invariants: the guest invites it, as an organisation does for
// its own; where that is refused the host does, because a room that has replaced another, as a removal leaves
// it behind, lets its moderators alone invite; it counts once the guest's own homeserver shows it.

import { z } from "zod";
import type { Clock, Random } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { parseRoomId, parseUserId, type RoomId, type UserId } from "../../src/domain/identifiers.ts";
import { homeserverEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { MatrixUser } from "../matrix-user.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import { personOf, type Seed } from "./seed.ts";

const SHOWN_WITHIN_MS = 90_000;
const POLL_MS = 500;
/** An invitation that has not arrived by then is made again. */
const INVITE_AGAIN_MS = 10_000;

export interface HostAndGuest {
  /** Who made the room. */
  readonly host: MatrixUser;
  /** A person of the ghost's organisation, who is in the room. */
  readonly guest: MatrixUser;
}

/**
 * Until the guest sees the ghost invited, or in the room.
 * @throws DrawbridgeError `homeserver_unavailable`; `program_failed` when it is not shown in time
 */
export async function bringGhost(
  room: RoomId,
  { host, guest }: HostAndGuest,
  ghost: UserId,
  clock: Clock,
): Promise<void> {
  const path = `/rooms/${encodeURIComponent(room)}`;
  const member = `${path}/state/m.room.member/${encodeURIComponent(ghost)}`;
  let inviteAt = clock.now();
  for (const deadline = clock.now() + SHOWN_WITHIN_MS; ; await clock.sleep(POLL_MS)) {
    const { status, body } = await guest.request("GET", member);
    if (status === 200 && (body["membership"] === "join" || body["membership"] === "invite")) return;
    if (clock.now() > deadline) throw notIn(room, ghost, String(body["membership"] ?? body["errcode"]));
    if (clock.now() < inviteAt) continue;
    const invited = await guest.request("POST", `${path}/invite`, { user_id: ghost });
    // Refused as well where the host has it there already, and the guest's homeserver does not show it yet.
    if (invited.status !== 200) await host.request("POST", `${path}/invite`, { user_id: ghost });
    inviteAt = clock.now() + INVITE_AGAIN_MS;
  }
}

/** Somebody who did not come into a room, and what the homeserver said instead. */
export function notIn(room: RoomId, user: string, found: string): DrawbridgeError {
  return new DrawbridgeError("program_failed", `${user} does not come into ${room}: ${found}`, {
    hint: "See ./task fed:status, and the bridge's log; then run the same task again.",
  });
}

// A room that an organisation has replaced, as a containment does to rooms of its partner's: what is in its place
// becomes the shared room, under the address that the partner has given up. Invariants: found by the predecessor
// that the new room names, which only who made it could write; opened as a shared room is, so that what keeps
// others out of it is federation policy alone.

/** Of the replacement's moderator, who has gone into it, what is needed here. */
type Member = Pick<MatrixUser, "call" | "request">;

const Creation = z.object({ predecessor: z.object({ room_id: z.string() }).optional() });

/**
 * The room that stands for another, or for what stood for it; undefined when this person is in none.
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`
 */
export async function replacementOf(room: string, member: Member): Promise<RoomId | undefined> {
  const { joined_rooms: joined } = await member.call("GET", "/joined_rooms");
  const next = new Map<string, RoomId>();
  for (const id of (Array.isArray(joined) ? joined : []).map(parseRoomId)) {
    if (id === undefined) continue;
    const { status, body } = await member.request("GET", stateOf(id, "m.room.create"));
    const predecessor = status === 200 ? Creation.safeParse(body).data?.predecessor?.room_id : undefined;
    if (predecessor !== undefined) next.set(predecessor, id);
  }
  let last = next.get(room);
  // A loop cannot come about: a room is made after the one that it names.
  for (let later = last; later !== undefined; later = next.get(later)) last = later;
  return last;
}

/**
 * Opens it to whoever knows the address, as the room was that it stands for.
 * @param acl of a shared room
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`
 */
export async function openAsShared(
  room: RoomId,
  moderator: Member,
  acl: Readonly<Record<string, unknown>>,
): Promise<void> {
  const levels = await moderator.call("GET", stateOf(room, "m.room.power_levels"));
  await moderator.call("PUT", stateOf(room, "m.room.server_acl"), acl);
  await moderator.call("PUT", stateOf(room, "m.room.power_levels"), { ...levels, invite: 0 });
  await moderator.call("PUT", stateOf(room, "m.room.join_rules"), { join_rule: "public" });
}

function stateOf(room: string, type: string): string {
  return `/rooms/${encodeURIComponent(room)}/state/${type}/`;
}

// The partner's people accept the invitations by which a restore lets them back: those that the other's rooms
// hold, once their own homeserver shows them.

export interface Accepted {
  readonly user: UserId;
  readonly room: RoomId;
}

interface Sources {
  readonly clock: Clock;
  readonly random: Random;
}

/** While its ghosts come back, the partner's homeserver resolves the room's old state with the new. */
const TIMEOUT_MS = 90_000;
const INVITATIONS_POLL_MS = 300;
/** In a quiet room it goes on showing the old one, until the next event: after this long somebody speaks. */
const QUIET_MS = 8_000;

/**
 * Every person of `partner` whom rooms of `from` have invited accepts; a ghost accepts by its bridge.
 * @throws DrawbridgeError `homeserver_refused` when an invitation cannot be accepted in time
 */
export async function acceptInvitations(
  lab: Lab,
  seed: Seed,
  partner: CompleteOrganisation,
  from: CompleteOrganisation,
  sources: Sources,
): Promise<readonly Accepted[]> {
  const { clock } = sources;
  const host = personOf(lab, seed, from, sources);
  const people = new Map(peopleOf(lab, seed, partner, sources).map((person) => [person.userId, person]));
  let open = (await invitationsBy(host)).filter(({ user }) => people.has(user));
  let spokenAt = clock.now();
  const accepted: Accepted[] = [];
  for (const deadline = clock.now() + TIMEOUT_MS; open.length > 0; await clock.sleep(INVITATIONS_POLL_MS)) {
    for (const user of new Set(open.map((one) => one.user))) {
      const person = people.get(user);
      const shown = person === undefined ? [] : await invitationsOf(person, sources.random);
      for (const one of open.filter((other) => other.user === user && shown.includes(other.room))) {
        if ((await person?.join(one.room, [lab.serverNames[from]]))?.status === 200) accepted.push(one);
      }
    }
    open = open.filter((one) => !accepted.includes(one));
    if (open.length > 0 && clock.now() > deadline) throw notAccepted(open);
    if (clock.now() - spokenAt < QUIET_MS) continue;
    spokenAt = clock.now();
    for (const room of new Set(open.map((one) => one.room))) {
      await host.send(room, { msgtype: "m.notice", body: "You are invited again" });
    }
  }
  return accepted;
}

function peopleOf(lab: Lab, seed: Seed, partner: CompleteOrganisation, sources: Sources): MatrixUser[] {
  const { clientUrl } = homeserverEndpoints(lab, partner);
  return seed.users[partner].flatMap(({ userId, accessToken }) => {
    const parsed = parseUserId(userId);
    return parsed === undefined ? [] : [new MatrixUser(clientUrl, parsed, accessToken, sources)];
  });
}

/** Who is invited to the rooms that a person is in, as its homeserver has it. */
async function invitationsBy(host: MatrixUser): Promise<Accepted[]> {
  const { joined_rooms: joined } = await host.call("GET", "/joined_rooms");
  const rooms = (Array.isArray(joined) ? joined : []).map(parseRoomId).filter((room) => room !== undefined);
  const found = await Promise.all(
    rooms.map(async (room) => {
      const path = `/rooms/${encodeURIComponent(room)}/members?membership=invite`;
      const { chunk } = Members.parse(await host.call("GET", path));
      return chunk.flatMap(({ state_key }) => {
        const user = parseUserId(state_key);
        return user === undefined ? [] : [{ user, room }];
      });
    }),
  );
  return found.flat();
}

/** The rooms to which a person is invited, as its own homeserver shows it. */
async function invitationsOf(person: MatrixUser, random: Random): Promise<string[]> {
  const filter = JSON.stringify({
    room: { timeline: { limit: 0 }, state: { types: [] }, ephemeral: { types: [] } },
    // Never the same twice: Synapse answers a first sync that it knows out of its cache, for two minutes.
    presence: { types: [], not_types: [random.bytes(8).toString("hex")] },
    account_data: { types: [] },
  });
  const query = new URLSearchParams({ filter, timeout: "0", set_presence: "offline" });
  return Object.keys(Synced.parse(await person.call("GET", `/sync?${query}`)).rooms.invite);
}

const Members = z.object({ chunk: z.array(z.object({ state_key: z.string() })) });
const Synced = z.object({
  rooms: z.object({ invite: z.record(z.string(), z.unknown()).default({}) }).prefault({}),
});

function notAccepted(open: readonly Accepted[]): DrawbridgeError {
  const left = open.map(({ user, room }) => `${user} to ${room}`).join(", ");
  return new DrawbridgeError("homeserver_refused", `invitations cannot be accepted: ${left}`, {
    hint: "Look at ./task fed:status, and at the homeservers' logs.",
  });
}
