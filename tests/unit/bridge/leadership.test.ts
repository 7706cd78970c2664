// The leader's connection, its requests and their postponement, on connections without a database.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { pino } from "pino";
import { leadershipReadiness } from "../../../src/bridge/health/readiness.ts";
import { type Candidacy, Leadership } from "../../../src/bridge/leadership.ts";
import type { LeadershipConnection, RequestHistory } from "../../../src/bridge/ledger/leadership.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const HAND_OVER_TIMEOUT_MS = 35_000;

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

describe("Leadership", () => {
  it("a leader that hands over is not ready while it drains", async () => {
    const state = { requested: 0n, isMute: false };
    const { leadership, clock } = await leaderOn(state);
    assert.deepEqual(leadershipReadiness(leadership), { name: "leadership", ok: true });
    state.requested += 1n;
    await clock.advance(1_000);
    assert.deepEqual([leadership.isLeader, leadershipReadiness(leadership).ok], [true, false]);
    await leadership.resign();
  });

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
