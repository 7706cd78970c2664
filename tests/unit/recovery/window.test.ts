// What ghosts read back, made into what the transactions would have brought.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { HandledEvents } from "../../../src/bridge/recovery/handled-events.ts";
import type { RawEvent } from "../../../src/bridge/recovery/sync-api.ts";
import {
  mergeWindows,
  transactionsOf,
  unknownIn,
  type Window,
  whileMember,
  withoutSuperseded,
} from "../../../src/bridge/recovery/window.ts";
import type { EventId, GhostMxid, RoomId } from "../../../src/domain/identifiers.ts";

const GHOST = "@agent_docs:a.test" as GhostMxid;
const ROOM = "!r" as RoomId;

const said = (id: string): RawEvent => ({ event_id: `$${id}`, type: "m.room.message", content: {} });
const member = (id: string, user: string, membership: string, before?: string): RawEvent => ({
  event_id: `$${id}`,
  type: "m.room.member",
  state_key: user,
  content: { membership },
  unsigned: before === undefined ? {} : { prev_content: { membership: before } },
});
const ids = (events: readonly RawEvent[] = []) => events.map((event) => String(event["event_id"]).slice(1));
const window = (...events: RawEvent[]): Window => new Map([[ROOM, events]]);

test("INT-8: a ghost reads back what was said while it was in the room, and its own comings and goings", () => {
  const events = [
    said("1"),
    member("left", GHOST, "leave", "join"),
    said("2"),
    member("invited", GHOST, "invite", "leave"),
    said("3"),
    member("joined", GHOST, "join", "invite"),
    said("4"),
    member("renamed", GHOST, "join", "join"),
    said("5"),
  ];
  assert.deepEqual(ids(whileMember(events, GHOST)), ["1", "left", "invited", "joined", "4", "renamed", "5"]);
});

test("INT-8: what several ghosts read of a room is one sequence in the room's order, each event once", () => {
  const views = fc
    .integer({ min: 1, max: 30 })
    .chain((length) =>
      fc.tuple(
        fc.constant(length),
        fc.array(fc.tuple(fc.nat(length - 1), fc.nat(length - 1)), { minLength: 1, maxLength: 4 }),
      ),
    );
  fc.assert(
    fc.property(views, ([length, spans]) => {
      const all = Array.from({ length }, (_, index) => said(String(index)));
      // One ghost was there all the time; the others came, or were read, later or earlier.
      const windows = [[0, length - 1], ...spans].map(([from = 0, to = 0]) =>
        window(...all.slice(Math.min(from, to), Math.max(from, to) + 1)),
      );
      for (const order of [windows, windows.toReversed()]) {
        const merged = ids(mergeWindows(order).get(ROOM));
        assert.deepEqual(merged.toSorted(), ids(all).toSorted());
      }
      assert.deepEqual(ids(mergeWindows(windows).get(ROOM)), ids(all));
    }),
  );
});

test("INT-8: what one ghost alone saw stands before what it saw next together with another", () => {
  const early = window(said("1"), said("2"), said("3"));
  const late = window(said("3"), said("4"));
  assert.deepEqual(ids(mergeWindows([late, early]).get(ROOM)), ["1", "2", "3", "4"]);
  assert.deepEqual(ids(mergeWindows([early, late]).get(ROOM)), ["1", "2", "3", "4"]);
});

test("INT-8: of a user's memberships the last alone is told, and none that is superseded since", () => {
  const read = window(
    member("1", GHOST, "invite"),
    said("2"),
    member("3", GHOST, "join"),
    member("4", "@a:a.test", "join"),
  );
  assert.deepEqual(ids(withoutSuperseded(read).get(ROOM)), ["2", "3", "4"]);
  const newer = window(member("5", GHOST, "leave"));
  assert.deepEqual(ids(withoutSuperseded(read, newer).get(ROOM)), ["2", "4"]);
});

test("INT-8: what transactions brought is not handed on, for two turns at least", () => {
  const handled = new HandledEvents();
  handled.add(["$1" as EventId]);
  const left = () => ids(unknownIn(window(said("1"), said("2")), (event) => handled.has(event)).get(ROOM));
  for (let turns = 0; turns < 2; turns++) {
    assert.deepEqual(left(), ["2"]);
    handled.turn();
  }
  assert.deepEqual(left(), ["2"]);
  handled.turn();
  assert.deepEqual(left(), ["1", "2"]);
});

test("INT-8: the same events read back twice are the same transactions", () => {
  const events = Array.from({ length: 230 }, (_, index) => said(String(index)));
  const made = transactionsOf(window(...events));
  assert.deepEqual(
    made.map(({ events: some }) => some.length),
    [100, 100, 30],
  );
  assert.deepEqual(made, transactionsOf(window(...events)));
  assert.equal(new Set(made.map(({ transactionId }) => transactionId)).size, 3);
  for (const { transactionId, body, events: some } of made) {
    assert.match(transactionId, /^recovered-[0-9a-f]{32}$/);
    assert.deepEqual(JSON.parse(Buffer.from(body).toString()), { events: some });
  }
});
