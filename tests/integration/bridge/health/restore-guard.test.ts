// A database that was put back, on a real one whose marker is set back as a restore sets it. The homeserver's copy is held
// here; that a real homeserver keeps it is shown in tests/failover.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { pino } from "pino";
import { createRestoreGuard } from "../../../../src/bridge/health/restore-guard.ts";
import { acceptDatabase } from "../../../../src/bridge/ledger/database-marker.ts";
import { openProcessConnection } from "../../../../src/bridge/ledger/processes.ts";
import type { Outcome } from "../../../../src/bridge/matrix/request-result.ts";
import type { UserId } from "../../../../src/domain/identifiers.ts";
import {
  arrivals,
  claimEnvelopes,
  envelope,
  ghost,
  job,
  ledgerFixture,
  NOTICE_INTERVAL_MS,
  room,
  T0,
} from "../../../support/ledger.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

type Copy = { database: string; count: number };
const PUT_BACK = { code: "database_unavailable", message: /older than what was done/ };
const NO_DATABASE = "00000000-0000-0000-0000-000000000000";
/** An observation that a test waits for without end is a failure. */
const noticed = (guard: ReturnType<typeof createRestoreGuard>) =>
  assert.rejects(Promise.race([guard.wentBack, new Promise((resolve) => setImmediate(resolve))]), PUT_BACK);
const RUNS = new AbortController().signal;
const NEVER = () => assert.fail("the homeserver answers");

async function guarded(t: TestContext) {
  const fixture = await ledgerFixture(t);
  const clock = new ManualClock(T0);
  const homeserver = {
    copy: undefined as Copy | undefined,
    answers: true,
    databaseMarker: async (): Promise<Outcome<Copy | undefined>> =>
      homeserver.answers
        ? { kind: "ok", value: homeserver.copy }
        : { kind: "retry", cause: "network", afterMs: 1_000, errcode: undefined },
    setDatabaseMarker: async (_: UserId, marker: { database: string | undefined; count: number }) => {
      homeserver.copy = marker as Copy;
      return { kind: "ok", value: undefined } as const;
    },
  };
  const guard = (isTurn = true) =>
    createRestoreGuard({
      ...{ marker: fixture.ledger.marker, homeserver, user: "@drawbridge:a.test" as UserId },
      ...{ isTurn: () => isTurn, clock, log: pino({ level: "silent" }) },
    });
  /** What `work` commits is lost, as far as the marker tells. */
  const losing = async (work: () => Promise<unknown>) => {
    const before = await fixture.ledger.marker.read();
    await work();
    await fixture.pool.query("UPDATE bridge_database_marker SET database = $1, count = $2", [
      before.database,
      before.count,
    ]);
  };
  return { ...fixture, clock, homeserver, guard, losing };
}

describe("RestoreGuard", () => {
  it("refuses a database that has come less far than the homeserver knows, until it is accepted [INT-3]", async (t) => {
    const { guard, losing, pool, ledger, admit, rows } = await guarded(t);
    const first = guard();
    await first.check(RUNS, NEVER);
    await first.round();
    await admit([], { ...arrivals(job("q1"), envelope("e1", { room: room("other") })) });
    await pool.query(
      "INSERT INTO bridge_ghosts (ghost_mxid, device_id, rooms_since, created_at) VALUES ($1, 'DEVICE', 'then', now())",
      [ghost()],
    );
    await losing(() => first.round());

    await assert.rejects(guard().check(RUNS, NEVER), PUT_BACK);
    await assert.rejects(guard().check(RUNS, NEVER), PUT_BACK);
    const ended = await acceptDatabase(pool, T0, NOTICE_INTERVAL_MS);
    assert.deepEqual(ended, { delegations: 1, envelopes: 1 });
    assert.deepEqual(await rows("SELECT state, terminal_reason AS reason FROM bridge_delegations"), [
      { state: "canceled", reason: "operator_canceled" },
    ]);
    assert.deepEqual(await claimEnvelopes(ledger), []);
    assert.equal(await ledger.roomPositions.get(ghost()), undefined);
    const later = guard();
    await later.check(RUNS, NEVER);
    await later.round();
    await guard().check(RUNS, NEVER);
  });

  it("accepts no database that a bridge works on", async (t) => {
    const { guard, pool, url, ledger, admit, rows } = await guarded(t);
    await guard().round();
    await admit([], arrivals(job("q1")));
    const before = await ledger.marker.read();
    const bridge = await openProcessConnection(url, () => {});
    t.after(() => bridge.close());
    await assert.rejects(acceptDatabase(pool, T0, NOTICE_INTERVAL_MS), { code: "usage" });
    assert.deepEqual(await ledger.marker.read(), before);
    assert.deepEqual(await rows("SELECT state FROM bridge_delegations"), [{ state: "queued" }]);
  });

  it("takes a database that nothing is known of, that is another one, or that is ahead", async (t) => {
    const { guard, homeserver, ledger } = await guarded(t);
    await guard().check(RUNS, NEVER);
    homeserver.copy = { database: NO_DATABASE, count: 9 };
    await guard().check(RUNS, NEVER);
    await guard().round();
    await ledger.marker.advance(await ledger.marker.read());
    await guard().check(RUNS, NEVER);
  });

  for (const lost of [1, 2, 3]) {
    it(`notices in each process that ${lost} counts were lost, and at the next start [INT-3]`, async (t) => {
      const { guard, losing, homeserver, ledger } = await guarded(t);
      const [teller, other] = [guard(), guard(false)];
      for (const one of [teller, other]) await one.check(RUNS, NEVER);
      await teller.round();
      await losing(async () => {
        for (let count = 0; count < lost; count++) await teller.round();
        await other.round();
      });
      const before = { copy: homeserver.copy, own: await ledger.marker.read() };
      for (const one of [teller, other]) {
        await one.round();
        await one.round();
        await one.drain();
        await noticed(one);
      }
      assert.deepEqual({ copy: homeserver.copy, own: await ledger.marker.read() }, before);
      await assert.rejects(guard().check(RUNS, NEVER), PUT_BACK);
    });
  }

  it("notices by the homeserver's copy what another process had seen before it ended", async (t) => {
    const { guard, losing, homeserver } = await guarded(t);
    const [first, next] = [guard(), guard()];
    await first.round();
    await next.check(RUNS, NEVER);
    await losing(() => first.round());
    const { copy } = homeserver;
    await next.round();
    await noticed(next);
    assert.deepEqual(homeserver.copy, copy);
  });

  it("does not count on a database that is set back between the look at it and the count", async (t) => {
    const { guard, ledger, homeserver } = await guarded(t);
    const teller = guard();
    await teller.round();
    await teller.round();
    const marker = await ledger.marker.read();
    assert.deepEqual(await ledger.marker.advance({ ...marker, count: marker.count + 1 }), undefined);
    assert.deepEqual(await ledger.marker.advance({ ...marker, database: NO_DATABASE }), undefined);
    assert.deepEqual(await ledger.marker.read(), homeserver.copy);
  });

  it("has work wait for the homeserver, and tells that once", async (t) => {
    const { guard, homeserver, clock } = await guarded(t);
    homeserver.answers = false;
    let calls = 0;
    const checked = guard().check(RUNS, () => {
      calls += 1;
    });
    const until = async (waits: number) => {
      while (clock.wakeTimes.length < waits) await new Promise((resolve) => setImmediate(resolve));
    };
    await until(1);
    clock.advance(1_000);
    await until(1);
    homeserver.answers = true;
    clock.advance(1_000);
    await checked;
    assert.equal(calls, 1);
  });
});
