import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EventId, RoomId, UserId } from "../../../../../src/domain/identifiers.ts";
import { deniedByEnforcement, type FoundAcl } from "../../../../../src/federation/planes/rooms/acl.ts";
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
/** What stood there before: closing takes b.test out of it, opening brings d.test in. */
const CLOSING = { allow: ["a.test", "b.test", "d.test"] };
const OPENING = { allow: ["a.test"] };

/** A homeserver whose cache is stale until it was refreshed `refreshes` times. */
function session(refreshes: number, before: FoundAcl): RoomsSession {
  let left = refreshes;
  const denied = (server: string) =>
    deniedByEnforcement(left > 0 ? before : (STATE.acl?.content ?? {}), server);
  let now = 0;
  return {
    intent: { own: "a.test", retained: ["d.test"] },
    journals: new Map(before === CLOSING ? [["b.test", { room: () => undefined }]] : []),
    enforcementTimeoutMs: 1_000,
    clock: { now: () => (now += 10), sleep: async () => undefined },
    home: {
      enforcement: async (_: string, server: string) => ({
        allowed: !denied(server),
        cached: true,
        state_event_id: "$acl",
        enforces_state: denied(server) === deniedByEnforcement(STATE.acl?.content ?? {}, server),
      }),
      refresh: async () => {
        if (left > 0) left -= 1;
      },
    },
  } as unknown as RoomsSession;
}

const counts = () => ({ checked: 0, stale: 0, repaired: 0, resent: 0 });

describe("ACL enforcement", () => {
  it("a stale entry of the enforcing cache is noticed, repaired and queried again, closing and opening [PLN-2]", async () => {
    for (const before of [CLOSING, OPENING]) {
      const seen = counts();
      assert.equal(await enforceAtHome(session(2, before), STATE, before, seen), undefined);
      assert.deepEqual(seen, { checked: 1, stale: 1, repaired: 1, resent: 0 });
    }
  });

  it("a room whose cache entry stays stale is never reported closed [PLN-2]", async () => {
    const seen = counts();
    const gap = await enforceAtHome(session(Number.POSITIVE_INFINITY, CLOSING), STATE, CLOSING, seen);
    assert.equal(gap?.reason, "stale_at_home");
    assert.equal(seen.repaired, 0);
  });

  it("other servers must show an ACL that denies a partner or was set now, and no other [PLN-2]", () => {
    const closing = [{ serverName: "b.test" }];
    assert.equal(mustBeProven(STATE, closing, false), true);
    // The partner's own room, whose ACL is not ours to set: nobody is waited for there.
    const theirs = { acl: { content: CLOSING, eventId: "$theirs" as EventId } };
    assert.equal(mustBeProven(theirs, closing, false), false);
    assert.equal(mustBeProven(theirs, closing, true), true);
    assert.equal(mustBeProven({ acl: undefined }, closing, true), false);
  });

  const CAROL = "@carol:c.test" as UserId;

  /** Rooms with a user of c.test, and what that server shows: `shows(room number, now)`. */
  function retained(count: number, shows: (room: number, now: number) => boolean) {
    let now = 0;
    const seen = { questions: 0, read: 0 };
    const rooms = Array.from({ length: count }, (_, n) => ({
      ...STATE,
      roomId: `!${n}` as RoomId,
      members: new Map([[CAROL, { membership: "join" }]]),
      acl: { ...STATE.acl, eventId: `$${n}` },
    }));
    const withServer = {
      intent: { own: "a.test", closing: [], retained: ["c.test"] },
      enforcementTimeoutMs: 20_000,
      clock: {
        now: () => now,
        sleep: async (ms: number) => {
          now += ms;
        },
      },
      signed: {
        request: async (_: string, __: string, path: string) => {
          seen.questions += 1;
          now += 2;
          return { status: shows(Number(decodeURIComponent(path).split("$")[1]), now) ? 200 : 404 };
        },
      },
      operator: {
        // Nobody is left who could send it again; that it is tried is what counts.
        roomState: async () => {
          seen.read += 1;
          return undefined;
        },
      },
    } as unknown as RoomsSession;
    return { rooms: rooms as unknown as RoomState[], withServer, seen };
  }

  it("a retained server that is behind is waited for, with few requests and no ACL sent again [PLN-2]", async () => {
    const { rooms, withServer, seen } = retained(100, (room, now) => now >= room * 100);
    assert.deepEqual(await enforceAtRetained(withServer, rooms, counts()), []);
    assert.equal(seen.read, 0);
    assert.ok(seen.questions < 1_000, String(seen.questions));
  });

  it("rooms that a retained server never shows are named, and no other room waits for them [PLN-2]", async () => {
    const { rooms, withServer, seen } = retained(100, (room) => room >= 20);
    const gaps = await enforceAtRetained(withServer, rooms, counts());
    assert.deepEqual(
      gaps.map(({ room }) => room).sort(),
      rooms
        .slice(0, 20)
        .map(({ roomId }) => roomId)
        .sort(),
    );
    assert.ok(gaps.every(({ reason }) => reason === "unproven_at_retained"));
    assert.equal(seen.read, 20, "the ACL of each was to be sent again, once");
  });
});
