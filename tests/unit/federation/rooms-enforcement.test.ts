import assert from "node:assert/strict";
import { test } from "node:test";
import type { EventId, RoomId } from "../../../src/domain/identifiers.ts";
import { deniedByEnforcement, type FoundAcl } from "../../../src/federation/planes/rooms/acl.ts";
import { enforceAtHome } from "../../../src/federation/planes/rooms/enforcement.ts";
import type { RoomState } from "../../../src/federation/planes/rooms/room-state.ts";
import type { RoomsSession } from "../../../src/federation/planes/rooms/session.ts";

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

const counts = () => ({ checked: 0, stale: 0, mended: 0, resent: 0 });

test("PLN-2: a stale entry of the enforcing cache is noticed, mended and asked for again, closing and opening", async () => {
  for (const before of [CLOSING, OPENING]) {
    const seen = counts();
    assert.equal(await enforceAtHome(session(2, before), STATE, before, seen), undefined);
    assert.deepEqual(seen, { checked: 1, stale: 1, mended: 1, resent: 0 });
  }
});

test("PLN-2: a room that stays stale is never taken for closed", async () => {
  const seen = counts();
  const gap = await enforceAtHome(session(Number.POSITIVE_INFINITY, CLOSING), STATE, CLOSING, seen);
  assert.equal(gap?.reason, "stale_at_home");
  assert.equal(seen.mended, 0);
});
