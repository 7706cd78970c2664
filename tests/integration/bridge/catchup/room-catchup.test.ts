// Rooms that have more than is held at once, caught up from a homeserver that does as the test says.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type { FoundBounds } from "../../../../src/bridge/catchup/found-events.ts";
import { createRoomCatchup } from "../../../../src/bridge/catchup/room-catchup.ts";
import { SyncApi } from "../../../../src/bridge/catchup/sync-api.ts";
import { leaseLost } from "../../../../src/bridge/ledger/postgres.ts";
import type { EventId, GhostMxid } from "../../../../src/domain/identifiers.ts";
import { namedTarget } from "../../../support/agents.ts";
import { ghostSide } from "../../../support/ghosts.ts";
import { type ScriptedAnswer, scriptedHomeserver } from "../../../support/http-server.ts";
import { recordedLog } from "../../../support/recorded-log.ts";

const { ghost } = namedTarget("docs");
const signal = new AbortController().signal;
interface Filter {
  readonly types?: string[];
}

const ROOMS = ["!a", "!b"];
const EVENTS = 250;
const text = (room: string, index: number) => ({
  event_id: `$${room.slice(1)}${index}`,
  type: "m.room.message",
  sender: "@alice:a.test",
  content: { body: "x".repeat(500) },
});

type AnswerBounds = ConstructorParameters<typeof SyncApi>[1];

async function reading(t: TestContext, bounds: FoundBounds, answers?: AnswerBounds) {
  const state = {
    fail: (_from: string, _again: boolean): boolean => false,
    pages: [] as string[],
    since: [] as string[],
    settled: [] as unknown[],
    types: [] as string[][],
    /** An event of the first room that the homeserver answers from s1 on, once. */
    newer: undefined as Record<string, unknown> | undefined,
    /** Whether the smaller answer's events have a long membership, as any state event may name one. */
    isLong: false,
    /** What the homeserver answers about the ghost itself. */
    ghost: { body: {} } as ScriptedAnswer,
  };
  /** Pages of the past, newest first; `from` is how many events come before it. */
  const page = (room: string, from: string, limit: number, again: boolean): ScriptedAnswer => {
    if (state.fail(from, again)) return { status: 502, body: {} };
    const end = from === "s1" ? EVENTS : Number(from);
    const begin = Math.max(0, end - limit);
    const indices = Array.from({ length: end - begin }, (_, index) => end - 1 - index);
    return {
      body: { chunk: indices.map((index) => text(room, index)), ...(begin > 0 && { end: `${begin}` }) },
    };
  };
  const homeserver = await scriptedHomeserver(t, ({ path, query }) => {
    const filter = JSON.parse(query.get("filter") ?? "{}") as Filter & { room?: { timeline?: Filter } };
    const types = filter.types ?? filter.room?.timeline?.types;
    if (types !== undefined) state.types.push(types);
    const [, room] = /rooms\/(.*)\/messages$/.exec(path) ?? [];
    const from = query.get("from") ?? "";
    if (room !== undefined) {
      state.pages.push(from);
      return page(room, from, Number(query.get("limit")), !query.has("to"));
    }
    if (!path.endsWith("/sync")) return state.ghost;
    state.since.push(query.get("since") ?? "");
    if (query.get("since") === "s1" && state.newer !== undefined) {
      const fields = (JSON.parse(query.get("filter") ?? "{}") as { event_fields?: string[] }).event_fields;
      const { content, ...event } = state.newer;
      const { redacts } = content as { redacts?: string };
      const thin = Object.fromEntries(Object.entries(event).filter(([name]) => fields?.includes(name)));
      if (fields?.includes("content.redacts") === true) thin["content"] = { redacts };
      const events = [fields === undefined ? state.newer : thin];
      return { body: { next_batch: "s9", rooms: { join: { "!a": { timeline: { events } } } } } };
    }
    if (["s1", "s9"].includes(query.get("since") ?? "")) return { body: { next_batch: query.get("since") } };
    const limit = query.get("filter")?.includes("event_fields") === true ? 1 : 50;
    const unsigned = { prev_content: { membership: "x".repeat(state.isLong && limit === 1 ? 70_000 : 0) } };
    const end = (id: string) =>
      Array.from({ length: limit }, (_, index) => ({ ...text(id, EVENTS - limit + index), unsigned }));
    const join = Object.fromEntries(
      ROOMS.map((id) => [
        id,
        { timeline: { events: end(id), limited: true, prev_batch: `${EVENTS - limit}` } },
      ]),
    );
    return { body: { next_batch: "s1", rooms: { join } } };
  });
  const side = ghostSide(t, homeserver.url);
  const options = { url: homeserver.url, asToken: "t", requestTimeoutMs: 5_000, clock: side.clock };
  const api = new SyncApi(options, answers);
  t.after(() => api.close());
  const positions = new Map<GhostMxid, string>([[ghost, "s0"]]);
  const taken: string[] = [];
  const handled = new Set<EventId>();
  const orders: unknown[] = [];
  const { log, lines } = recordedLog();
  const rooms = createRoomCatchup({
    api,
    ghosts: side.ghosts,
    handled: async (events) => new Set(events.filter((id) => handled.has(id))),
    positions: {
      get: async (of) => positions.get(of),
      // As the ledger does.
      set: async (of, since, from) => {
        if (positions.get(of) !== from) throw leaseLost("the position");
        positions.set(of, String(since));
      },
    },
    intake: async ({ events, order }) => {
      orders.push(order);
      const ids = events.map((event) => event["event_id"] as EventId);
      taken.push(...ids);
      for (const id of ids) handled.add(id);
      return { admitted: events.length };
    },
    catchupRoomState: async (who, inRooms) => void state.settled.push([who, inRooms]),
    log,
    bounds,
  });
  /** Messages that were logged as warnings, or as worse. */
  const warned = () => lines.filter((line) => Number(line["level"]) >= 40).map((line) => line["msg"]);
  return { rooms, positions, taken, handled, orders, state, warned };
}

const all = (from = 0) =>
  ROOMS.flatMap((room) =>
    Array.from({ length: EVENTS - from }, (_, index) => text(room, from + index).event_id),
  );
const FEW = { charactersMax: 10_000, eventsMax: 10_000 };

describe("RoomCatchup", () => {
  it("asks the homeserver for every type of event that intake reads, reactions too [INT-8]", async (t) => {
    const { rooms, state } = await reading(t, FEW, { changesBytesMax: 10_000 });
    await rooms.afterDowntime([ghost], signal);
    const read = ["message", "encrypted", "redaction", "member", "encryption"].map(
      (name) => `m.room.${name}`,
    );
    for (const types of state.types) assert.deepEqual(types.toSorted(), ["m.reaction", ...read].toSorted());
    assert.ok(state.types.length > 3, "answers and pages");
  });

  it("events whose contents exceed the memory bound are read again, in order [INT-8]", async (t) => {
    for (const answers of [undefined, { changesBytesMax: 10_000 }]) {
      const { rooms, positions, taken } = await reading(t, FEW, answers);
      assert.equal((await rooms.afterDowntime([ghost], signal)).complete, true);
      assert.deepEqual(taken, all());
      assert.equal(positions.get(ghost), "s1");
    }
  });

  it("an event that was lost is passed on with the order of its room, in which what was handled stands too [INT-8]", async (t) => {
    const { rooms, taken, handled, orders } = await reading(t, { ...FEW, charactersMax: 1e9 });
    for (const id of all()) if (id !== "$a247") handled.add(id as EventId);
    await rooms.afterDowntime([ghost], signal);
    assert.deepEqual([taken, orders], [["$a247"], [new Map([["!a", ["$a247", "$a248", "$a249"]]])]]);
  });

  it("rooms that are too large for the smaller answer are read from their past [INT-8]", async (t) => {
    const { rooms, positions, taken, state } = await reading(t, FEW, { changesBytesMax: 50_000 });
    state.isLong = true;
    assert.equal((await rooms.afterDowntime([ghost], signal)).complete, true);
    assert.deepEqual(taken, all());
    assert.equal(positions.get(ghost), "s1");
  });

  it("messages that make a page too large keep nothing from being read [INT-8]", async (t) => {
    const { rooms, positions, taken } = await reading(
      t,
      { ...FEW, charactersMax: 1e9 },
      { pageBytesMax: 20_000 },
    );
    assert.equal((await rooms.afterDowntime([ghost], signal)).complete, true);
    assert.deepEqual(taken, all());
    assert.equal(positions.get(ghost), "s1");
  });

  it("the position stays while a found event cannot be read again [INT-8]", async (t) => {
    const { rooms, positions, taken, state } = await reading(t, FEW);
    state.fail = (from, again) => again && from === "200";
    const first = await rooms.afterDowntime([ghost], signal);
    assert.deepEqual([first.complete, positions.get(ghost)], [false, "s0"]);
    assert.ok(taken.length < all().length);
    state.fail = () => false;
    assert.equal((await rooms.afterDowntime([ghost], signal)).complete, true);
    assert.deepEqual(state.settled, []);
    assert.equal(positions.get(ghost), "s1");
    assert.deepEqual(taken.toSorted(), all().toSorted());
    const ofOne = (room: string) => taken.filter((id) => id.startsWith(`$${room.slice(1)}`));
    for (const room of ROOMS)
      assert.deepEqual(
        ofOne(room),
        all().filter((id) => id.startsWith(`$${room.slice(1)}`)),
      );
  });

  it("only the newest events are read when all rooms together have more than the bound [INT-8]", async (t) => {
    const { rooms, positions, taken, state } = await reading(t, { charactersMax: 1e9, eventsMax: 120 });
    assert.equal((await rooms.afterDowntime([ghost], signal)).complete, true);
    // Of the first room the end and one page, of the second the end.
    assert.deepEqual(taken, [
      ...all(100).filter((id) => id.startsWith("$a")),
      ...all(200).filter((id) => id.startsWith("$b")),
    ]);
    assert.deepEqual(state.pages, ["200"]);
    assert.deepEqual(
      state.settled,
      [[ghost, ROOMS]],
      "who is there is asked, for it was not told to the end",
    );
    assert.equal(positions.get(ghost), "s1");
  });

  it("a position that another bridge has moved stays there, and the next round reads from it [INT-8]", async (t) => {
    const { rooms, positions, taken, state, warned } = await reading(t, FEW);
    // Read from s0, while another has come to s9.
    state.fail = () => {
      positions.set(ghost, "s9");
      return false;
    };
    assert.equal((await rooms.afterDowntime([ghost], signal)).complete, true);
    assert.deepEqual([positions.get(ghost), taken.length], ["s9", all().length], "nothing read is dropped");
    state.fail = () => false;
    await rooms.quietly([ghost], signal);
    assert.equal(state.since.at(-1), "s9");
    assert.deepEqual(warned(), [], "it happens at each start of a process beside another");
  });

  it("a position that another bridge moves while events are held is read from in the next round [INT-8]", async (t) => {
    const { rooms, positions, taken, state } = await reading(t, FEW);
    await rooms.quietly([ghost], signal);
    positions.set(ghost, "s9");
    for (const expected of ["s1", "s9"]) {
      await rooms.quietly([ghost], signal);
      assert.deepEqual([state.since.at(-1), positions.get(ghost)], [expected, "s9"]);
    }
    assert.deepEqual(taken, all(), "what was held is passed on all the same");
  });

  it("a question that was removed while it was held is not passed on [INT-8]", async (t) => {
    const redaction = { event_id: "$r", type: "m.room.redaction" };
    const isWhole = { sender: "@alice:a.test", redacts: "$a3", content: {} };
    const isLarge = { content: { redacts: "$a3", reason: "x".repeat(60_000) } };
    for (const more of [isWhole, isLarge]) {
      const { rooms, taken, state } = await reading(t, FEW, { changesBytesMax: 50_000 });
      await rooms.quietly([ghost], signal);
      state.newer = { ...redaction, ...more };
      await rooms.quietly([ghost], signal);
      assert.deepEqual(
        taken,
        all().filter((id) => id !== "$a3"),
      );
    }
  });

  it("the catchup runs again for a homeserver that is away, but not for a ghost that it refuses [INT-8]", async (t) => {
    const { rooms, positions, state } = await reading(t, FEW);
    state.ghost = { status: 502, body: {} };
    assert.equal((await rooms.afterDowntime([ghost], signal)).complete, false);
    state.ghost = { status: 400, body: { errcode: "M_EXCLUSIVE" } };
    assert.equal((await rooms.afterDowntime([ghost], signal)).complete, true);
    assert.deepEqual([state.since, positions.get(ghost)], [[], "s0"], "the ghost's rooms stay to be read");
  });

  it("a ghost without a position reads from now on, and reads its rooms' state [INT-8]", async (t) => {
    const { rooms, positions, taken, state } = await reading(t, FEW);
    positions.delete(ghost);
    assert.equal((await rooms.afterDowntime([ghost], signal)).complete, true);
    assert.deepEqual([taken, state.settled], [[], [[ghost, undefined]]]);
  });
});
