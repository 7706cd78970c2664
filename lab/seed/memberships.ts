// How people and ghosts come into rooms: a guest organisation's ghost is brought in, a room that was replaced is
// found again, and the invitations that come with a restore are accepted.
// Invariants: a ghost counts as brought in once the guest's own homeserver shows it; a replacement is found by the
// predecessor that it names, which only its maker could write.
import * as z from "zod";
import type { Clock, Random } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { parseRoomId, parseUserId, type RoomId, type UserId } from "../../src/domain/identifiers.ts";
import { type Lab, pollFor, SOURCES } from "../lab.ts";
import { type MatrixUser, roomPath } from "../matrix-user.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import { peopleOf, personOf, type Seed } from "./seed-file.ts";

const SHOWN = { timeoutMs: 90_000, everyMs: 500 };
/** An invitation that has not arrived by then is made again. */
const INVITE_AGAIN_MS = 10_000;
/** While its ghosts come back, the partner's homeserver resolves the room's old state with the new. */
const ACCEPTED = { timeoutMs: 90_000, everyMs: 300 };
/** In a quiet room a homeserver shows the old membership until the next event; after this long one is sent. */
const QUIET_MS = 8_000;

export interface HostAndGuest {
  /** The person who made the room. */
  readonly host: MatrixUser;
  /** A person of the ghost's organisation, who is in the room. */
  readonly guest: MatrixUser;
}

/**
 * Brings a guest organisation's ghost into a room, until the guest sees it invited or joined. The guest invites it;
 * where that is refused, as in a room that has replaced another, the host does.
 * @throws DrawbridgeError `homeserver_unavailable`; `program_failed` when it is not shown in time
 */
export async function bringGhost(
  room: RoomId,
  { host, guest }: HostAndGuest,
  ghost: UserId,
  clock: Clock = SOURCES.clock,
): Promise<void> {
  let inviteAt = clock.now();
  let membership = "";
  const shown = await pollFor(
    async () => {
      membership = await guest.membership(room, ghost);
      if (membership === "join" || membership === "invite") return true;
      if (clock.now() < inviteAt) return undefined;
      // Refused as well where the host shows the ghost already, and the guest's homeserver does not yet.
      if ((await guest.invite(room, ghost)).status !== 200) await host.invite(room, ghost);
      inviteAt = clock.now() + INVITE_AGAIN_MS;
      return undefined;
    },
    SHOWN,
    clock,
  );
  if (!shown) throw notIn(room, ghost, membership);
}

/**
 * Brings a ghost into a room, and waits until its bridge has joined it.
 * @throws DrawbridgeError `homeserver_unavailable`; `program_failed` when it has not joined in time
 */
export async function joinGhost(room: RoomId, people: HostAndGuest, ghost: UserId): Promise<void> {
  await bringGhost(room, people, ghost);
  const membership = () => people.guest.membership(room, ghost);
  const joined = await pollFor(async () => ((await membership()) === "join" ? true : undefined), ACCEPTED);
  if (!joined) throw notIn(room, ghost, await membership());
}

/** Somebody who did not come into a room, and what the homeserver answered instead. */
export function notIn(room: RoomId, user: string, found: string): DrawbridgeError {
  return new DrawbridgeError("program_failed", `${user} does not come into ${room}: ${found}`, {
    hint: "See ./task fed:status, and the bridge's log; then run the same task again.",
  });
}

/** The part of a replacement's moderator that is needed here. */
type Moderator = Pick<MatrixUser, "call" | "request" | "joinedRooms">;

const Creation = z.object({ predecessor: z.object({ room_id: z.string() }).optional() });

/**
 * The room that has replaced another, or the last one where that was replaced in turn; undefined when this person
 * is in none.
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`
 */
export async function replacementOf(room: string, member: Moderator): Promise<RoomId | undefined> {
  const next = new Map<string, RoomId>();
  for (const id of await member.joinedRooms()) {
    const { status, body } = await member.request("GET", roomPath(id, "state/m.room.create", ""));
    const predecessor = status === 200 ? Creation.safeParse(body).data?.predecessor?.room_id : undefined;
    if (predecessor !== undefined) next.set(predecessor, id);
  }
  let last = next.get(room);
  // A loop cannot come about: a room is made after the one that it names.
  for (let later = last; later !== undefined; later = next.get(later)) last = later;
  return last;
}

/**
 * Opens a replacement to whoever knows its address, as the room was that it replaces.
 * @param acl of a shared room
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`
 */
export async function openAsShared(
  room: RoomId,
  moderator: Moderator,
  acl: Readonly<Record<string, unknown>>,
): Promise<void> {
  const state = (type: string) => roomPath(room, `state/${type}`, "");
  const levels = await moderator.call("GET", state("m.room.power_levels"));
  await moderator.call("PUT", state("m.room.server_acl"), acl);
  await moderator.call("PUT", state("m.room.power_levels"), { ...levels, invite: 0 });
  await moderator.call("PUT", state("m.room.join_rules"), { join_rule: "public" });
}

export interface Invitation {
  readonly user: UserId;
  readonly room: RoomId;
}

/**
 * Every person of `partner` whom rooms of `from` have invited accepts; a ghost accepts by its bridge.
 * @returns the accepted invitations
 * @throws DrawbridgeError `homeserver_refused` when an invitation cannot be accepted in time
 */
export async function acceptInvitations(
  lab: Lab,
  seed: Seed,
  partner: CompleteOrganisation,
  from: CompleteOrganisation,
): Promise<readonly Invitation[]> {
  const { clock, random } = SOURCES;
  const host = personOf(lab, seed, from);
  const people = peopleOf(lab, seed, partner);
  let open = (await invitationsBy(host)).filter(({ user }) => people.some(({ userId }) => userId === user));
  let spokenAt = clock.now();
  const accepted: Invitation[] = [];
  const done = await pollFor(async () => {
    for (const person of people) {
      const own = open.filter(({ user }) => user === person.userId);
      const shown = own.length === 0 ? [] : await invitationsOf(person, random);
      for (const invitation of own.filter(({ room }) => shown.includes(room))) {
        const { status } = await person.join(invitation.room, [lab.serverNames[from]]);
        if (status === 200) accepted.push(invitation);
      }
    }
    open = open.filter((one) => !accepted.includes(one));
    if (open.length === 0) return true;
    if (clock.now() - spokenAt < QUIET_MS) return undefined;
    spokenAt = clock.now();
    for (const room of new Set(open.map((one) => one.room))) {
      await host.send(room, { msgtype: "m.notice", body: "You are invited again" });
    }
    return undefined;
  }, ACCEPTED);
  if (done) return accepted;
  const left = open.map(({ user, room }) => `${user} to ${room}`).join(", ");
  throw new DrawbridgeError("homeserver_refused", `invitations cannot be accepted: ${left}`, {
    hint: "Look at ./task fed:status, and at the homeservers' logs.",
  });
}

const Members = z.object({ chunk: z.array(z.object({ state_key: z.string() })) });
const Synced = z.object({
  rooms: z.object({ invite: z.record(z.string(), z.unknown()).default({}) }).prefault({}),
});

/** The open invitations to the rooms that a person is in, as its homeserver has them. */
async function invitationsBy(host: MatrixUser): Promise<Invitation[]> {
  const found = await Promise.all(
    (await host.joinedRooms()).map(async (room) => {
      const { chunk } = Members.parse(
        await host.call("GET", `${roomPath(room, "members")}?membership=invite`),
      );
      return chunk.flatMap(({ state_key }) => {
        const user = parseUserId(state_key);
        return user === undefined ? [] : [{ user, room }];
      });
    }),
  );
  return found.flat();
}

/** The rooms to which a person is invited, as its own homeserver shows it. */
async function invitationsOf(person: MatrixUser, random: Random): Promise<RoomId[]> {
  const filter = JSON.stringify({
    room: { timeline: { limit: 0 }, state: { types: [] }, ephemeral: { types: [] } },
    // Never the same twice: Synapse answers a repeated first sync out of its cache, for two minutes.
    presence: { types: [], not_types: [random.bytes(8).toString("hex")] },
    account_data: { types: [] },
  });
  const query = new URLSearchParams({ filter, timeout: "0", set_presence: "offline" });
  const { rooms } = Synced.parse(await person.call("GET", `/sync?${query}`));
  return Object.keys(rooms.invite)
    .map(parseRoomId)
    .filter((room) => room !== undefined);
}
