// The rooms that A and B share: one made by each, with both organisations' people and ghosts in it, in a plain and
// in an encrypted form. Where the witness runs, it is in all of them, and has rooms of its own with people of all three.
// Invariants: whoever knows the address may join, so that what keeps C out is federation policy alone; seeding again
// changes nothing that is there.
import { DrawbridgeError } from "../../src/domain/errors.ts";
import type { RoomId, UserId } from "../../src/domain/identifiers.ts";
import { agentsOf, ghostFor } from "../endpoints.ts";
import { writeJson } from "../files.ts";
import { type Lab, pollFor } from "../lab.ts";
import { aliasPath, type MatrixUser, roomPath } from "../matrix-user.ts";
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
import type { Progress } from "../progress.ts";
import { bringGhost, openAsShared, replacementOf } from "./memberships.ts";
import {
  personOf,
  ROOM_FORMS,
  type RoomForm,
  readSeed,
  roomOf,
  type Seed,
  type SeededRoom,
} from "./seed-file.ts";

const ALIAS_LOCALPARTS: Readonly<Record<RoomForm, string>> = {
  plain: "shared",
  encrypted: "shared-encrypted",
};
const MEGOLM = "m.megolm.v1.aes-sha2";
const JOIN = { timeoutMs: 30_000, everyMs: 100 };
const GHOSTS_JOIN = { timeoutMs: 60_000, everyMs: 100 };
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

/** Somebody who was not in a shared room and has joined it. */
export interface Join {
  readonly user: string;
  readonly room: Pick<SeededRoom, "roomId" | "alias">;
}

/**
 * Makes the rooms that are missing, and waits until every ghost is in its rooms.
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`; `program_failed` when a bridge
 *   does not bring its ghosts
 */
export async function seedRooms(lab: Lab, progress: Progress): Promise<Seed> {
  const before = readSeed(lab);
  if (before === undefined) throw new TypeError("people come before rooms");
  progress.doing("opening the shared rooms");
  const seeder = new RoomSeeder(lab, before);
  const rooms = (await Promise.all(ROOM_FORMS.map((form) => seeder.seed(form)))).flat();
  const seed: Seed = { users: before.users, rooms };
  writeJson(lab.paths.seed, seed);
  for (const room of rooms.filter(({ createdBy }) => createdBy !== WITNESS)) {
    for (const organisation of COMPLETE_ORGANISATIONS) await seeder.waitForGhosts(organisation, room);
  }
  for (const line of changedRoomLines(before.rooms, rooms, seeder.joins)) progress.done(line);
  if (before.rooms.length < rooms.length) {
    const isWitnessed = rooms.some(({ createdBy }) => createdBy === WITNESS);
    const witnessed = isWitnessed ? "; the witness in both, and a third of its own" : "";
    progress.done(`two rooms shared by A and B, plain and encrypted, all ghosts in them${witnessed}`);
  }
  return seed;
}

/** Lines for people: who came back into which room, and which rooms were opened again; none the first time. */
export function changedRoomLines(
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
  const anew = next.filter(({ replacedBy }) => replacedBy === undefined).map(({ alias }) => alias);
  return [
    ...[...aliases].map(([user, rooms]) => `${user} has accepted, and is back in ${[...rooms].join(", ")}`),
    ...next.flatMap(({ alias, roomId, replacedBy }) =>
      replacedBy === undefined
        ? []
        : [`${alias} now leads to ${roomId}, with which ${replacedBy} has replaced it`],
    ),
    ...(anew.length === 0 ? [] : [`opened again, because the old room was given up: ${anew.join(", ")}`]),
  ];
}

class RoomSeeder {
  readonly joins: Join[] = [];
  readonly #lab: Lab;
  readonly #seed: Seed;

  constructor(lab: Lab, seed: Seed) {
    this.#lab = lab;
    this.#seed = seed;
  }

  async seed(form: RoomForm): Promise<SeededRoom[]> {
    const roomBy = async (organisation: OrganisationName) =>
      roomOf(this.#seed, organisation, form) ?? (await this.#openRoom(organisation, form));
    const shared = await Promise.all(
      COMPLETE_ORGANISATIONS.map(async (organisation) => {
        const room = await roomBy(organisation);
        if (await this.#joinPartner(room.replacedBy ?? organisation, room)) return room;
        // The partner's operator has replaced and blocked the room, as a containment does.
        await this.#giveUpAlias(room);
        const replacement = await this.#takeReplacement(room);
        if (replacement !== undefined) return replacement;
        const next = await this.#openRoom(organisation, form);
        await this.#joinPartner(organisation, next);
        return next;
      }),
    );
    if (!this.#lab.organisations.includes(WITNESS)) return shared;
    for (const room of shared) await this.#joinPerson(WITNESS, room);
    const witnessed = await roomBy(WITNESS);
    for (const name of COMPLETE_ORGANISATIONS) await this.#joinPerson(name, witnessed);
    return [...shared, witnessed];
  }

  /** Until an organisation's ghosts, which their bridge joins, are in a room as its own homeserver sees it. */
  async waitForGhosts(organisation: CompleteOrganisation, room: SeededRoom): Promise<void> {
    const viewer = this.#person(organisation);
    let missing: UserId[] = [];
    const joined = await pollFor(async () => {
      const members = await viewer.members(room.roomId as RoomId);
      missing = this.#ghosts(organisation).filter((ghost) => !members.includes(ghost));
      return missing.length === 0 ? true : undefined;
    }, GHOSTS_JOIN);
    if (joined) return;
    throw new DrawbridgeError("program_failed", `${missing.join(", ")} did not join ${room.alias}`, {
      hint: `Look at the bridge's log: ./task fed:logs ${organisation} bridge.`,
    });
  }

  #person(organisation: OrganisationName): MatrixUser {
    return personOf(this.#lab, this.#seed, organisation);
  }

  #ghosts(organisation: CompleteOrganisation): UserId[] {
    return agentsOf(organisation).map(({ publisher }) => ghostFor(this.#lab, organisation, publisher));
  }

  async #openRoom(organisation: OrganisationName, form: RoomForm): Promise<SeededRoom> {
    const creator = this.#person(organisation);
    const alias = sharedAlias(this.#lab, organisation, form);
    const encrypted = form === "encrypted";
    // A run that was interrupted may have made the room and not recorded it.
    const known = await creator.roomAt(alias);
    const title = isComplete(organisation) ? TRAITS[organisation].title : "The witness";
    const roomId =
      known ??
      (await creator.createRoom({
        preset: "public_chat",
        visibility: "private",
        room_alias_name: ALIAS_LOCALPARTS[form],
        name: `${title} and partners${encrypted ? ", encrypted" : ""}`,
        topic: "Mention an agent to ask it.",
        invite: isComplete(organisation) ? this.#ghosts(organisation) : [],
        power_level_content_override: { invite: 0 },
        initial_state: [
          { type: "m.room.server_acl", state_key: "", content: sharedRoomAcl(this.#lab) },
          ...(encrypted
            ? [{ type: "m.room.encryption", state_key: "", content: { algorithm: MEGOLM } }]
            : []),
        ],
      }));
    return { roomId, alias, encrypted, createdBy: organisation };
  }

  /** Takes a room's address away from it, for the next one. */
  async #giveUpAlias(room: SeededRoom): Promise<void> {
    const creator = this.#person(room.createdBy);
    // The address may be gone with a room that was replaced before.
    if ((await creator.request("GET", aliasPath(room.alias))).status !== 404) {
      await creator.call("DELETE", aliasPath(room.alias));
    }
  }

  /**
   * The room by which the partner has replaced another becomes the shared room, under the same address.
   * @returns undefined when there is none
   */
  async #takeReplacement(room: SeededRoom): Promise<SeededRoom | undefined> {
    if (!isComplete(room.createdBy)) return undefined;
    // The organisation that made the room has not blocked it, so the other one has.
    const replacedBy = partnerOf(room.replacedBy ?? room.createdBy);
    const host = this.#person(replacedBy);
    const roomId = await replacementOf(room.roomId, host);
    if (roomId === undefined) return undefined;
    await openAsShared(roomId, host, sharedRoomAcl(this.#lab));
    const replacement: SeededRoom = { ...room, roomId, replacedBy };
    if (!(await this.#joinPartner(replacedBy, replacement))) return undefined;
    await this.#person(room.createdBy).call("PUT", aliasPath(room.alias), { room_id: roomId });
    return replacement;
  }

  /**
   * The partner's person joins over federation, and the ghosts of its own organisation are invited.
   * @param organisation the one that has made the room
   * @returns false when the partner's homeserver blocks the room
   */
  async #joinPartner(organisation: CompleteOrganisation, room: SeededRoom): Promise<boolean> {
    // An event that is sent while a server is joining reaches that server only with the next one.
    const host = this.#person(organisation);
    for (const ghost of this.#ghosts(organisation)) {
      const membership = await host.membership(room.roomId, ghost);
      if (membership === "join" || membership === "invite") continue;
      await host.call("POST", roomPath(room.roomId, "invite"), { user_id: ghost });
    }
    await this.waitForGhosts(organisation, room);
    const partner = partnerOf(organisation);
    const guest = await this.#joinPerson(partner, room);
    if (guest === undefined) return false;
    for (const ghost of this.#ghosts(partner))
      await bringGhost(room.roomId as RoomId, { host, guest }, ghost);
    return true;
  }

  /**
   * An organisation's person joins a room over federation, and has its whole state then.
   * @returns undefined when its homeserver blocks the room
   */
  async #joinPerson(organisation: OrganisationName, room: SeededRoom): Promise<MatrixUser | undefined> {
    const person = this.#person(organisation);
    let refusal = "";
    const found = await pollFor(async () => {
      // Joining again would be another event in the room each time.
      if ((await person.membership(room.roomId)) === "join") return "joined";
      const host = room.replacedBy ?? room.createdBy;
      const { status, body } = await person.join(room.roomId, [this.#lab.serverNames[host]]);
      if (status === 200) {
        // The witness is new in rooms that are there already.
        if (organisation !== WITNESS) this.joins.push({ user: person.userId, room });
        return "joined";
      }
      if (status === 403 && BLOCKED.test(String(body["error"]))) return "blocked";
      // A room that has replaced another, as a removal leaves it behind, is open to invited people alone.
      if (status === 403) await this.#person(host).invite(room.roomId, person.userId);
      refusal = `${status} ${String(body["errcode"])}`;
      return undefined;
    }, JOIN);
    if (found === undefined) {
      throw new DrawbridgeError(
        "homeserver_refused",
        `${person.userId} cannot join ${room.alias}: ${refusal}`,
        { hint: "Look at ./task fed:status: is a link cut, or a homeserver down?" },
      );
    }
    if (found === "blocked") return undefined;
    // Until the homeserver has the room's whole state, nobody else of it can join.
    await person.members(room.roomId as RoomId);
    return person;
  }
}
