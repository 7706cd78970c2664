// The server has committed, and its answer is lost: whoever asked cannot know, and does it again. Each write of the bridge
// stands that.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { pino } from "pino";
import { createAuditExporter } from "../../../../src/bridge/audit/exporter.ts";
import { StoreWriter } from "../../../../src/bridge/crypto/store-writer.ts";
import type { HandledTransaction } from "../../../../src/bridge/intake/handle-transaction.ts";
import { throughFailover } from "../../../../src/bridge/intake/handle-transaction.ts";
import { createClaimsOfUnknownCommits } from "../../../../src/bridge/ledger/claims-of-unknown-commits.ts";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";
import type { ClaimedDelegation } from "../../../../src/bridge/ledger/leases.ts";
import { createLedger, type Ledger } from "../../../../src/bridge/ledger/ledger.ts";
import { createLedgerPool } from "../../../../src/bridge/ledger/postgres.ts";
import { isPassing } from "../../../../src/bridge/ledger/postgres-servers.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { EventId } from "../../../../src/domain/identifiers.ts";
import { eventually } from "../../../support/encrypted-bridge.ts";
import {
  ACCEPTED,
  arrivals,
  BUCKET,
  event,
  finishedStore,
  ghost,
  job,
  LEASE_MS,
  ledgerFixture,
  NOTICE_INTERVAL_MS,
  PART,
  ROOM_GATE_MS,
  record,
  room,
  stored,
  T0,
} from "../../../support/ledger.ts";
import { temporaryFolder } from "../../../support/temporary.ts";
import { databaseProxy } from "./database-proxy.ts";

/** A ledger whose database answers by way of a proxy, and one that looks at the same rows directly. */
async function doubtful(t: TestContext) {
  // Before the database is dropped.
  t.after(() => pool.end());
  const direct = await ledgerFixture(t);
  const proxy = await databaseProxy(t, direct.url);
  const pool = createLedgerPool({ connectionString: proxy.url, max: 4 });
  pool.on("error", () => {});
  const keys = ContentKeys.parse(Buffer.alloc(32, 7).toString("base64"));
  const ledger = createLedger(pool, keys, {
    noticeIntervalMs: NOTICE_INTERVAL_MS,
    roomGateMs: ROOM_GATE_MS,
    isGhost: (user) => user.startsWith("@agent_"),
  });
  const doubted = async (text: string, work: () => Promise<unknown>) => {
    proxy.loseAnswerTo(text);
    await assert.rejects(work, isPassing, text);
    assert.ok(proxy.hasLost, `the answer to ${text} was not lost`);
  };
  return { direct, proxy, pool, ledger, doubted };
}

const admission = () => ({
  transactionId: "t1",
  ingress: "transaction" as const,
  receivedAt: T0,
  ...arrivals(job("q1"), job("q2")),
  malformed: [],
  roomState: [],
  redacted: [],
  capacity: { roomQueue: 64, globalQueue: 4_096 },
});

describe("a commit in doubt", () => {
  it("of a transaction of the homeserver is repeated without a second delegation [INT-3]", async (t) => {
    const { direct, ledger, doubted } = await doubtful(t);
    await doubted("COMMIT", () => ledger.intake.admit(admission()));
    assert.equal((await ledger.intake.admit(admission())).replayed, true);
    assert.deepEqual(
      await direct.rows("SELECT matrix_event_id AS event FROM bridge_delegations ORDER BY 1"),
      [{ event: event("q1") }, { event: event("q2") }],
    );
    assert.deepEqual(
      await direct.rows("SELECT open_count AS open, next_seq::int AS next FROM bridge_rooms"),
      [{ open: 2, next: 3 }],
    );
  });

  it("of a question that was claimed as it was admitted gives it back at once [DEL-1] [DEL-9]", async (t) => {
    const { direct, ledger, doubted } = await doubtful(t);
    const ended: unknown[] = [];
    const asked = {
      ...admission(),
      ...arrivals(job("q1")),
      slotFor: () => ({ holder: "one", leaseUntil: T0 + LEASE_MS, end: (one: unknown) => ended.push(one) }),
    };
    await doubted("COMMIT", () => ledger.intake.admit(asked));
    await eventually("its slot is free", async () => ended.length > 0 || undefined, 5_000);
    assert.deepEqual(ended, [undefined]);
    const [again] = await direct.claim({ holder: "two" });
    assert.deepEqual([again?.sourceEventId, again?.resumedFrom], [event("q1"), "queued"]);
    assert.equal((await ledger.intake.admit(asked)).replayed, true);
    assert.equal((await direct.rows("SELECT FROM bridge_delegations WHERE lease_holder = 'two'")).length, 1);
  });

  it("of such a question is settled later where the database is away, and not once its agent may have been called [DEL-9]", async (t) => {
    const { pool, admit, claim, delegations } = await ledgerFixture(t);
    let isAway = true;
    const connect = async () => {
      if (isAway) throw new Error("Connection terminated unexpectedly");
      return await pool.connect();
    };
    const claims = createClaimsOfUnknownCommits(Object.assign(Object.create(pool), { connect }));
    const slot = { holder: "one", leaseUntil: T0 + LEASE_MS, end: () => {} };
    const called = job("q2", { room: room("s") });
    for (const question of [job("q1"), called]) {
      const { claimed } = await admit([question], { slotFor: () => slot });
      assert.ok(claimed);
      if (question === called)
        assert.equal(await delegations.beginDispatch(claimed.lease, BUCKET, T0), "begun");
      claims.add({ question, slot });
    }
    await claims.giveBackAll(T0);
    assert.equal((await claim({ holder: "two" })).length, 0);
    isAway = false;
    await claims.giveBackAll(T0);
    assert.deepEqual(
      (await claim({ holder: "two" })).map((one) => [one.sourceEventId, one.lease.fence]),
      [[event("q1"), "3"]],
    );
  });

  it("of such a question leaves what the same admission claims when it is made again [DEL-1] [DEL-9]", async (t) => {
    const { pool, admit, claim } = await ledgerFixture(t);
    const question = job("q1");
    const slot = (leaseUntil: number) => ({ holder: "one", leaseUntil, end: () => {} });
    const { claimed } = await admit([question], { slotFor: () => slot(T0 + LEASE_MS + 1) });
    assert.ok(claimed);
    const claims = createClaimsOfUnknownCommits(pool);
    claims.add({ question, slot: slot(T0 + LEASE_MS) });
    await claims.giveBackAll(T0);
    assert.deepEqual(await claim({ holder: "two" }), []);
  });

  it("is repeated while the homeserver waits, which is answered once [INT-5]", async (t) => {
    const { proxy, direct, ledger } = await doubtful(t);
    let tries = 0;
    const handle = throughFailover(
      async () => {
        tries += 1;
        return (await ledger.intake.admit(admission())) as HandledTransaction;
      },
      systemClock,
      new AbortController().signal,
    );
    proxy.loseAnswerTo("COMMIT");
    const handled = await handle("t1", []);
    assert.deepEqual([handled.replayed, tries, proxy.hasLost], [true, 2, true]);
    assert.equal((await direct.rows("SELECT FROM bridge_delegations")).length, 2);
  });

  /** Does what is left of a delegation, as a worker does with one that it claimed. */
  async function proceed(ledger: Ledger, one: ClaimedDelegation, room: Set<string>): Promise<void> {
    const { delegations } = ledger;
    const { lease } = one;
    if (one.resumedFrom !== "reply_pending") {
      if (one.a2aTaskId === undefined) {
        await delegations.beginDispatch(lease, BUCKET, T0);
        await delegations.recordAccepted(lease, ACCEPTED, T0);
      }
      await delegations.recordReply(one, { parts: [PART], agentVersion: undefined }, T0);
    }
    for (const { sendId, transactionId } of await delegations.pendingSends(lease, "reply")) {
      await delegations.recordAttempt(sendId, T0);
      // The homeserver makes one event of a transaction ID, however often it is sent.
      room.add(transactionId);
      await delegations.recordSent(sendId, "$sent" as EventId);
    }
    await delegations.finish(lease, { state: "completed", stage: "reply", reason: "answered" }, T0);
  }

  for (const statement of [
    "claim_heads",
    "begin_dispatches",
    "record_accepted",
    "record_reply",
    "record_attempt",
    "record_sent",
    "finish",
  ]) {
    it(`of ${statement} leads to one answer, one audit record and one token spent [DEL-4] [DEL-7]`, async (t) => {
      const { direct, ledger, doubted } = await doubtful(t);
      await direct.admit([job("q1")]);
      const room = new Set<string>();
      let now = T0;
      const work = async () => {
        const claim = { holder: "one", limit: 10, now, leaseUntil: now + LEASE_MS };
        for (const one of await ledger.delegations.claim(claim)) await proceed(ledger, one, room);
      };
      await doubted(statement, work);
      // The lease is released when its process is known to have lost the database; here it runs out.
      for (let round = 0; round < 3; round++) {
        now += LEASE_MS + 1;
        await work();
      }
      assert.equal(room.size, 1);
      assert.deepEqual(
        await direct.rows(
          "SELECT state, terminal_reason AS reason, reply_event_id AS reply, prompt FROM bridge_delegations",
        ),
        [{ state: "completed", reason: "answered", reply: "$sent", prompt: null }],
      );
      assert.equal((await direct.rows("SELECT FROM bridge_audit")).length, 1);
      assert.deepEqual(await direct.rows("SELECT open_count AS open FROM bridge_rooms"), [{ open: 0 }]);
      const [spent] = await direct.rows("SELECT tokens::float8 AS left FROM bridge_limiter");
      assert.equal(spent?.["left"], BUCKET.burst - 1);
    });
  }

  it("of an export leaves each audit record in the file once [AUD-2]", async (t) => {
    const { direct, ledger, doubted } = await doubtful(t);
    await direct.admit([job("q1")]);
    for (const one of await direct.claim()) await proceed(direct.ledger, one, new Set());
    const file = join(temporaryFolder(t), "audit.jsonl");
    const exporter = createAuditExporter({
      ...{ outbox: ledger.audit, clock: systemClock, log: pino({ level: "silent" }), file },
      isTurn: () => true,
    });
    t.after(() => exporter.close());
    await doubted("COMMIT", () => exporter.round());
    await exporter.round();
    assert.equal(readFileSync(file, "utf8").split("\n").length, 2);
  });

  it("of a ghost's keys is repeated by itself, and keeps the last value [ENC-2]", async (t) => {
    const { direct, pool, proxy } = await doubtful(t);
    const store = await finishedStore(direct.pool, ghost());
    const writer = new StoreWriter(pool, systemClock);
    proxy.loseAnswerTo("crypto_write");
    await writer.write(store, [record("a", "1")]);
    assert.ok(proxy.hasLost);
    await writer.write(store, [record("a", "2")]);
    assert.deepEqual(await stored(direct.pool, ghost()), { a: "2" });
  });
});
