// Several bridges on one database: which of them serves, and what becomes of the others.
import assert from "node:assert/strict";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { pino } from "pino";
import { leadershipReadiness } from "../../../src/bridge/health/readiness.ts";
import { Leadership } from "../../../src/bridge/leadership.ts";
import {
  type EarlierAskings,
  type LeadershipConnection,
  type LeadershipMode,
  openLeadershipConnection,
} from "../../../src/bridge/ledger/leadership.ts";
import { systemClock } from "../../../src/domain/clock.ts";
import { testDatabase } from "../../support/database.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const PATIENCE_MS = 35_000;
const STEP_MS = 100;
const ANSWERS_MS = 4;

async function setUp(t: TestContext) {
  const clock = new ManualClock(Date.UTC(2026, 0, 1));
  const stop = new AbortController();
  const started: Leadership[] = [];
  t.after(async () => {
    stop.abort();
    await Promise.all(started.map((leadership) => leadership.end()));
  });
  const { url, pool } = await testDatabase(t);
  const leadership = (mode: LeadershipMode) => {
    const made = new Leadership({
      open: () => openLeadershipConnection(url, { clock }),
      mode,
      patienceMs: PATIENCE_MS,
      clock,
      log: pino({ level: "silent" }),
    });
    started.push(made);
    return made;
  };
  /** Lets time pass and the database answer, until something is so or that time is over. */
  const until = async (holds: () => boolean, mostMs = 5 * 60_000) => {
    for (let passed = 0; passed < mostMs && !holds(); passed += STEP_MS) {
      await clock.advance(STEP_MS);
      // Statements of the bridges are under way, on connections of their own.
      await systemClock.sleep(ANSWERS_MS);
    }
    return holds();
  };
  return {
    clock,
    pool,
    until,
    stop,
    /** A bridge that is started, or stands in line again. */
    begin: (mode: LeadershipMode = "alone", asks = true) => {
      const begun = leadership(mode);
      return Object.assign(begun, { begun: begun.begin(asks, stop.signal) });
    },
  };
}

describe("leadership", () => {
  it("the bridge that was started last serves; the one before hands over, and stands in line [ENC-2]", async (t) => {
    const { begin, until } = await setUp(t);
    const older = begin();
    assert.ok(await older.begun);
    const newer = begin();
    assert.ok(await until(() => older.handOver.aborted), "it is asked");
    assert.equal(await until(() => newer.isServing, 2_000), false, "not before the older one has drained");
    await older.end();
    const inLine = begin("alone", false);
    assert.ok(await until(() => newer.isServing, 5_000), "without the wait of who stands in line");
    assert.equal(
      await until(() => newer.handOver.aborted || inLine.isServing, 3 * 60_000),
      false,
      "for good",
    );
  });

  it("who stands in line serves again when nobody else does, and gives way to one that is started [ENC-2]", async (t) => {
    const { begin, until } = await setUp(t);
    const newer = begin();
    assert.ok(await newer.begun);
    const inLine = begin("alone", false);
    assert.equal(await until(() => inLine.isServing, 30_000), false);
    await newer.end();
    assert.equal(await until(() => inLine.isServing, 8_000), false, "one that is started again comes first");
    assert.ok(await until(() => inLine.isServing, 5_000));
    const third = begin();
    assert.ok(await until(() => inLine.handOver.aborted));
    await inLine.end();
    assert.ok(await until(() => third.isServing));
  });

  it("a bridge whose predecessor was killed waits for nothing [ENC-2]", async (t) => {
    const { begin, until, pool } = await setUp(t);
    const killed = begin();
    assert.ok(await killed.begun);
    // What the server sees of a process that is gone.
    await pool.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'drawbridge-leadership'",
    );
    const next = begin();
    assert.ok(await next.begun, "without a moment of waiting");
    assert.ok(
      await until(() => killed.handOver.aborted),
      "had it only lost its connection, it would drain now",
    );
  });

  it("a bridge that does not hand over loses its place [ENC-2]", async (t) => {
    const { begin, until, clock } = await setUp(t);
    const hanging = begin();
    assert.ok(await hanging.begun);
    const begun = clock.now();
    const next = begin();
    assert.ok(await until(() => next.isServing));
    const waitedMs = clock.now() - begun;
    assert.ok(waitedMs >= PATIENCE_MS && waitedMs < PATIENCE_MS + 5_000, String(waitedMs));
  });

  /** Long enough for a bridge to count as one that goes on serving. */
  const PROVEN_MS = 62_000;
  const LIFE_MS = 2_000;
  const RESTART_MS = 1_000;
  /** Connecting to the database takes its time while that of the test runs ahead. */
  const AT_ONCE_MS = 5_000;

  it("a release that dies each time it serves leaves the place to the one before [ENC-2]", async (t) => {
    const { begin, until } = await setUp(t);
    const older = begin();
    assert.ok(await older.begun);
    await until(() => false, PROVEN_MS);
    let failing = begin();
    assert.ok(await until(() => older.handOver.aborted));
    await older.end();
    const inLine = begin("alone", false);
    for (let lives = 1; ; lives++) {
      assert.ok(await until(() => failing.isServing, AT_ONCE_MS), `it may try: ${lives}`);
      await until(() => false, LIFE_MS);
      await failing.end();
      await until(() => false, RESTART_MS);
      failing = begin();
      if (lives === 3) break;
    }
    assert.ok(await until(() => inLine.isServing || failing.isServing, 20_000));
    assert.deepEqual([inLine.isServing, failing.isServing], [true, false]);
    assert.equal(await until(() => inLine.handOver.aborted, 30_000), false, "it is left alone");
    assert.ok(await until(() => inLine.handOver.aborted, 60_000), "the release may have been repaired");
    await inLine.end();
    const again = begin("alone", false);
    assert.ok(await until(() => failing.isServing, AT_ONCE_MS));
    // It is repaired: the next one to be started asks at once.
    await until(() => false, PROVEN_MS);
    const next = begin();
    assert.ok(await until(() => failing.handOver.aborted, AT_ONCE_MS));
    await failing.end();
    assert.ok(await until(() => next.isServing, AT_ONCE_MS));
    assert.equal(again.isServing, false);
  });

  it("a bridge that dies again and again with none beside it is followed at once [DEL-9]", async (t) => {
    const { begin, until } = await setUp(t);
    for (let lives = 1; lives <= 6; lives++) {
      const one = begin();
      assert.ok(await until(() => one.isServing, AT_ONCE_MS), `life ${lives}`);
      await until(() => false, LIFE_MS);
      await one.end();
    }
  });

  it("a bridge whose connection breaks goes on serving, as nobody else wants to", async (t) => {
    const { begin, until, pool } = await setUp(t);
    const leadership = begin();
    assert.ok(await leadership.begun);
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

  it("of two bridges started at once one serves, and it stays [ENC-2]", async (t) => {
    const { begin, until } = await setUp(t);
    const both = [begin(), begin()];
    // Whoever is asked hands over, as a bridge does.
    const serving = () => both.filter(({ isServing, handOver }) => isServing && !handOver.aborted);
    assert.ok(await until(() => serving().length === 1));
    for (let rounds = 0; rounds < 20; rounds++) {
      await until(() => false, 1_000);
      for (const one of both) if (one.handOver.aborted) await one.end();
    }
    assert.equal(serving().length, 1);
    const [winner] = serving();
    assert.equal(await until(() => winner?.handOver.aborted === true, 60_000), false);
  });

  it("without devices bridges serve side by side, until one comes that has them [DEL-9]", async (t) => {
    const { begin, until } = await setUp(t);
    const shared = [begin("shared"), begin("shared")];
    for (const one of shared) assert.ok(await until(() => one.isServing));
    assert.equal(await until(() => shared.some(({ handOver }) => handOver.aborted), 10_000), false);
    const alone = begin();
    assert.ok(await until(() => shared.every(({ handOver }) => handOver.aborted)));
    assert.equal(alone.isServing, false);
    for (const one of shared) await one.end();
    assert.ok(await until(() => alone.isServing));
  });

  it("back without devices, all that stand in line serve again, side by side [DEL-9]", async (t) => {
    const { begin, until } = await setUp(t);
    const alone = begin();
    assert.ok(await alone.begun);
    const inLine = [begin("shared", false), begin("shared", false)];
    assert.equal(await until(() => inLine.some(({ isServing }) => isServing), 60_000), false);
    await alone.end();
    assert.ok(await until(() => inLine.some(({ isServing }) => isServing), 15_000));
    assert.ok(await until(() => inLine.every(({ isServing }) => isServing), 60_000));
    assert.equal(await until(() => inLine.some(({ handOver }) => handOver.aborted), 10_000), false);
  });

  it("who has handed over without devices does not come back while another still drains [ENC-2]", async (t) => {
    const { begin, until } = await setUp(t);
    const [quick, slow] = [begin("shared"), begin("shared")];
    for (const one of [quick, slow]) assert.ok(await until(() => one.isServing));
    const alone = begin();
    assert.ok(await until(() => quick.handOver.aborted && slow.handOver.aborted));
    await quick.end();
    const inLine = begin("shared", false);
    assert.equal(await until(() => inLine.isServing || alone.isServing, PATIENCE_MS - 10_000), false);
    await slow.end();
    assert.ok(await until(() => alone.isServing, 5_000));
    assert.equal(await until(() => inLine.isServing, 60_000), false);
  });

  it("a bridge that hands over is not ready, though it has the place still", async () => {
    const says = { asked: 0n, isMute: false };
    const { leadership, clock } = await servingOn(says);
    assert.deepEqual(leadershipReadiness(leadership), { name: "leadership", ok: true });
    says.asked += 1n;
    await clock.advance(1_000);
    assert.deepEqual([leadership.isServing, leadershipReadiness(leadership).ok], [true, false]);
    await leadership.end();
  });

  it("a database that no longer answers does not keep a bridge from ending", async (t) => {
    const clock = new ManualClock(Date.UTC(2026, 0, 1));
    // Its connections end before its database goes.
    let end = () => {};
    t.after(() => end());
    const { url } = await testDatabase(t);
    const { proxied, fallSilent, ...proxy } = await silentOnDemand(url);
    end = proxy.end;
    const connection = await openLeadershipConnection(proxied, { clock });
    assert.ok(await connection.take("alone"));
    fallSilent();
    let isClosed = false;
    const closed = connection.close().then(() => {
      isClosed = true;
    });
    await systemClock.sleep(50);
    assert.equal(isClosed, false, "it is given the time to say goodbye");
    await clock.advance(2_000);
    await closed;
  });

  /** A way to the database on which, once told so, nothing comes back, not even its end. */
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

  interface Says {
    asked: bigint;
    isMute: boolean;
    earlier?: EarlierAskings;
    takesNoWrites?: boolean;
  }

  /** A place that nobody else wants until told so, without a database; `says` is asked before each answer. */
  function fakePlace(says: Says) {
    const opened: { asks: number; takes: number; isClosed: boolean }[] = [];
    const stood: bigint[] = [];
    const open = async (): Promise<LeadershipConnection> => {
      const seen = { asks: 0, takes: 0, isClosed: false };
      opened.push(seen);
      return {
        broken: new AbortController().signal,
        self: { pid: opened.length, since: "then" },
        ask: async () => ++says.asked,
        earlier: async () => says.earlier ?? { inVain: 0, lastAt: undefined, alone: true },
        stood: async (ticket) => {
          if (says.takesNoWrites === true)
            throw new Error("cannot execute UPDATE in a read-only transaction");
          stood.push(ticket);
        },
        asked: async () => {
          seen.asks += 1;
          if (says.isMute) throw new Error("Query read timeout");
          return says.asked;
        },
        isVacant: async () => says.earlier === undefined,
        take: async () => {
          seen.takes += 1;
          return true;
        },
        share: async () => {},
        freeLeases: async () => 0,
        endOthers: async () => 0,
        endPast: async () => {},
        close: async () => {
          seen.isClosed = true;
        },
      };
    };
    return { open, opened, stood };
  }

  async function servingOn(says: Says, asks = true) {
    const clock = new ManualClock(Date.UTC(2026, 0, 1));
    const place = fakePlace(says);
    const log = pino({ level: "silent" });
    const leadership = new Leadership({
      open: place.open,
      mode: "alone",
      patienceMs: PATIENCE_MS,
      clock,
      log,
    });
    const begun = leadership.begin(asks, new AbortController().signal);
    for (let seconds = 0; seconds < 15 && !leadership.isServing; seconds++) await clock.advance(1_000);
    assert.ok(await begun);
    return { ...place, leadership, clock };
  }

  it("who hands over keeps the place while it drains, for the server ends a connection that is silent [ENC-2]", async () => {
    const says = { asked: 0n, isMute: false };
    const { opened, leadership, clock } = await servingOn(says);
    says.asked += 1n;
    await clock.advance(1_000);
    assert.ok(leadership.handOver.aborted);
    const [connection] = opened;
    assert.ok(connection);
    for (let seconds = 0; seconds < 60; seconds++) {
      const before = connection.asks;
      await clock.advance(1_000);
      assert.ok(connection.asks > before && !connection.isClosed, `silent after ${seconds} s`);
    }
    await leadership.end();
    assert.ok(connection.isClosed);
  });

  it("a connection that answers no more is given up, and the place taken on another [ENC-2]", async () => {
    const says = { asked: 0n, isMute: false };
    const { opened, leadership, clock } = await servingOn(says);
    says.isMute = true;
    await clock.advance(1_000);
    assert.deepEqual(
      opened.map(({ isClosed }) => isClosed),
      [true],
      "the server may have given the place to another",
    );
    says.isMute = false;
    await clock.advance(1_000);
    assert.deepEqual([opened.length, opened[1]?.takes, leadership.handOver.aborted], [2, 1, false]);
    await leadership.end();
  });

  it("each further asking in vain is waited for longer, whatever another machine's clock says [ENC-2]", async () => {
    const clock = new ManualClock(Date.UTC(2026, 0, 1));
    const log = pino({ level: "silent" });
    /** When a bridge asks that is started now, after so many that asked in vain. */
    const asksAfter = async (inVain: number, lastAt: number | undefined) => {
      const says: Says = { asked: 100n, isMute: false, earlier: { inVain, lastAt, alone: false } };
      const { open } = fakePlace(says);
      const startedAt = clock.now();
      const leadership = new Leadership({ open, mode: "alone", patienceMs: PATIENCE_MS, clock, log });
      const begun = leadership.begin(true, new AbortController().signal);
      await clock.advance(0);
      while (says.asked === 100n) await clock.advance(1_000);
      await begun;
      await leadership.end();
      return (clock.now() - startedAt) / 1_000;
    };
    const waits = [];
    for (const inVain of [2, 3, 4, 5, 6, 1_000]) waits.push(await asksAfter(inVain, clock.now()));
    assert.deepEqual(waits, [0, 60, 120, 240, 300, 300]);
    assert.equal(await asksAfter(6, clock.now() + 3_600_000), 300, "that clock is an hour ahead");
    assert.equal(await asksAfter(6, clock.now() - 290_000), 10, "most of the time has passed");
    assert.equal(await asksAfter(6, undefined), 0, "of an older release's asking no time is known");
  });

  it("only who asked itself, and serves for a minute, has not asked in vain [ENC-2]", async () => {
    const says = { asked: 100n, isMute: false };
    const asked = await servingOn(says);
    await asked.clock.advance(59_000);
    assert.deepEqual(asked.stood, []);
    for (let seconds = 0; seconds < 60; seconds++) await asked.clock.advance(1_000);
    assert.deepEqual(asked.stood, [101n], "once");
    await asked.leadership.end();

    const followed = await servingOn(says);
    says.asked += 1n;
    for (let seconds = 0; seconds < 90; seconds++) await followed.clock.advance(1_000);
    assert.deepEqual(followed.stood, [], "it was to hand over before");
    await followed.leadership.end();

    const waited = await servingOn(says, false);
    for (let seconds = 0; seconds < 90; seconds++) await waited.clock.advance(1_000);
    assert.deepEqual(waited.stood, [], "the number is that of a bridge that is gone");
    await waited.leadership.end();
  });

  it("a database that takes no writes takes no place away [ENC-2]", async () => {
    const says: Says = { asked: 0n, isMute: false, takesNoWrites: true };
    const { opened, stood, leadership, clock } = await servingOn(says);
    for (let seconds = 0; seconds < 80; seconds++) await clock.advance(1_000);
    assert.deepEqual([opened.length, leadership.isServing, leadership.handOver.aborted], [1, true, false]);
    says.takesNoWrites = false;
    for (let seconds = 0; seconds < 10; seconds++) await clock.advance(1_000);
    assert.deepEqual(stood, [1n], "and is told once it takes them");
    await leadership.end();
  });
});
