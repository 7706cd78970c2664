// The seed of a lab: the people at its homeservers with their credentials, and the rooms that A and B share.
// Invariant: passwords and access tokens are in one file that this user alone can read.
import * as z from "zod";
import { parseUserId } from "../../src/domain/identifiers.ts";
import { homeserverEndpoints } from "../endpoints.ts";
import { readJson } from "../files.ts";
import { type Lab, SOURCES, type Sources } from "../lab.ts";
import { MatrixUser } from "../matrix-user.ts";
import { COMPLETE_ORGANISATIONS, ORGANISATION_NAMES, type OrganisationName } from "../organisations.ts";

export const SeededUser = z.strictObject({
  userId: z.string(),
  password: z.string(),
  accessToken: z.string(),
  /** Whether it may use the homeserver's admin API. */
  admin: z.boolean(),
});
export type SeededUser = z.output<typeof SeededUser>;

export const SeededRoom = z.strictObject({
  roomId: z.string(),
  alias: z.string(),
  encrypted: z.boolean(),
  /** Whose shared room it is. */
  createdBy: z.enum(ORGANISATION_NAMES),
  /** The organisation that made it, where it stands in place of a room that was given up. */
  replacedBy: z.enum(COMPLETE_ORGANISATIONS).exactOptional(),
});
export type SeededRoom = z.output<typeof SeededRoom>;

const SeedFile = z.strictObject({
  users: z.strictObject({
    "org-a": z.array(SeededUser),
    "org-b": z.array(SeededUser),
    "org-c": z.array(SeededUser),
    /** Empty while there is no witness. */
    "org-d": z.array(SeededUser).default([]),
  }),
  rooms: z.array(SeededRoom),
});
export type Seed = z.output<typeof SeedFile>;

/** What was seeded so far; undefined before the first time. */
export function readSeed(lab: Lab): Seed | undefined {
  return readJson(SeedFile, lab.paths.seed);
}

/** The users of an organisation, in the order of `USERS`. */
export function peopleOf(
  lab: Lab,
  seed: Seed,
  organisation: OrganisationName,
  sources: Sources = SOURCES,
): MatrixUser[] {
  const { clientUrl } = homeserverEndpoints(lab, organisation);
  return seed.users[organisation].flatMap(({ userId, accessToken }) => {
    const parsed = parseUserId(userId);
    return parsed === undefined ? [] : [new MatrixUser(clientUrl, parsed, accessToken, sources)];
  });
}

/** The first user of an organisation, who asks the questions and makes the rooms. */
export function personOf(
  lab: Lab,
  seed: Seed,
  organisation: OrganisationName,
  sources: Sources = SOURCES,
): MatrixUser {
  const [person] = peopleOf(lab, seed, organisation, sources);
  if (person === undefined) throw new TypeError(`${organisation} has no user`);
  return person;
}

/** Every shared room exists twice. */
export const ROOM_FORMS = ["plain", "encrypted"] as const;
export type RoomForm = (typeof ROOM_FORMS)[number];

export function formOf(room: Pick<SeededRoom, "encrypted">): RoomForm {
  return room.encrypted ? "encrypted" : "plain";
}

/** The shared room of an organisation, in its plain form or its encrypted one. */
export function roomOf(
  seed: Seed,
  createdBy: OrganisationName,
  form: RoomForm = "plain",
): SeededRoom | undefined {
  return seed.rooms.find((room) => room.createdBy === createdBy && formOf(room) === form);
}

/** The same of a lab that has its rooms. */
export function requireRoom(seed: Seed, createdBy: OrganisationName, form?: RoomForm): SeededRoom {
  const room = roomOf(seed, createdBy, form);
  if (room === undefined) throw new TypeError(`${createdBy} has no room`);
  return room;
}
