// Several bridges on one database: which of them leads, and what the others do.
import assert from "node:assert/strict";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { pino } from "pino";
import { type Candidacy, Leadership } from "../../../src/bridge/leadership.ts";
import { type LeadershipMode, openLeadershipConnection } from "../../../src/bridge/ledger/leadership.ts";
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
  /** Lets a busy database answer, while no time passes for the bridges. */
  const answered = async (holds: () => boolean) => {
    for (let waits = 0; waits < 500 && !holds(); waits++) await systemClock.sleep(10);
    return holds();
  };
  return {
    clock,
    pool,
    until,
    answered,
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
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name = 'drawbridge-leadership' AND datname = current_database()`,
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
    const { start, until, answered } = await setUp(t);
    const older = start();
    assert.ok(await older.acquired);
    await until(() => false, ESTABLISHED_MS);
    let failing = start();
    assert.ok(await until(() => older.handOver.aborted));
    await older.resign();
    const standby = start("exclusive", "standby");
    for (let lives = 1; ; lives++) {
      assert.ok(
        (await until(() => failing.isLeader, AT_ONCE_MS)) || (await answered(() => failing.isLeader)),
        `it may lead: life ${lives}`,
      );
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
    assert.ok((await until(() => failing.isLeader, AT_ONCE_MS)) || (await answered(() => failing.isLeader)));
    // The release is established now, so that the next bridge may request leadership at once.
    await until(() => false, ESTABLISHED_MS);
    const next = start();
    assert.ok(await until(() => failing.handOver.aborted, AT_ONCE_MS));
    await failing.resign();
    assert.ok((await until(() => next.isLeader, AT_ONCE_MS)) || (await answered(() => next.isLeader)));
    assert.equal(again.isLeader, false);
  });

  it("a bridge leads at once after any number of deaths when no other bridge is connected [DEL-9]", async (t) => {
    const { start, until, answered } = await setUp(t);
    for (let lives = 1; lives <= 6; lives++) {
      const one = start();
      assert.ok(
        (await until(() => one.isLeader, AT_ONCE_MS)) || (await answered(() => one.isLeader)),
        `life ${lives}`,
      );
      await until(() => false, LIFE_MS);
      await one.resign();
    }
  });

  it("a leader whose connection breaks acquires the lock again when there is no other request", async (t) => {
    const { start, until, pool } = await setUp(t);
    const leadership = start();
    assert.ok(await leadership.acquired);
    const held = async () =>
      (
        await pool.query(
          `SELECT count(*)::int AS n FROM pg_locks WHERE locktype = 'advisory' AND granted
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
        )
      ).rows[0].n;
    assert.equal(await held(), 1);
    await pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name = 'drawbridge-leadership' AND datname = current_database()`,
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
});
