// A replacement that the homeserver does not let be completed.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DrawbridgeError } from "../../../../../src/domain/errors.ts";
import type { EventId, RoomId, UserId } from "../../../../../src/domain/identifiers.ts";
import { replaceRoom } from "../../../../../src/federation/planes/rooms/replace-room.ts";
import { readRoomState } from "../../../../../src/federation/planes/rooms/room-state.ts";
import type { RoomsSession } from "../../../../../src/federation/planes/rooms/session.ts";
import {
  foldEntry,
  type JournalEntry,
  type RoomRecord,
} from "../../../../../src/federation/planes/rooms/undo-journal.ts";
import { ManualClock } from "../../../../support/manual-clock.ts";

const ROOM = "!room:a.test" as RoomId;
const NEXT = "!next:a.test" as RoomId;
const ALICE = "@alice:a.test" as UserId;

const CONCERNED = [
  { serverName: "b.test", name: "b", mode: "contained", after: "keep", unclosable: "replace" },
] as const;

describe("replaceRoom", () => {
  it("a new room has levels that a homeserver takes, whatever others wrote into the old one [PLN-2]", async () => {
    const low = "@low:a.test" as UserId;
    const event = (type: string, state_key: string, content: Record<string, unknown>) => ({
      ...{ type, state_key, sender: "@bob:b.test", event_id: `$${type}` as EventId, content },
    });
    const state = readRoomState(ROOM, [
      event("m.room.create", "", { room_version: "5" }),
      event("m.room.power_levels", "", { users: { [low]: -1e300, "@bob:b.test": 100 } }),
      event("m.room.member", ALICE, { membership: "join" }),
      event("m.room.member", low, { membership: "join" }),
    ]);
    let users: Readonly<Record<string, number>> = {};
    const createRoom = async (body: typeof asked) => {
      users = body.power_level_content_override.users;
    };
    const asked = { power_level_content_override: { users } };
    const session = {
      intent: { own: "a.test", allow: ["a.test"], retained: [], closing: [], ghosts: [] },
      operatorId: "@operator:a.test",
      operator: { isPerson: async () => true },
      journals: new Map([["b.test", { room: () => undefined, append: async () => undefined }]]),
      tokens: { as: async () => ({ localAliases: async () => [], createRoom }) },
    } as unknown as RoomsSession;
    await replaceRoom({ session, state, concerned: CONCERNED, rooms: [] });
    assert.deepEqual(users, { [low]: Number.MIN_SAFE_INTEGER, [ALICE]: 100 });
  });

  it("our users are invited as the room is made, where the homeserver lets nobody be invited once more [PLN-2]", async () => {
    const ghost = "@agent_docs-qa:a.test" as UserId;
    const event = (type: string, state_key: string, content: Record<string, unknown>) => ({
      ...{ type, state_key, sender: ALICE, event_id: `$${type}` as EventId, origin_server_ts: 0, content },
    });
    const member = (user: UserId, membership: string) => event("m.room.member", user, { membership });
    const state = readRoomState(ROOM, [
      event("m.room.create", "", { room_version: "10" }),
      ...[member(ALICE, "join"), member(ghost, "join")],
    ]);
    for (const takesInvitations of [true, false]) {
      const members = [member(ALICE, "join")];
      let isOver = false;
      const acting = {
        localAliases: async () => [],
        createRoom: async ({ invite = [] }: { invite?: readonly UserId[] }) => {
          if (!takesInvitations && invite.length > 0) throw new DrawbridgeError("homeserver_refused", "400");
          members.push(...invite.map((user) => member(user, "invite")));
          return NEXT;
        },
        invite: async () => "limited",
      };
      const session = {
        ...{ clock: new ManualClock(0), operatorId: "@operator:a.test" },
        intent: { own: "a.test", allow: ["a.test"], retained: [], closing: [], ghosts: [] },
        operator: {
          ...{ isPerson: async (user: UserId) => user === ALICE, deletion: async () => "complete" },
          roomState: async (room: RoomId) => (room === NEXT ? members : isOver ? undefined : []),
          deleteRoom: async () => {
            isOver = true;
          },
          isBlocked: async () => isOver,
        },
        journals: new Map([["b.test", { room: () => undefined, append: async () => undefined }]]),
        tokens: { as: async () => acting },
      } as unknown as RoomsSession;
      const ended = await replaceRoom({ session, state, concerned: CONCERNED, rooms: [] });
      const obstacle = takesInvitations ? undefined : "being_invited";
      assert.deepEqual(ended, { obstacle, replacement: NEXT });
    }
  });

  it("a pass ends although many are to be moved slowly, and the next ones go on with them [PLN-2]", async () => {
    const people = Array.from({ length: 30 }, (_, index) => `@p${index}:a.test` as UserId);
    const guests = Array.from({ length: 30 }, (_, index) => `@g${index}:c.test` as UserId);
    const ghosts = [{ server: "c.test", prefix: "g1" }];
    const closedSince = "@late:d.test" as UserId;
    const event = (type: string, state_key: string, content: Record<string, unknown>) => ({
      ...{ type, state_key, sender: ALICE, event_id: `$${type}` as EventId, origin_server_ts: 0, content },
    });
    const member = (user: UserId, membership: string) => event("m.room.member", user, { membership });
    const state = readRoomState(ROOM, [
      event("m.room.create", "", { room_version: "10" }),
      ...[ALICE, ...people, ...guests, closedSince].map((user) => member(user, "join")),
    ]);
    const clock = new ManualClock(0);
    const moved = new Map<UserId, string>([[ALICE, "join"]]);
    const invited: UserId[] = [];
    const acting = (user: UserId) => ({
      ...{ localAliases: async () => [], createRoom: async () => NEXT },
      invite: async (_room: RoomId, guest: UserId) => {
        await clock.advance(3_000);
        invited.push(guest);
        if (guest === guests[0]) return "refused";
        moved.set(guest, "invite");
        return "invited";
      },
      join: async () => {
        await clock.advance(5_000);
        return moved.set(user, "join") === moved;
      },
    });
    let isOver = false;
    let record: RoomRecord | undefined;
    const append = async (entry: JournalEntry) => {
      record = foldEntry(record, entry);
    };
    const session = {
      ...{ clock, operatorId: "@operator:a.test" },
      intent: { own: "a.test", allow: ["a.test"], retained: ["c.test", "d.test"], closing: [], ghosts },
      operator: {
        ...{ isPerson: async () => true, deletion: async () => "complete", isBlocked: async () => isOver },
        roomState: async (room: RoomId) => {
          if (room === NEXT) return [...moved].map(([user, how]) => member(user, how));
          return isOver ? undefined : [];
        },
        deleteRoom: async () => {
          isOver = true;
        },
      },
      journals: new Map([["b.test", { room: () => record, append }]]),
      tokens: { as: async (user: UserId) => acting(user) },
    } as unknown as RoomsSession;
    const ends: unknown[] = [];
    for (let passes = 0; passes < 3; passes++) {
      const begun = clock.now();
      ends.push((await replaceRoom({ session, state, concerned: CONCERNED, rooms: [] })).obstacle);
      assert.ok(clock.now() - begun < 150_000, `pass ${passes} took ${clock.now() - begun} ms`);
      Object.assign(session.intent, { retained: ["c.test"], closing: [{ serverName: "d.test" }] });
      assert.equal(isOver, passes === 2, "the old room is left only when everybody was moved");
    }
    assert.deepEqual(ends, ["being_invited", "being_invited", undefined]);
    assert.equal(new Set(invited).size, invited.length, "nobody is invited twice");
    const isGhost = (user: UserId) => user.startsWith("@g1");
    const lastOfPeople = invited.findLastIndex((user) => !isGhost(user));
    assert.ok(lastOfPeople < invited.findIndex(isGhost), "people first, because ghosts join at once");
    assert.ok(!invited.includes(closedSince), "nor is anybody of a partner that is closed since");
    assert.deepEqual([record?.gone?.moved, record?.gone?.invited], [31, 29]);
  });

  it("a new room that could not be completed is named, so that it is closed and proved with the others [PLN-2]", async () => {
    const event = (type: string, state_key: string, content: Record<string, unknown>) => ({
      ...{ type, state_key, sender: ALICE, event_id: `$${type}` as EventId, origin_server_ts: 0, content },
    });
    const state = readRoomState(ROOM, [
      event("m.room.create", "", { room_version: "10" }),
      event("m.room.member", ALICE, { membership: "join" }),
    ]);
    const entries: JournalEntry[] = [];
    const append = async (entry: JournalEntry) => entries.push(entry);
    const session = {
      clock: new ManualClock(0),
      intent: { own: "a.test", allow: ["a.test"], retained: [], closing: [], ghosts: [] },
      operatorId: "@operator:a.test",
      operator: {
        isPerson: async () => true,
        roomState: async () => undefined,
        roomOfAlias: async () => {
          throw new DrawbridgeError("homeserver_refused", "no aliases today");
        },
      },
      journals: new Map([["b.test", { room: () => undefined, append }]]),
      tokens: {
        as: async () => ({ localAliases: async () => ["#one:a.test"], createRoom: async () => NEXT }),
      },
    } as unknown as RoomsSession;
    const ended = await replaceRoom({ session, state, concerned: CONCERNED, rooms: [] });
    assert.deepEqual(ended, { obstacle: "not_replaced", replacement: NEXT });
    assert.deepEqual(
      entries.map(({ act }) => act),
      ["replace", "replacement"],
    );
  });
});
