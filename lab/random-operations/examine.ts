// What holds between two organisations after an operation, and that the stranger is denied on every plane by both.
import * as z from "zod";
import type { RoomId } from "../../src/domain/identifiers.ts";
import { loadFederationConfig } from "../../src/federation/config.ts";
import { borderStatus } from "../../src/federation/planes/border/runtime.ts";
import { isRemoved } from "../../src/federation/registry/partner.ts";
import { type Lab, pollFor } from "../lab.ts";
import { roomPath } from "../matrix-user.ts";
import { Operator } from "../observe/operator.ts";
import { COMPLETE_ORGANISATIONS, type CompleteOrganisation, partnerOf } from "../organisations.ts";
import { attemptEverything, isRefused, type Refusal } from "../proof/outsider-attempts.ts";
import { prove } from "../proof/proof.ts";
import { peopleOf, type Seed } from "../seed/seed-file.ts";
import { partnerEntry } from "../status/federation.ts";
import { isOpen, type Partnership } from "./operations.ts";
import { seedOf } from "./perform.ts";

/** A reconciler checks for drift several times within it, and corrects what it finds. */
const AGREED = { timeoutMs: 60_000, everyMs: 1_000 };

/**
 * Looks until everything is as promised, for as long as a reconciler may still correct it.
 * @returns what does not hold, as sentences
 */
export async function examine(lab: Lab, promised: Partnership): Promise<readonly string[]> {
  let wrong: readonly string[] = [];
  await pollFor(async () => {
    wrong = [
      ...(await entriesNotAs(lab, promised)),
      ...(await notEnforced(lab)),
      ...(isOpen(promised)
        ? (await prove(lab, seedOf(lab))).failures
        : [...(await strangersLetIn(lab)), ...(await notAsDeclared(lab, promised))]),
    ];
    return wrong.length === 0 ? true : undefined;
  }, AGREED);
  return wrong;
}

/** Whether each registry says what the operations have promised. */
async function entriesNotAs(lab: Lab, { removed, containedBy }: Partnership): Promise<string[]> {
  const found = await Promise.all(
    COMPLETE_ORGANISATIONS.map(async (at) => {
      const entry = await partnerEntry(lab, at);
      const isClosed = removed !== null;
      const wrong = [];
      if (isRemoved(entry) !== isClosed)
        wrong.push(`${at} ${isClosed ? "has not" : "has"} removed its partner`);
      // An emergency contains first, and a re-admission ends that.
      if (!isClosed && entry.contained !== containedBy.includes(at)) {
        wrong.push(`${at} ${entry.contained ? "contains" : "does not contain"} its partner`);
      }
      return wrong;
    }),
  );
  return found.flat();
}

/** The probes of those who have closed planes, which compare every plane with the registry. */
async function notAsDeclared(lab: Lab, { removed, containedBy }: Partnership): Promise<string[]> {
  const closing = removed === null ? containedBy : COMPLETE_ORGANISATIONS;
  const found = await Promise.all(
    closing.map(async (at) => {
      const operator = new Operator(lab, at);
      const words = ["federation", "probe", operator.counterparty, "--probe-config", operator.probeFile];
      const { code, output } = await operator.run(words);
      if (code === 0) return [];
      const { items, unproven } = Judgement.parse(output);
      const unclosable = await unclosableRooms(lab, at);
      const lines = items
        .filter(({ outcome }) => outcome === "otherwise" || outcome === "unclear")
        // The homeserver goes on giving out what was said in them.
        .filter(({ item }) => !unclosable.has(item.subject ?? ""))
        .map(
          ({ item, wanted }) =>
            `${item.probe} of ${item.subject} is ${item.verdict} (${item.reason}), not ${wanted}`,
        );
      lines.push(...unproven.map((plane) => `${plane} is not shown`));
      return lines.length === 0 ? [] : [`the probes at ${at}: ${lines.join("; ")}`];
    }),
  );
  return found.flat();
}

/**
 * Rooms that an organisation's people are in and that it cannot close, because the partner has made them; none where its
 * registry has such rooms replaced.
 */
async function unclosableRooms(lab: Lab, at: CompleteOrganisation): Promise<ReadonlySet<string>> {
  if ((await partnerEntry(lab, at)).rooms.whenUnclosable !== "list") return new Set();
  const found = await Promise.all(
    peopleOf(lab, seedOf(lab), at).map(async (user) => {
      const rooms = await user.joinedRooms();
      const creators = await Promise.all(
        rooms.map(async (room) => (await user.call("GET", creationOf(room)))["sender"]),
      );
      return rooms.filter((_room, index) =>
        String(creators[index]).endsWith(`:${lab.serverNames[partnerOf(at)]}`),
      );
    }),
  );
  return new Set(found.flat());
}

const creationOf = (room: RoomId) => `${roomPath(room, "state/m.room.create")}?format=event`;

const Judgement = z.object({
  unproven: z.array(z.string()),
  items: z.array(
    z.object({
      outcome: z.string(),
      wanted: z.string(),
      item: z.object({
        probe: z.string(),
        subject: z.string().nullable(),
        verdict: z.string(),
        reason: z.string().nullable(),
      }),
    }),
  ),
});

async function strangersLetIn(lab: Lab): Promise<string[]> {
  const refusals = await attemptEverything(lab, await seedWithRoomsOfNow(lab));
  return refusals
    .filter((refusal) => !isRefused(refusal) && !hasNoCard(refusal))
    .map(({ at, attempt, expected, received }) => `org-c at ${at}, ${attempt}: ${received}, not ${expected}`);
}

/** Where no partner is admitted no card is published, so that none can be forged either. */
function hasNoCard({ attempt, received }: Refusal): boolean {
  return attempt === "forged_card" && received === "no card";
}

/**
 * Shared rooms that were given up are no longer known: any room with an ACL that people are in takes their place. A room of
 * one server alone may have none.
 */
async function seedWithRoomsOfNow(lab: Lab): Promise<Seed> {
  const seed = seedOf(lab);
  const rooms = await Promise.all(
    seed.rooms.map(async (room) => {
      const at = COMPLETE_ORGANISATIONS.find((name) => name === room.createdBy);
      if (at === undefined) return room;
      const present = await roomsOf(lab, at);
      if (present.some((one) => one === room.roomId)) return room;
      const border = borderStatus(loadFederationConfig(lab.paths.organisation(at).federationConfig));
      for (const roomId of present) {
        const { state_event_id } = await border.enforcement(roomId, lab.serverNames["org-c"]);
        if (state_event_id !== null) return { ...room, roomId };
      }
      return room;
    }),
  );
  return { ...seed, rooms };
}

/** Every room that people of an organisation are in. */
async function roomsOf(lab: Lab, at: CompleteOrganisation): Promise<readonly RoomId[]> {
  const joined = await Promise.all(peopleOf(lab, seedOf(lab), at).map((user) => user.joinedRooms()));
  return [...new Set(joined.flat())].sort();
}

async function isOfOneServer(lab: Lab, at: CompleteOrganisation, room: RoomId): Promise<boolean> {
  const all = await Promise.all(
    peopleOf(lab, seedOf(lab), at).map(async (user) =>
      (await user.joinedRooms()).includes(room) ? user.members(room) : [],
    ),
  );
  const members = all.flat();
  return members.length > 0 && members.every((user) => user.endsWith(`:${lab.serverNames[at]}`));
}

/** Rooms in which a homeserver lets the stranger in, or enforces another ACL than the room's state has. */
export async function notEnforced(lab: Lab): Promise<string[]> {
  const found = await Promise.all(
    COMPLETE_ORGANISATIONS.map(async (at) => {
      const border = borderStatus(loadFederationConfig(lab.paths.organisation(at).federationConfig));
      const rooms = await roomsOf(lab, at);
      const answers = await Promise.all(
        rooms.map(async (room) => {
          const { allowed, enforces_state, state_event_id } = await border.enforcement(
            room,
            lab.serverNames["org-c"],
          );
          // A room of one server alone needs no ACL: nobody outside knows it, and nobody joins without an invitation.
          const isPrivate = state_event_id === null && (await isOfOneServer(lab, at, room));
          return { room, allowed: allowed && !isPrivate, enforces_state };
        }),
      );
      const wrong = answers.filter(({ allowed, enforces_state }) => allowed || !enforces_state);
      if (rooms.length === 0) return [`people of ${at} are in no room`];
      return wrong.map((one) => `${at} does not enforce the ACL against org-c: ${JSON.stringify(one)}`);
    }),
  );
  return found.flat();
}
