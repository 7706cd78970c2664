import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DrawbridgeError } from "../../../../../src/domain/errors.ts";
import type { EventId, RoomId, UserId } from "../../../../../src/domain/identifiers.ts";
import {
  enforceAtHome,
  enforceAtRetained,
  mustBeProven,
} from "../../../../../src/federation/planes/rooms/acl-enforcement.ts";
import type { RoomState } from "../../../../../src/federation/planes/rooms/room-state.ts";
import type { RoomsSession } from "../../../../../src/federation/planes/rooms/session.ts";

const STATE = {
  roomId: "!room" as RoomId,
  members: new Map(),
  acl: { content: { allow: ["a.test", "d.test"], allow_ip_literals: false }, eventId: "$acl" as EventId },
} as unknown as RoomState;

/** A homeserver in which each of these rooms is stale until it was refreshed so many times. */
function session(stale: Readonly<Record<string, number>>, differing?: () => never) {
  const left = new Map(Object.entries(stale));
  let now = 0;
  const counts = { requests: 0, largest: 0, servers: new Set<string>() };
  const asked = {
    note: () => undefined,
    intent: { own: "a.test", allow: ["a.test"], closing: [{ serverName: "b.test:8448" }] },
    clock: {
      now: () => now,
      sleep: async (ms: number) => {
        now += ms;
      },
    },
    home: {
      differing: async (rooms: readonly string[], servers: readonly string[]) => {
        differing?.();
        counts.requests += 1;
        counts.largest = Math.max(counts.largest, rooms.length);
        for (const server of servers) counts.servers.add(server);
        return rooms.filter((room) => (left.get(room) ?? 0) > 0);
      },
      refresh: async (room: string) => left.set(room, (left.get(room) ?? 0) - 1),
    },
  } as unknown as RoomsSession;
  return { asked, counts };
}

const ROOMS = Array.from({ length: 1_200 }, (_, number) => `!${number}` as RoomId);

describe("ACL enforcement", () => {
  it("stale entries of the enforcing cache are noticed, repaired and queried again [PLN-2]", async () => {
    const { asked, counts } = session({ "!3": 1, "!1100": 2 });
    assert.deepEqual(await enforceAtHome(asked, ROOMS), { gaps: [], isRepaired: true });
    assert.deepEqual(
      [counts.requests, counts.largest],
      [5, 500],
      "three for all rooms, one after each refresh",
    );
    assert.deepEqual([...counts.servers].sort(), ["a.test", "b.test", "b.test:8448"]);
  });

  it("a room that stays stale is named, and the others are not [PLN-2]", async () => {
    const gaps = [{ room: "!3", server: "a.test", reason: "stale_at_home" }];
    const both = session({ "!3": 1e9, "!4": 1 });
    assert.deepEqual(await enforceAtHome(both.asked, ROOMS), { gaps, isRepaired: true });
    const one = session({ "!3": 1e9 });
    assert.deepEqual(await enforceAtHome(one.asked, ROOMS), { gaps, isRepaired: false });
  });

  it("where the border module does not say what is enforced, every room is unproven [PLN-2]", async () => {
    for (const code of ["homeserver_unavailable", "homeserver_refused"] as const) {
      const { asked } = session({}, () => {
        throw new DrawbridgeError(code, "no answer", { hint: "" });
      });
      const { gaps } = await enforceAtHome(asked, ROOMS.slice(0, 2));
      assert.deepEqual(
        gaps.map(({ room, reason }) => [room, reason]),
        [
          ["!0", "unproven_at_home"],
          ["!1", "unproven_at_home"],
        ],
      );
    }
  });

  it("other servers must show an ACL that denies a partner or was set now, and no other [PLN-2]", () => {
    const closing = [{ serverName: "b.test" }];
    assert.equal(mustBeProven(STATE, closing, false), true);
    // The partner's own room, whose ACL is not ours to set: nobody is waited for there.
    const theirs = { acl: { content: { allow: ["a.test", "b.test"] }, eventId: "$theirs" as EventId } };
    assert.equal(mustBeProven(theirs, closing, false), false);
    assert.equal(mustBeProven(theirs, closing, true), true);
    assert.equal(mustBeProven({ acl: undefined }, closing, true), false);
  });

  const CAROL = "@carol:c.test" as UserId;

  /** Rooms with a user of c.test, and what that server shows: `shows(room number, now)`. */
  function retained(count: number, shows: (room: number, now: number) => boolean) {
    let now = 0;
    const counts = { questions: 0, read: 0 };
    const rooms = Array.from({ length: count }, (_, n) => ({
      ...STATE,
      roomId: `!${n}` as RoomId,
      members: new Map([[CAROL, { membership: "join" }]]),
      acl: { ...STATE.acl, eventId: `$${n}` },
    }));
    const withServer = {
      intent: { own: "a.test", allow: ["a.test"], closing: [], retained: ["c.test"] },
      clock: {
        now: () => now,
        sleep: async (ms: number) => {
          now += ms;
        },
      },
      signed: {
        request: async (_: string, path: string) => {
          counts.questions += 1;
          now += 2;
          return { status: shows(Number(decodeURIComponent(path).split("$")[1]), now) ? 200 : 404 };
        },
      },
      operator: {
        // Nobody is left who could send it again; that it is tried is what counts.
        roomState: async () => {
          counts.read += 1;
          return undefined;
        },
      },
    } as unknown as RoomsSession;
    return { rooms: rooms as unknown as RoomState[], withServer, counts };
  }

  it("a retained server that is behind is waited for, with few requests and no ACL sent again [PLN-2]", async () => {
    const { rooms, withServer, counts } = retained(100, (room, now) => now >= room * 100);
    assert.deepEqual(await enforceAtRetained(withServer, rooms), []);
    assert.equal(counts.read, 0);
    assert.ok(counts.questions < 1_000, String(counts.questions));
  });

  it("rooms that a retained server never shows are named, and no other room waits for them [PLN-2]", async () => {
    const { rooms, withServer, counts } = retained(100, (room) => room >= 20);
    const gaps = await enforceAtRetained(withServer, rooms);
    assert.deepEqual(
      gaps.map(({ room }) => room).sort(),
      rooms
        .slice(0, 20)
        .map(({ roomId }) => roomId)
        .sort(),
    );
    assert.ok(gaps.every(({ reason }) => reason === "unproven_at_retained"));
    assert.equal(counts.read, 20, "the ACL of each was to be sent again, once");
  });

  const CONTENT = {
    allow: ["a.test", "c.test"],
    deny: ["b.test"],
    allow_ip_literals: false,
    "test.moderators.reason": "agreed in spring",
  };

  /** Rooms that c.test never shows, and whose ACL a user of ours can send again; `stale`: those that home does not enforce. */
  function sendingAgain(count: number, stale: (rooms: readonly string[]) => readonly string[]) {
    const { rooms, withServer } = retained(count, () => false);
    const OPERATOR = "@operator:a.test";
    const event = (type: string, state_key: string, eventContent: object) => ({
      ...{ type, state_key, sender: OPERATOR, event_id: `$${type}${state_key}`, origin_server_ts: 0 },
      content: eventContent,
    });
    const sent: unknown[] = [];
    const sending = {
      ...withServer,
      note: () => undefined,
      operatorId: OPERATOR,
      intent: { ...withServer.intent, allow: CONTENT.allow },
      operator: {
        roomState: async () => [
          event("m.room.create", "", { room_version: "12" }),
          event("m.room.member", OPERATOR, { membership: "join" }),
          event("m.room.member", CAROL, { membership: "join" }),
          event("m.room.server_acl", "", CONTENT),
        ],
      },
      tokens: {
        unusable: new Set(),
        as: async () => ({
          putState: async (...[, , , put]: unknown[]) => {
            sent.push(put);
            return "$again";
          },
        }),
      },
      home: { differing: async (asked: readonly string[]) => stale(asked), refresh: async () => undefined },
    } as unknown as RoomsSession;
    return { rooms, sending, sent };
  }

  it("an ACL that is sent again keeps what others wrote into it [PLN-2]", async () => {
    const { rooms, sending, sent } = sendingAgain(1, () => []);
    await enforceAtRetained(sending, rooms);
    assert.deepEqual(sent, [{ ...CONTENT, allow: ["c.test", "a.test"] }]);
  });

  it("a room whose ACL was sent again is enforced at home only when home says so after that [PLN-2]", async () => {
    const { rooms, sending } = sendingAgain(2, (asked) => asked.filter((room) => room === "!1"));
    const gaps = await enforceAtRetained(sending, rooms);
    assert.deepEqual(
      gaps.map(({ room, server, reason }) => [room, server, reason]),
      [
        ["!0", "c.test", "unproven_at_retained"],
        ["!1", "c.test", "unproven_at_retained"],
        ["!1", "a.test", "stale_at_home"],
      ],
    );
  });

  it("a hundred rooms whose ACL was sent again are waited for no longer than one [PLN-2]", async () => {
    const { rooms, sending, sent } = sendingAgain(100, (asked) => asked);
    assert.equal((await enforceAtRetained(sending, rooms)).length, 200);
    assert.equal(sent.length, 100);
    assert.ok(sending.clock.now() < 65_000, String(sending.clock.now()));
  });
});
