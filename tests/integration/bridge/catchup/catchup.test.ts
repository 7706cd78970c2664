// When the bridge catches up, and what transactions wait for, with a homeserver that does as the test says.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { setTimeout as realPause } from "node:timers/promises";
import { pino } from "pino";
import { type CatchupOptions, createCatchup } from "../../../../src/bridge/catchup/catchup.ts";
import type { GhostMxid } from "../../../../src/domain/identifiers.ts";
import { namedTarget } from "../../../support/agents.ts";
import { ghostSide } from "../../../support/ghosts.ts";
import { type Script, scriptedHomeserver, WELL } from "../../../support/http-server.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { recordedLog } from "../../../support/recorded-log.ts";

const { ghost } = namedTarget("docs");
const QUESTION = { event_id: "$q", type: "m.room.message", sender: "@alice:a.test", content: { body: "?" } };

async function catchingUp(t: TestContext, options: Partial<CatchupOptions> = {}) {
  const clock = new ManualClock(0);
  const reported: string[] = [];
  const state = { position: 1, lost: [] as object[], isUp: true, failIntake: 0, refused: "" };
  const script: Script = (request) => {
    if (!state.isUp) return "reset";
    if (!request.path.endsWith("/sync")) return WELL(request);
    if (request.query.get("user_id") === state.refused) {
      return { status: 403, body: { errcode: "M_FORBIDDEN" } };
    }
    const since = request.query.get("since");
    const isWatch = request.query.get("timeout") !== "0";
    if (isWatch) return "hang";
    const isRooms = request.query.get("filter")?.includes("timeline") === true;
    const next_batch = `s${state.position}`;
    if (!isRooms || since === next_batch) return { body: { next_batch } };
    return { body: { next_batch, rooms: { join: { "!r": { timeline: { events: state.lost } } } } } };
  };
  const homeserver = await scriptedHomeserver(t, (request) =>
    request.path.endsWith("/versions") && state.isUp ? { body: { versions: [] } } : script(request),
  );
  const side = ghostSide(t, homeserver.url);
  const positions = new Map<GhostMxid, string>();
  const taken: string[][] = [];
  const catchup = createCatchup({
    homeserver: { url: homeserver.url, asToken: "t", requestTimeoutMs: 5_000, clock },
    ghosts: side.ghosts,
    agents: {
      current: async () => ({
        byGhost: new Map([[ghost, namedTarget("docs")]]),
        partnerGhosts: [],
      }),
    },
    positions: {
      get: async (of) => positions.get(of),
      set: async (of, since) => void positions.set(of, String(since)),
    },
    handled: async () => new Set(),
    isTurn: () => true,
    intake: async ({ events }) => {
      if (state.failIntake > 0) {
        state.failIntake -= 1;
        throw new Error("the database is away");
      }
      taken.push(events.map((event) => String(event["event_id"])));
      return { admitted: events.length };
    },
    rooms: true,
    clock,
    catchupRoomState: async () => {},
    log: pino({ level: "silent" }),
    metrics: {
      homeserverUp: (isUp) => reported.push(isUp ? "up" : "down"),
      catchup: (cause, result) => reported.push(`${cause} ${result.complete} ${result.admitted}`),
      failed: () => reported.push("failed"),
    },
    ...options,
  });
  t.after(async () => {
    const drained = catchup.drain();
    await clock.advance(60_000);
    await drained;
  });
  /** Lets requests run until the condition holds, the clock standing still unless told otherwise. */
  const until = async (what: string, condition: () => boolean, stepMs = 0) => {
    for (let turns = 0; !condition(); turns++) {
      assert.ok(turns < 1_000, `it never came to this: ${what}; ${reported.join(", ")}`);
      await realPause(2);
      if (stepMs > 0) await clock.advance(stepMs);
    }
  };
  const watching = () =>
    homeserver.requests.filter(({ query }) => (query.get("timeout") ?? "0") !== "0").length;
  const isReady = async () => {
    let is = false;
    void catchup.ready().then(() => {
      is = true;
    });
    await realPause(5);
    return () => is;
  };
  return { catchup, clock, state, positions, taken, reported, until, watching, isReady, homeserver };
}

describe("Catchup", () => {
  it("transactions wait for the catchup at the start, and its events are taken first [INT-8]", async (t) => {
    const { catchup, state, positions, taken, reported, until, isReady } = await catchingUp(t);
    positions.set(ghost, "s0");
    state.lost = [QUESTION];
    const ready = await isReady();
    assert.equal(ready(), false);
    catchup.start();
    await until("it is ready", ready);
    assert.deepEqual(taken, [["$q"]]);
    assert.deepEqual(reported, ["up", "start true 1"]);
    assert.equal(positions.get(ghost), "s1");
    assert.equal((await isReady())(), true);
  });

  it("a catchup that cannot be committed runs again, and the position stays until then [INT-8]", async (t) => {
    const { catchup, state, positions, taken, reported, until } = await catchingUp(t);
    positions.set(ghost, "s0");
    state.lost = [QUESTION];
    state.failIntake = 2;
    catchup.start();
    await until("it failed twice", () => reported.filter((what) => what === "failed").length === 2, 10);
    assert.deepEqual([positions.get(ghost), taken], ["s0", []]);
    await until("it is done", () => positions.get(ghost) === "s1", 100);
    assert.deepEqual(taken, [["$q"]]);
  });

  it("transactions wait while the homeserver is away, for five seconds in all [INT-8]", async (t) => {
    const { catchup, clock, state, reported, taken, until, watching, isReady, homeserver } =
      await catchingUp(t);
    catchup.start();
    await until("it watches", () => watching() === 1);
    assert.equal((await isReady())(), true);
    state.isUp = false;
    homeserver.dropConnections();
    await until("the stop is noticed", () => reported.includes("down"));
    const first = await isReady();
    await clock.advance(4_999);
    const second = await isReady();
    assert.deepEqual([first(), second()], [false, false]);
    await clock.advance(1);
    await until("both go on", () => first() && second());
    assert.equal((await isReady())(), true);

    state.lost = [QUESTION];
    state.position = 2;
    state.isUp = true;
    await until("it is caught up", () => reported.includes("homeserver_back true 1"), 100);
    assert.deepEqual(taken, [["$q"]]);
  });

  it("transactions do not wait and no room is read when the catchup is switched off, and a stop of the homeserver is noticed [INT-8] [OPS-2]", async (t) => {
    const { catchup, state, positions, taken, reported, until, watching, isReady, homeserver } =
      await catchingUp(t, { rooms: false });
    state.lost = [QUESTION];
    catchup.start();
    assert.equal((await isReady())(), true);
    await until("it watches", () => watching() === 1);
    state.isUp = false;
    homeserver.dropConnections();
    await until("the stop is noticed", () => reported.includes("down"));
    state.isUp = true;
    await until("its return is noticed", () => reported.length === 3, 100);
    assert.deepEqual([reported, taken, positions.size], [["up", "down", "up"], [], 0]);
  });

  it("the catchup of keys runs before that of rooms, and its failure does not hold that up [INT-8]", async (t) => {
    const order: string[] = [];
    const recorded = recordedLog();
    const { catchup, state, positions, taken, until } = await catchingUp(t, {
      log: recorded.log,
      catchup: async (of) => {
        order.push(of);
        throw new Error("no machine");
      },
    });
    positions.set(ghost, "s0");
    state.lost = [QUESTION];
    catchup.start();
    await until("the rooms are caught up", () => taken.length === 1);
    assert.deepEqual(order, [ghost]);
    assert.equal(recorded.lines.find(({ msg }) => /catchup of keys failed/.test(String(msg)))?.["ghosts"], 1);
  });

  it("the position moves one round after it was read in quiet times [INT-8]", async (t) => {
    const { catchup, state, positions, until, reported, taken } = await catchingUp(t, { quietMs: 1_000 });
    positions.set(ghost, "s1");
    catchup.start();
    await until("it has started", () => reported.includes("start true 0"));
    state.lost = [QUESTION];
    state.position = 2;
    await until("the position has moved", () => positions.get(ghost) === "s2", 100);
    assert.deepEqual(taken, [["$q"]]);
    assert.ok(reported.filter((what) => what.startsWith("quiet true")).length >= 2);
  });

  it("a ghost that the homeserver refuses holds up neither the other ghosts nor the watch [INT-8]", async (t) => {
    const { catchup, state, positions, taken, until, watching, reported } = await catchingUp(t, {
      agents: {
        current: async () => ({
          byGhost: new Map(["bad", "docs"].map((name) => [namedTarget(name).ghost, namedTarget(name)])),
          partnerGhosts: [],
        }),
      },
    });
    positions.set(ghost, "s0");
    state.lost = [QUESTION];
    state.refused = namedTarget("bad").ghost;
    catchup.start();
    await until("it watches as the other", () => watching() === 1, 1_000);
    assert.deepEqual([reported.slice(0, 2), taken], [["up", "start true 1"], [["$q"]]]);
  });

  it("events that cannot be committed for long are left to the rounds in quiet times [INT-8]", async (t) => {
    const { catchup, state, positions, taken, until, watching } = await catchingUp(t, { quietMs: 1_000 });
    positions.set(ghost, "s0");
    state.lost = [QUESTION];
    state.failIntake = 8;
    catchup.start();
    await until("it watches all the same", () => watching() === 1, 500);
    assert.deepEqual([positions.get(ghost), taken], ["s0", []]);
    await until("it is done in the end", () => positions.get(ghost) === "s1", 500);
    assert.deepEqual(taken, [["$q"]]);
  });

  it("the rounds are five seconds apart for a minute after the homeserver is back, then a minute [INT-8]", async (t) => {
    const { catchup, clock, until, reported } = await catchingUp(t);
    catchup.start();
    const rounds = () => reported.filter((what) => what.startsWith("quiet")).length;
    await until("the first round", () => rounds() === 1);
    for (let more = 2; more <= 12; more++) {
      await clock.advance(5_000);
      await until(`round ${more}`, () => rounds() === more);
    }
    await clock.advance(5_000);
    await until("one more", () => rounds() === 13);
    for (let step = 0; step < 11; step++) {
      await clock.advance(5_000);
      await realPause(5);
    }
    assert.equal(rounds(), 13);
    await clock.advance(5_000);
    await until("a minute has passed", () => rounds() === 14);
  });
});
