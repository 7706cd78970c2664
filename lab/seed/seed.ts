// What the lab puts into the homeservers: people, and the rooms that A and B share.
// Invariants: it can be run again at any time and then changes nothing that is there; passwords and access
// tokens stand in one file that this user alone can read.
import { z } from "zod";
import type { Clock, Random } from "../../src/domain/clock.ts";
import { parseUserId } from "../../src/domain/identifiers.ts";
import { PRIVATE, readIfPresent, writeWhole } from "../../src/runtime/write-file.ts";
import { homeserverEndpoints } from "../endpoints.ts";
import { readJson, writeJson } from "../files.ts";
import type { Lab } from "../lab.ts";
import { MatrixUser } from "../matrix-user.ts";
import {
  COMPLETE_ORGANISATIONS,
  isComplete,
  ORGANISATION_NAMES,
  type OrganisationName,
  WITNESS,
} from "../organisations.ts";
import type { Progress } from "../progress.ts";
import { seedUsers } from "./accounts.ts";
import { type Join, returnLines, seedRooms, waitForGhosts } from "./rooms.ts";

export const SeededUser = z.strictObject({
  userId: z.string(),
  password: z.string(),
  accessToken: z.string(),
  admin: z.boolean(),
});
export type SeededUser = z.output<typeof SeededUser>;

export const SeededRoom = z.strictObject({
  roomId: z.string(),
  alias: z.string(),
  encrypted: z.boolean(),
  /** Whose shared room it is. */
  createdBy: z.enum(ORGANISATION_NAMES),
  /** Who made it, where it stands in place of a room that was given up. */
  replacedBy: z.enum(COMPLETE_ORGANISATIONS).exactOptional(),
});
export type SeededRoom = z.output<typeof SeededRoom>;

export const SeedFile = z.strictObject({
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

export interface SeedSources {
  readonly clock: Clock;
  readonly random: Random;
}

/** What was seeded so far; undefined before the first time. */
export function readSeed(lab: Lab): Seed | undefined {
  return readJson(SeedFile, lab.paths.seed);
}

/** The person who asks: the first user of an organisation. */
export function personOf(
  lab: Lab,
  seed: Seed,
  organisation: OrganisationName,
  sources: SeedSources,
): MatrixUser {
  const [user] = seed.users[organisation];
  const userId = parseUserId(user?.userId);
  if (user === undefined || userId === undefined) throw new TypeError(`${organisation} has no user`);
  return new MatrixUser(homeserverEndpoints(lab, organisation).clientUrl, userId, user.accessToken, sources);
}

/** The room that an organisation's first user created, in its plain form or its encrypted one. */
export function roomOf(
  seed: Seed,
  createdBy: OrganisationName,
  form: RoomForm = "plain",
): SeededRoom | undefined {
  return seed.rooms.find((room) => room.createdBy === createdBy && formOf(room) === form);
}

/** Every shared room exists twice. */
export const ROOM_FORMS = ["plain", "encrypted"] as const;
export type RoomForm = (typeof ROOM_FORMS)[number];

export function formOf(room: Pick<SeededRoom, "encrypted">): RoomForm {
  return room.encrypted ? "encrypted" : "plain";
}

/**
 * Registers who is missing, and hands each organisation its users' tokens: federation control acts as the
 * operator, so it cannot start before. Only the homeservers must run.
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`
 */
export async function seedPeople(lab: Lab, sources: SeedSources, progress: Progress): Promise<void> {
  const before = readSeed(lab);
  progress.doing("registering people");
  const users = await seedUsers(lab, before?.users, sources);
  writeJson(lab.paths.seed, { users, rooms: before?.rooms ?? [] } satisfies Seed);
  for (const organisation of lab.organisations) handOverTokens(lab, organisation, users[organisation]);
  if (before === undefined) progress.done("people: alice, bob and operator at each homeserver");
}

function handOverTokens(lab: Lab, organisation: OrganisationName, users: readonly SeededUser[]): void {
  const paths = lab.paths.organisation(organisation);
  const keep = (file: string, token: string) => {
    if (readIfPresent(file)?.trim() !== token) writeWhole(file, `${token}\n`, PRIVATE);
  };
  for (const { userId, accessToken, admin } of users) {
    keep(paths.userToken(userId.slice(1, userId.indexOf(":"))), accessToken);
    if (admin && isComplete(organisation)) keep(paths.operatorToken, accessToken);
  }
}

/**
 * Makes the rooms that are missing, and waits until every ghost is in its rooms.
 * @throws DrawbridgeError `homeserver_refused`, `homeserver_unavailable`; `program_failed` when a bridge
 *   does not bring its ghosts
 */
export async function seed(lab: Lab, sources: SeedSources, progress: Progress): Promise<Seed> {
  const withUsers = readSeed(lab);
  if (withUsers === undefined) throw new TypeError("people come before rooms");
  progress.doing("opening the shared rooms");
  const joins: Join[] = [];
  const rooms = await seedRooms(lab, withUsers, { ...sources, onJoined: (join) => joins.push(join) });
  const complete: Seed = { users: withUsers.users, rooms };
  writeJson(lab.paths.seed, complete);
  await waitForGhosts(lab, complete, sources);
  for (const line of returnLines(withUsers.rooms, rooms, joins)) progress.done(line);
  if (withUsers.rooms.length < rooms.length) {
    const isWitnessed = rooms.some(({ createdBy }) => createdBy === WITNESS);
    const witnessed = isWitnessed ? "; the witness in both, and a third of its own" : "";
    progress.done(`two rooms shared by A and B, plain and encrypted, all ghosts in them${witnessed}`);
  }
  return complete;
}
