// Several bridges on one database: which of them leads, and what the others do.
import assert from "node:assert/strict";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { pino } from "pino";
import { leadershipReadiness } from "../../../src/bridge/health/readiness.ts";
import { type Candidacy, Leadership } from "../../../src/bridge/leadership.ts";
import {
  type LeadershipConnection,
  type LeadershipMode,
  openLeadershipConnection,
  type RequestHistory,
} from "../../../src/bridge/ledger/leadership.ts";
import { systemClock } from "../../../src/domain/clock.ts";
import { testDatabase } from "../../support/database.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const HAND_OVER_TIMEOUT_MS = 35_000;
const STEP_MS = 100;
/** Real time in which the database answers the statements of a step. */
const ANSWERS_MS = 4;

async function setUp(t: TestContext) {
  const clock = new ManualClock(Date.UTC(2026, 0, 1));
  const stop = new AbortController();
  const started: Leadership[] = [];
  t.after(async () => {
    stop.abort();
    await Promise.all(started.map((leadership) => leadership.resign()));
  });
  const { url, pool } = await testDatabase(t);
  const leadership = (mode: LeadershipMode) => {
    const made = new Leadership({
      open: () => openLeadershipConnection(url, { clock }),
      mode,
      handOverTimeoutMs: HAND_OVER_TIMEOUT_MS,
      clock,
      log: pino({ level: "silent" }),
    });
    started.push(made);
    return made;
  };
  /** Lets time pass and the database answer, until the condition holds or the time is over. */
  const until = async (holds: () => boolean, mostMs = 5 * 60_000) => {
    for (let passed = 0; passed < mostMs && !holds(); passed += STEP_MS) {
      await clock.advance(STEP_MS);
      await systemClock.sleep(ANSWERS_MS);
    }
    return holds();
  };
  return {
    clock,
    pool,
    until,
    stop,
    /** A bridge that is started, or that has become a standby. */
    start: (mode: LeadershipMode = "exclusive", candidacy: Candidacy = "request") => {
      const bridge = leadership(mode);
      return Object.assign(bridge, { acquired: bridge.acquire(candidacy, stop.signal) });
    },
  };
}

describe("Leadership", () => {
  it("the bridge that was started last leads once the leader before it has handed over [ENC-2]", async (t) => {
    const { start, until } = await setUp(t);
    const older = start();
    assert.ok(await older.acquired);
    const newer = start();
    assert.ok(await until(() => older.handOver.aborted), "the request reaches it");
    assert.equal(await until(() => newer.isLeader, 2_000), false, "the older one has not drained yet");
    await older.resign();
    const standby = start("exclusive", "standby");
    assert.ok(await until(() => newer.isLeader, 5_000), "a request does not wait for a vacancy");
    assert.equal(
      await until(() => newer.handOver.aborted || standby.isLeader, 3 * 60_000),
      false,
      "for good",
    );
  });

  it("a standby leads after a vacancy, and hands over to a bridge that is started [ENC-2]", async (t) => {
    const { start, until } = await setUp(t);
    const newer = start();
    assert.ok(await newer.acquired);
    const standby = start("exclusive", "standby");
    assert.equal(await until(() => standby.isLeader, 30_000), false);
    await newer.resign();
    assert.equal(await until(() => standby.isLeader, 8_000), false, "a bridge that restarts comes first");
    assert.ok(await until(() => standby.isLeader, 5_000));
    const third = start();
    assert.ok(await until(() => standby.handOver.aborted));
    await standby.resign();
    assert.ok(await until(() => third.isLeader));
  });

  it("a bridge leads at once when the leader before it was killed [ENC-2]", async (t) => {
    const { start, until, pool } = await setUp(t);
    const killed = start();
    assert.ok(await killed.acquired);
    // The server sees the same when a process is killed.
    await pool.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'drawbridge-leadership'",
    );
    const next = start();
    assert.ok(await next.acquired, "without any wait");
    assert.ok(
      await until(() => killed.handOver.aborted),
      "a leader that has only lost its connection drains now",
    );
  });

  it("a leader that does not hand over in time loses its leadership [ENC-2]", async (t) => {
    const { start, until, clock } = await setUp(t);
    const hanging = start();
    assert.ok(await hanging.acquired);
    const startedAt = clock.now();
    const next = start();
    assert.ok(await until(() => next.isLeader));
    const waitedMs = clock.now() - startedAt;
    assert.ok(waitedMs >= HAND_OVER_TIMEOUT_MS && waitedMs < HAND_OVER_TIMEOUT_MS + 5_000, String(waitedMs));
  });

  /** Long enough for a leader to be established. */
  const ESTABLISHED_MS = 62_000;
  const LIFE_MS = 2_000;
  const RESTART_MS = 1_000;
  /** Connecting to the database takes real time, in which the test's clock runs ahead. */
  const AT_ONCE_MS = 5_000;

  it("a release that dies each time it leads has to leave leadership to the older bridge [ENC-2]", async (t) => {
    const { start, until } = await setUp(t);
    const older = start();
    assert.ok(await older.acquired);
    await until(() => false, ESTABLISHED_MS);
    let failing = start();
    assert.ok(await until(() => older.handOver.aborted));
    await older.resign();
    const standby = start("exclusive", "standby");
    for (let lives = 1; ; lives++) {
      assert.ok(await until(() => failing.isLeader, AT_ONCE_MS), `it may lead: life ${lives}`);
      await until(() => false, LIFE_MS);
      await failing.resign();
      await until(() => false, RESTART_MS);
      failing = start();
      if (lives === 3) break;
    }
    assert.ok(await until(() => standby.isLeader || failing.isLeader, 20_000));
    assert.deepEqual([standby.isLeader, failing.isLeader], [true, false]);
    assert.equal(await until(() => standby.handOver.aborted, 30_000), false, "its requests are postponed");
    assert.ok(
      await until(() => standby.handOver.aborted, 60_000),
      "the release may have been repaired by then",
    );
    await standby.resign();
    const again = start("exclusive", "standby");
    assert.ok(await until(() => failing.isLeader, AT_ONCE_MS));
    // The release is established now, so that the next bridge may request leadership at once.
    await until(() => false, ESTABLISHED_MS);
    const next = start();
    assert.ok(await until(() => failing.handOver.aborted, AT_ONCE_MS));
    await failing.resign();
    assert.ok(await until(() => next.isLeader, AT_ONCE_MS));
    assert.equal(again.isLeader, false);
  });

  it("a bridge leads at once after any number of deaths when no other bridge is connected [DEL-9]", async (t) => {
    const { start, until } = await setUp(t);
    for (let lives = 1; lives <= 6; lives++) {
      const one = start();
      assert.ok(await until(() => one.isLeader, AT_ONCE_MS), `life ${lives}`);
      await until(() => false, LIFE_MS);
      await one.resign();
    }
  });

  it("a leader whose connection breaks acquires the lock again when there is no other request", async (t) => {
    const { start, until, pool } = await setUp(t);
    const leadership = start();
    assert.ok(await leadership.acquired);
    const held = async () =>
      (await pool.query("SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND granted"))
        .rows[0].n;
    assert.equal(await held(), 1);
    await pool.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'drawbridge-leadership'",
    );
    let count = 0;
    for (let looks = 0; looks < 100 && count === 0; looks++) {
      await until(() => false, 500);
      count = await held();
    }
    assert.deepEqual([count, leadership.handOver.aborted], [1, false]);
  });

  it("exactly one of two bridges that start together leads, and keeps leading [ENC-2]", async (t) => {
    const { start, until } = await setUp(t);
    const both = [start(), start()];
    // A leader that is to hand over resigns, as a bridge does after its drain.
    const leaders = () => both.filter(({ isLeader, handOver }) => isLeader && !handOver.aborted);
    assert.ok(await until(() => leaders().length === 1));
    for (let rounds = 0; rounds < 20; rounds++) {
      await until(() => false, 1_000);
      for (const one of both) if (one.handOver.aborted) await one.resign();
    }
    assert.equal(leaders().length, 1);
    const [winner] = leaders();
    assert.equal(await until(() => winner?.handOver.aborted === true, 60_000), false);
  });

  it("bridges without devices lead side by side until a bridge with devices starts [DEL-9]", async (t) => {
    const { start, until } = await setUp(t);
    const shared = [start("shared"), start("shared")];
    for (const one of shared) assert.ok(await until(() => one.isLeader));
    assert.equal(await until(() => shared.some(({ handOver }) => handOver.aborted), 10_000), false);
    const alone = start();
    assert.ok(await until(() => shared.every(({ handOver }) => handOver.aborted)));
    assert.equal(alone.isLeader, false);
    for (const one of shared) await one.resign();
    assert.ok(await until(() => alone.isLeader));
  });

  it("standbys without devices lead side by side after the leader with devices has ended [DEL-9]", async (t) => {
    const { start, until } = await setUp(t);
    const alone = start();
    assert.ok(await alone.acquired);
    const standby = [start("shared", "standby"), start("shared", "standby")];
    assert.equal(await until(() => standby.some(({ isLeader }) => isLeader), 60_000), false);
    await alone.resign();
    assert.ok(await until(() => standby.some(({ isLeader }) => isLeader), 15_000));
    assert.ok(await until(() => standby.every(({ isLeader }) => isLeader), 60_000));
    assert.equal(await until(() => standby.some(({ handOver }) => handOver.aborted), 10_000), false);
  });

  it("a standby without devices does not lead while another leader still drains [ENC-2]", async (t) => {
    const { start, until } = await setUp(t);
    const [quick, slow] = [start("shared"), start("shared")];
    for (const one of [quick, slow]) assert.ok(await until(() => one.isLeader));
    const alone = start();
    assert.ok(await until(() => quick.handOver.aborted && slow.handOver.aborted));
    await quick.resign();
    const standby = start("shared", "standby");
    assert.equal(await until(() => standby.isLeader || alone.isLeader, HAND_OVER_TIMEOUT_MS - 10_000), false);
    await slow.resign();
    assert.ok(await until(() => alone.isLeader, 5_000));
    assert.equal(await until(() => standby.isLeader, 60_000), false);
  });

  it("a leader that hands over is not ready while it drains", async () => {
    const state = { requested: 0n, isMute: false };
    const { leadership, clock } = await leaderOn(state);
    assert.deepEqual(leadershipReadiness(leadership), { name: "leadership", ok: true });
    state.requested += 1n;
    await clock.advance(1_000);
    assert.deepEqual([leadership.isLeader, leadershipReadiness(leadership).ok], [true, false]);
    await leadership.resign();
  });

  it("a connection closes within two seconds when the database does not answer", async (t) => {
    const clock = new ManualClock(Date.UTC(2026, 0, 1));
    // Its connections end before its database goes.
    let end = () => {};
    t.after(() => end());
    const { url } = await testDatabase(t);
    const { proxied, fallSilent, ...proxy } = await silentOnDemand(url);
    end = proxy.end;
    const connection = await openLeadershipConnection(proxied, { clock });
    assert.ok(await connection.acquire("exclusive"));
    fallSilent();
    let isClosed = false;
    const closed = connection.close().then(() => {
      isClosed = true;
    });
    await systemClock.sleep(50);
    assert.equal(isClosed, false, "the server has time to confirm the end");
    await clock.advance(2_000);
    await closed;
  });

  /** A proxy to the database that, after `fallSilent`, passes nothing on, not even the end of a connection. */
  async function silentOnDemand(url: string) {
    const target = new URL(url);
    const port = Number(target.port);
    const sockets: Socket[] = [];
    const proxy = createServer({ allowHalfOpen: true }, (near) => {
      const far = connect(port, target.hostname);
      sockets.push(near, far);
      for (const one of [near, far]) one.on("error", () => {});
      near.pipe(far);
      far.pipe(near);
    });
    await new Promise<void>((resolve) => {
      proxy.listen(0, "127.0.0.1", resolve);
    });
    const end = () => {
      for (const one of sockets) one.destroy();
      proxy.close();
    };
    target.port = String((proxy.address() as AddressInfo).port);
    return {
      proxied: target.href,
      end,
      fallSilent: () => {
        for (const one of sockets) one.unpipe();
      },
    };
  }

  /** What the database of `fakeDatabase` answers. */
  interface State {
    requested: bigint;
    isMute: boolean;
    history?: RequestHistory;
    isReadOnly?: boolean;
  }

  /** Leadership connections without a database; each answer is made from `state`. */
  function fakeDatabase(state: State) {
    const opened: { reads: number; acquisitions: number; isClosed: boolean }[] = [];
    const established: bigint[] = [];
    const open = async (): Promise<LeadershipConnection> => {
      const seen = { reads: 0, acquisitions: 0, isClosed: false };
      opened.push(seen);
      return {
        broken: new AbortController().signal,
        backend: { pid: opened.length, startedAt: "then" },
        requestLeadership: async () => ++state.requested,
        requestHistory: async () => state.history ?? { failed: 0, lastAt: undefined, isOnlyBridge: true },
        recordEstablished: async (request) => {
          if (state.isReadOnly === true) throw new Error("cannot execute UPDATE in a read-only transaction");
          established.push(request);
        },
        lastRequest: async () => {
          seen.reads += 1;
          if (state.isMute) throw new Error("Query read timeout");
          return state.requested;
        },
        isVacant: async () => state.history === undefined,
        acquire: async () => {
          seen.acquisitions += 1;
          return true;
        },
        downgrade: async () => {},
        releaseLeases: async () => 0,
        terminateOthers: async () => 0,
        terminate: async () => {},
        close: async () => {
          seen.isClosed = true;
        },
      };
    };
    return { open, opened, established };
  }

  async function leaderOn(state: State, candidacy: Candidacy = "request") {
    const clock = new ManualClock(Date.UTC(2026, 0, 1));
    const database = fakeDatabase(state);
    const log = pino({ level: "silent" });
    const leadership = new Leadership({
      open: database.open,
      mode: "exclusive",
      handOverTimeoutMs: HAND_OVER_TIMEOUT_MS,
      clock,
      log,
    });
    const acquired = leadership.acquire(candidacy, new AbortController().signal);
    for (let seconds = 0; seconds < 15 && !leadership.isLeader; seconds++) await clock.advance(1_000);
    assert.ok(await acquired);
    return { ...database, leadership, clock };
  }

  it("a leader keeps its connection busy while it drains, because the server ends idle connections [ENC-2]", async () => {
    const state = { requested: 0n, isMute: false };
    const { opened, leadership, clock } = await leaderOn(state);
    state.requested += 1n;
    await clock.advance(1_000);
    assert.ok(leadership.handOver.aborted);
    const [connection] = opened;
    assert.ok(connection);
    for (let seconds = 0; seconds < 60; seconds++) {
      const before = connection.reads;
      await clock.advance(1_000);
      assert.ok(connection.reads > before && !connection.isClosed, `idle after ${seconds} s`);
    }
    await leadership.resign();
    assert.ok(connection.isClosed);
  });

  it("a leader replaces a connection that does not answer, and acquires the lock again [ENC-2]", async () => {
    const state = { requested: 0n, isMute: false };
    const { opened, leadership, clock } = await leaderOn(state);
    state.isMute = true;
    await clock.advance(1_000);
    assert.deepEqual(
      opened.map(({ isClosed }) => isClosed),
      [true],
      "the lock may be lost",
    );
    state.isMute = false;
    await clock.advance(1_000);
    assert.deepEqual([opened.length, opened[1]?.acquisitions, leadership.handOver.aborted], [2, 1, false]);
    await leadership.resign();
  });

  it("each further failed request is postponed longer, whatever the clock of another machine [ENC-2]", async () => {
    const clock = new ManualClock(Date.UTC(2026, 0, 1));
    const log = pino({ level: "silent" });
    /** After how many seconds a bridge that starts now makes its request. */
    const requestsAfter = async (failed: number, lastAt: number | undefined) => {
      const state: State = {
        requested: 100n,
        isMute: false,
        history: { failed, lastAt, isOnlyBridge: false },
      };
      const { open } = fakeDatabase(state);
      const startedAt = clock.now();
      const leadership = new Leadership({
        open,
        mode: "exclusive",
        handOverTimeoutMs: HAND_OVER_TIMEOUT_MS,
        clock,
        log,
      });
      const acquired = leadership.acquire("request", new AbortController().signal);
      await clock.advance(0);
      while (state.requested === 100n) await clock.advance(1_000);
      await acquired;
      await leadership.resign();
      return (clock.now() - startedAt) / 1_000;
    };
    const waits = [];
    for (const failed of [2, 3, 4, 5, 6, 1_000]) waits.push(await requestsAfter(failed, clock.now()));
    assert.deepEqual(waits, [0, 60, 120, 240, 300, 300]);
    assert.equal(await requestsAfter(6, clock.now() + 3_600_000), 300, "the other clock is an hour ahead");
    assert.equal(await requestsAfter(6, clock.now() - 290_000), 10, "most of the wait has passed");
    assert.equal(await requestsAfter(6, undefined), 0, "the time of the last request is unknown");
  });

  it("a leader is established after a minute, if it leads by its own request and does not hand over [ENC-2]", async () => {
    const state = { requested: 100n, isMute: false };
    const requester = await leaderOn(state);
    await requester.clock.advance(59_000);
    assert.deepEqual(requester.established, []);
    for (let seconds = 0; seconds < 60; seconds++) await requester.clock.advance(1_000);
    assert.deepEqual(requester.established, [101n], "once");
    await requester.leadership.resign();

    const followed = await leaderOn(state);
    state.requested += 1n;
    for (let seconds = 0; seconds < 90; seconds++) await followed.clock.advance(1_000);
    assert.deepEqual(followed.established, [], "it has to hand over before that");
    await followed.leadership.resign();

    const standby = await leaderOn(state, "standby");
    for (let seconds = 0; seconds < 90; seconds++) await standby.clock.advance(1_000);
    assert.deepEqual(standby.established, [], "the last request is of a bridge that has ended");
    await standby.leadership.resign();
  });

  it("a leader keeps its leadership while the database is read-only [ENC-2]", async () => {
    const state: State = { requested: 0n, isMute: false, isReadOnly: true };
    const { opened, established, leadership, clock } = await leaderOn(state);
    for (let seconds = 0; seconds < 80; seconds++) await clock.advance(1_000);
    assert.deepEqual([opened.length, leadership.isLeader, leadership.handOver.aborted], [1, true, false]);
    state.isReadOnly = false;
    for (let seconds = 0; seconds < 10; seconds++) await clock.advance(1_000);
    assert.deepEqual(established, [1n], "recorded once the database accepts writes");
    await leadership.resign();
  });
});
