// The rooms that A and B share: one made by each, with both organisations' people and ghosts in it. Where
// the witness runs, it is in both, and a third room, made by it, has people of all three.
// They are open to whoever knows the address, so that what keeps C out is federation policy alone.
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { parseRoomId, type RoomId, type UserId } from "../../src/domain/identifiers.ts";
import { agentsOf, ghostFor } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import type { MatrixUser } from "../matrix-user.ts";
import {
  ADMITTED_ORGANISATIONS,
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  hostOf,
  isComplete,
  type OrganisationName,
  partnerOf,
  TRAITS,
  WITNESS,
} from "../organisations.ts";
import { bringGhost, openAsShared, replacementOf } from "./memberships.ts";
import {
  personOf,
  ROOM_FORMS,
  type RoomForm,
  roomOf,
  type Seed,
  type SeededRoom,
  type SeedSources,
} from "./seed.ts";

const ALIAS_LOCALPARTS: Readonly<Record<RoomForm, string>> = {
  plain: "shared",
  encrypted: "shared-encrypted",
};
const MEGOLM = "m.megolm.v1.aes-sha2";
const JOIN_TIMEOUT_MS = 30_000;
const GHOSTS_TIMEOUT_MS = 60_000;
const POLL_MS = 100;
/** Synapse's words, once an administrator has had a room purged and blocked. */
const BLOCKED = /^This room has been blocked on this server/;

/** The address of the room that an organisation has made for its partners. */
export function sharedAlias(lab: Lab, organisation: OrganisationName, form: RoomForm = "plain"): string {
  return `#${ALIAS_LOCALPARTS[form]}:${lab.serverNames[organisation]}`;
}

/** Both forms of each name: enforcement strips the port, the check against locking oneself out does not. */
export function sharedRoomAcl(lab: Lab): Readonly<Record<string, unknown>> {
  return {
    allow: ADMITTED_ORGANISATIONS.flatMap((organisation) => [
      hostOf(organisation),
      lab.serverNames[organisation],
    ]),
    deny: [],
    allow_ip_literals: false,
  };
}

export interface RoomSources extends SeedSources {
  /** Told of each person who was not in a room and has joined it. */
  readonly onJoined: (join: Join) => void;
}

export async function seedRooms(lab: Lab, seed: Seed, sources: RoomSources): Promise<SeededRoom[]> {
  const forms = await Promise.all(ROOM_FORMS.map((form) => seedRoomsOf(form, lab, seed, sources)));
  return forms.flat();
}

async function seedRoomsOf(
  form: RoomForm,
  lab: Lab,
  seed: Seed,
  sources: RoomSources,
): Promise<SeededRoom[]> {
  const roomBy = async (organisation: OrganisationName) =>
    roomOf(seed, organisation, form) ?? (await openRoom(lab, seed, organisation, form, sources));
  const shared = await Promise.all(
    COMPLETE_ORGANISATIONS.map(async (organisation) => {
      const room = await roomBy(organisation);
      if (await joinPartner(lab, seed, room.replacedBy ?? organisation, room, sources)) return room;
      // The partner's operator has replaced it and will not have it back: a containment leaves that behind.
      await giveUpAlias(lab, seed, room, sources);
      const instead = await takeReplacement(lab, seed, room, sources);
      if (instead !== undefined) return instead;
      const next = await openRoom(lab, seed, organisation, form, sources);
      await joinPartner(lab, seed, organisation, next, sources);
      return next;
    }),
  );
  if (!lab.organisations.includes(WITNESS)) return shared;
  for (const room of shared) await joinPerson(lab, seed, WITNESS, room, sources);
  const witnessed = await roomBy(WITNESS);
  for (const name of COMPLETE_ORGANISATIONS) await joinPerson(lab, seed, name, witnessed, sources);
  return [...shared, witnessed];
}

/** Takes a room's address away from it, for the next one. */
async function giveUpAlias(lab: Lab, seed: Seed, room: SeededRoom, sources: SeedSources): Promise<void> {
  const creator = personOf(lab, seed, room.createdBy, sources);
  const address = `/directory/room/${encodeURIComponent(room.alias)}`;
  // It may be gone with a room that was replaced before.
  if ((await creator.request("GET", address)).status !== 404) await creator.call("DELETE", address);
}

/**
 * What the partner has put in its place becomes the shared room, under the same address.
 * @returns undefined when there is nothing in its place
 */
async function takeReplacement(
  lab: Lab,
  seed: Seed,
  room: SeededRoom,
  sources: RoomSources,
): Promise<SeededRoom | undefined> {
  if (!isComplete(room.createdBy)) return undefined;
  // Whoever has made the one that is given up has blocked nothing: the other one has.
  const replacedBy = partnerOf(room.replacedBy ?? room.createdBy);
  const host = personOf(lab, seed, replacedBy, sources);
  const roomId = await replacementOf(room.roomId, host);
  if (roomId === undefined) return undefined;
  await openAsShared(roomId, host, sharedRoomAcl(lab));
  const instead: SeededRoom = { ...room, roomId, replacedBy };
  if (!(await joinPartner(lab, seed, replacedBy, instead, sources))) return undefined;
  const address = `/directory/room/${encodeURIComponent(room.alias)}`;
  await personOf(lab, seed, room.createdBy, sources).call("PUT", address, { room_id: roomId });
  return instead;
}

async function openRoom(
  lab: Lab,
  seed: Seed,
  organisation: OrganisationName,
  form: RoomForm,
  sources: SeedSources,
): Promise<SeededRoom> {
  const creator = personOf(lab, seed, organisation, sources);
  const alias = sharedAlias(lab, organisation, form);
  const encrypted = form === "encrypted";
  const described = (roomId: RoomId): SeededRoom => ({ roomId, alias, encrypted, createdBy: organisation });
  // Made before, and the record of it lost: a run that was interrupted between the two.
  const found = await creator.request("GET", `/directory/room/${encodeURIComponent(alias)}`);
  const known = found.status === 200 ? parseRoomId(found.body["room_id"]) : undefined;
  if (known !== undefined) return described(known);
  const roomId = await creator.createRoom({
    preset: "public_chat",
    visibility: "private",
    room_alias_name: ALIAS_LOCALPARTS[form],
    name: `${isComplete(organisation) ? TRAITS[organisation].title : "The witness"} and partners${encrypted ? ", encrypted" : ""}`,
    topic: "Mention an agent to ask it.",
    invite: isComplete(organisation) ? ghostsOf(lab, organisation) : [],
    power_level_content_override: { invite: 0 },
    initial_state: [
      { type: "m.room.server_acl", state_key: "", content: sharedRoomAcl(lab) },
      ...(encrypted ? [{ type: "m.room.encryption", state_key: "", content: { algorithm: MEGOLM } }] : []),
    ],
  });
  return described(roomId);
}

function ghostsOf(lab: Lab, organisation: CompleteOrganisation): UserId[] {
  return agentsOf(organisation).map(({ publisher }) => ghostFor(lab, organisation, publisher));
}

/**
 * The partner's person joins over federation, and the ghosts of its own organisation are invited.
 * @param organisation who has made the room
 * @returns false when the partner's homeserver blocks the room
 */
async function joinPartner(
  lab: Lab,
  seed: Seed,
  organisation: CompleteOrganisation,
  room: SeededRoom,
  sources: RoomSources,
): Promise<boolean> {
  // What happens in a room while a server is joining reaches that server only with the next event.
  const host = personOf(lab, seed, organisation, sources);
  await inviteOwnGhosts(lab, organisation, host, room);
  await waitForGhostsOf(lab, seed, organisation, room, sources);
  const partner = partnerOf(organisation);
  const guest = await joinPerson(lab, seed, partner, room, sources);
  if (guest === undefined) return false;
  for (const ghost of ghostsOf(lab, partner)) {
    await bringGhost(room.roomId as RoomId, { host, guest }, ghost, sources.clock);
  }
  return true;
}

/**
 * An organisation's person joins a room over federation, and has its whole state then.
 * @returns undefined when its homeserver blocks the room
 */
async function joinPerson(
  lab: Lab,
  seed: Seed,
  organisation: OrganisationName,
  room: SeededRoom,
  sources: RoomSources,
): Promise<MatrixUser | undefined> {
  const { clock } = sources;
  const person = personOf(lab, seed, organisation, sources);
  const deadline = clock.now() + JOIN_TIMEOUT_MS;
  // Joining again would be another event in the room each time.
  while (!(await isMember(person, room))) {
    const answer = await person.join(room.roomId, [lab.serverNames[room.replacedBy ?? room.createdBy]]);
    if (answer.status === 200) {
      // The witness comes new into rooms that are there already.
      if (organisation !== WITNESS) sources.onJoined({ user: person.userId, room });
      break;
    }
    if (answer.status === 403 && BLOCKED.test(String(answer.body["error"]))) return undefined;
    if (answer.status === 403) {
      // A room that has replaced another, as a removal leaves it behind, is open to invited people alone.
      const host = personOf(lab, seed, room.replacedBy ?? room.createdBy, sources);
      const path = `/rooms/${encodeURIComponent(room.roomId)}/invite`;
      await host.request("POST", path, { user_id: person.userId });
    }
    if (clock.now() > deadline) {
      throw new DrawbridgeError(
        "homeserver_refused",
        `${person.userId} cannot join ${room.alias}: ${answer.status} ${String(answer.body["errcode"])}`,
        { hint: "Look at ./task fed:status: is a link cut, or a homeserver down?" },
      );
    }
    await clock.sleep(POLL_MS);
  }
  // Answered only when the homeserver has the room's whole state; until then nobody else of it can join.
  await person.members(room.roomId as RoomId);
  return person;
}

async function isMember(person: MatrixUser, room: SeededRoom): Promise<boolean> {
  const path = `/rooms/${encodeURIComponent(room.roomId)}/state/m.room.member/${encodeURIComponent(person.userId)}`;
  const answer = await person.request("GET", path);
  return answer.status === 200 && answer.body["membership"] === "join";
}

/** Into the room that they have made. */
async function inviteOwnGhosts(
  lab: Lab,
  organisation: CompleteOrganisation,
  inviter: MatrixUser,
  room: SeededRoom,
): Promise<void> {
  for (const ghost of ghostsOf(lab, organisation)) {
    const path = `/rooms/${encodeURIComponent(room.roomId)}`;
    const member = await inviter.request("GET", `${path}/state/m.room.member/${encodeURIComponent(ghost)}`);
    const membership = member.status === 200 ? member.body["membership"] : undefined;
    if (membership !== "join" && membership !== "invite") {
      await inviter.call("POST", `${path}/invite`, { user_id: ghost });
    }
  }
}

/** Ghosts join by themselves once their bridge has seen the invitation. */
export async function waitForGhosts(lab: Lab, seed: Seed, sources: SeedSources): Promise<void> {
  for (const room of seed.rooms.filter(({ createdBy }) => createdBy !== WITNESS)) {
    for (const organisation of COMPLETE_ORGANISATIONS) {
      await waitForGhostsOf(lab, seed, organisation, room, sources);
    }
  }
}

/** Until an organisation's ghosts are in a room, as its own homeserver sees it. */
async function waitForGhostsOf(
  lab: Lab,
  seed: Seed,
  organisation: CompleteOrganisation,
  room: SeededRoom,
  sources: SeedSources,
): Promise<void> {
  const { clock } = sources;
  const viewer = personOf(lab, seed, organisation, sources);
  const deadline = clock.now() + GHOSTS_TIMEOUT_MS;
  for (;;) {
    const members = await viewer.members(room.roomId as RoomId);
    const missing = ghostsOf(lab, organisation).filter((ghost) => !members.includes(ghost));
    if (missing.length === 0) return;
    if (clock.now() > deadline) throw ghostsMissing(missing, room, organisation);
    await clock.sleep(POLL_MS);
  }
}

function ghostsMissing(
  missing: readonly string[],
  room: SeededRoom,
  organisation: CompleteOrganisation,
): DrawbridgeError {
  return new DrawbridgeError("program_failed", `${missing.join(", ")} did not join ${room.alias}`, {
    hint: `Look at the bridge's log: ./task fed:logs ${organisation} bridge.`,
  });
}

// What was put right in rooms that the lab had before: a restore invites people again, and somebody has to accept.
// Pure.

/** Somebody who was not in a shared room, and is now. */
export interface Join {
  readonly user: string;
  readonly room: Pick<SeededRoom, "roomId" | "alias">;
}

/** Lines for people: who came back into which room, and which rooms were opened anew; none the first time. */
export function returnLines(
  before: readonly SeededRoom[],
  now: readonly SeededRoom[],
  joins: readonly Join[],
): readonly string[] {
  const isKnown = (room: Pick<SeededRoom, "roomId">) => before.some(({ roomId }) => roomId === room.roomId);
  const aliases = new Map<string, Set<string>>();
  for (const { user, room } of joins.filter((join) => isKnown(join.room))) {
    aliases.set(user, (aliases.get(user) ?? new Set()).add(room.alias));
  }
  const next = now.filter((room) => !isKnown(room) && before.some(({ alias }) => alias === room.alias));
  const anew = next.filter(({ replacedBy }) => replacedBy === undefined);
  return [
    ...[...aliases].map(([user, rooms]) => `${user} has accepted, and is back in ${[...rooms].join(", ")}`),
    ...next
      .filter(({ replacedBy }) => replacedBy !== undefined)
      .map(
        ({ alias, roomId, replacedBy }) =>
          `${alias} is ${roomId} now, by which ${replacedBy} has replaced it`,
      ),
    ...(anew.length === 0
      ? []
      : [`opened anew, as it was given up: ${anew.map(({ alias }) => alias).join(", ")}`]),
  ];
}
