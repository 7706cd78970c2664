import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DrawbridgeError } from "../../../../../src/domain/errors.ts";
import type { RoomId } from "../../../../../src/domain/identifiers.ts";
import { type DriftCursor, roomsDrift } from "../../../../../src/federation/planes/rooms/runtime.ts";
import type { RoomsSession } from "../../../../../src/federation/planes/rooms/session.ts";

const ALICE = "@alice:a.test";
const READ_MS = 100;

/** A homeserver with so many rooms of ours that are without an ACL, each of which takes its time to read. */
function session(count: number, stale: readonly string[] = []): RoomsSession {
  let now = 0;
  const event = (type: string, state_key: string, content: object) => ({
    type,
    state_key,
    sender: ALICE,
    event_id: `$${type}`,
    content,
  });
  const room = [
    event("m.room.create", "", { room_version: "11" }),
    event("m.room.join_rules", "", { join_rule: "public" }),
    event("m.room.member", ALICE, { membership: "join" }),
  ];
  return {
    intent: { own: "a.test", allow: ["a.test"], retained: [], closing: [] },
    operatorId: "@root:a.test",
    tokens: { unusable: new Set() },
    journals: new Map(),
    home: {
      differing: async (rooms: readonly string[]) => rooms.filter((room) => stale.includes(room)),
      rooms: async () => [],
    },
    clock: { now: () => now, sleep: async () => undefined },
    operator: {
      rooms: async () => Array.from({ length: count }, (_, n) => `!${n}:a.test`),
      roomState: async () => {
        now += READ_MS;
        return room;
      },
    },
  } as unknown as RoomsSession;
}

describe("roomsDrift", () => {
  it("a drift check ends in time, and the next one begins where it ended [PLN-2]", async () => {
    const homeserver = session(120);
    const cursor: DriftCursor = {};
    const compared = new Set<string>();
    for (const expected of [50, 50, 50]) {
      const found = await roomsDrift(homeserver, cursor);
      assert.ok(Math.abs(found.length - expected) <= 8, `${found.length} rooms in one look`);
      for (const { subject, kind } of found) {
        assert.equal(kind, "acl");
        compared.add(subject);
      }
    }
    assert.equal(compared.size, 120);
  });

  it("every drift check covers all rooms where there are few [PLN-2]", async () => {
    const homeserver = session(20);
    const cursor: DriftCursor = {};
    for (let passes = 0; passes < 3; passes++)
      assert.equal((await roomsDrift(homeserver, cursor)).length, 20);
  });

  it("each drift check covers the enforcement in every room, whichever plans it reaches [PLN-2]", async () => {
    const stale = ["!7:a.test", "!119:a.test"];
    const homeserver = session(120, stale);
    const cursor: DriftCursor = {};
    for (let checks = 0; checks < 3; checks++) {
      const found = await roomsDrift(homeserver, cursor);
      const enforcement = found.filter(({ kind }) => kind === "enforcement");
      assert.deepEqual(enforcement.map(({ subject }) => subject).sort(), [...stale].sort());
    }
  });

  it("a room that cannot be read hides no other's drift, and no drift is not claimed for it [PLN-2]", async () => {
    const homeserver = session(20);
    const { roomState } = homeserver.operator;
    const unread = (isUnread: (room: string) => boolean) => ({
      ...homeserver,
      operator: {
        ...homeserver.operator,
        operatorOf: async () => "@root:a.test",
        roomState: async (room: RoomId) => {
          if (isUnread(room)) throw new DrawbridgeError("homeserver_unavailable", "no answer");
          return roomState(room);
        },
      },
    });
    const one = unread((room) => room === "!7:a.test") as unknown as RoomsSession;
    assert.equal((await roomsDrift(one, {})).length, 19);
    const every = unread(() => true) as unknown as RoomsSession;
    await assert.rejects(roomsDrift(every, {}), { code: "homeserver_unavailable" });
  });

  it("a contained partner in a room of others, in which we have no power, is drift [PLN-2]", async () => {
    const carol = "@carol:c.test";
    const member = (user: string) => ["m.room.member", user, { membership: "join" }] as const;
    const room = [
      ["m.room.create", "", { room_version: "11" }] as const,
      ["m.room.join_rules", "", { join_rule: "public" }] as const,
      ["m.room.power_levels", "", { users: { [carol]: 100 } }] as const,
      ...[carol, ALICE, "@bob:b.test"].map(member),
    ].map(([type, state_key, content]) => ({ type, state_key, content, sender: carol, event_id: "$event" }));
    const partner = { serverName: "b.test", name: "b", mode: "contained", after: "keep", unclosable: "list" };
    const ours = session(1);
    const intent = { own: "a.test", allow: ["a.test", "c.test"], retained: ["c.test"], closing: [partner] };
    const operator = { ...ours.operator, destinationRooms: async () => [], roomState: async () => room };
    assert.deepEqual(await roomsDrift({ ...ours, intent, operator } as unknown as RoomsSession, {}), [
      { subject: "!0:a.test", kind: "out_of_reach", found: null },
    ]);
  });

  it("a drift check against another intent begins with the first room [PLN-2]", async () => {
    const homeserver = session(120);
    const cursor: DriftCursor = {};
    const first = await roomsDrift(homeserver, cursor);
    const other = { ...homeserver, intent: { ...homeserver.intent, allow: ["a.test", "c.test"] } };
    assert.equal((await roomsDrift(other, cursor))[0]?.subject, first[0]?.subject);
  });
});
