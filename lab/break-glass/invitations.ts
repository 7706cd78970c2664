// The partner's people accept the invitations by which a restore lets them back: those that the other's rooms
// hold, once their own homeserver shows them.
import { z } from "zod";
import type { Clock, Random } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { parseRoomId, parseUserId, type RoomId, type UserId } from "../../src/domain/identifiers.ts";
import { homeserverEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { MatrixUser } from "../matrix-user.ts";
import type { CompleteOrganisation } from "../organisations.ts";
import { personOf, type Seed } from "../seed/seed.ts";

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
const POLL_MS = 300;
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
  for (const deadline = clock.now() + TIMEOUT_MS; open.length > 0; await clock.sleep(POLL_MS)) {
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
