// Two roles on one database: the owner of the tables migrates, and the bridge's role works with the tables alone.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";
import { createLedger } from "../../../../src/bridge/ledger/ledger.ts";
import { migrate } from "../../../../src/bridge/ledger/migrate.ts";
import { createLedgerPool } from "../../../../src/bridge/ledger/postgres.ts";
import { openProcessConnection, releaseEnded } from "../../../../src/bridge/ledger/processes.ts";
import type { RetentionTimes } from "../../../../src/bridge/ledger/retention.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { EventId } from "../../../../src/domain/identifiers.ts";
import { testDatabase } from "../../../support/database.ts";
import {
  ACCEPTED,
  arrivals,
  BUCKET,
  finishedStore,
  ghost,
  job,
  LEASE_MS,
  NOTICE_INTERVAL_MS,
  PART,
  ROOM_GATE_MS,
  stored,
  T0,
} from "../../../support/ledger.ts";

/** As docs/operating/replicated-database.md tells an operator to. */
const rolesOf = (owner: string, worker: string, database: string, password: string) => [
  `CREATE ROLE ${owner} LOGIN PASSWORD '${password}'`,
  `CREATE ROLE ${worker} LOGIN PASSWORD '${password}'`,
  `GRANT CREATE, CONNECT ON DATABASE ${database} TO ${owner}`,
  `GRANT USAGE, CREATE ON SCHEMA public TO ${owner}`,
  "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
  `GRANT USAGE ON SCHEMA public TO ${worker}`,
  `GRANT ${owner} TO CURRENT_USER`,
  `ALTER DEFAULT PRIVILEGES FOR ROLE ${owner} IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO ${worker}`,
  `ALTER DEFAULT PRIVILEGES FOR ROLE ${owner} IN SCHEMA public GRANT USAGE ON SEQUENCES TO ${worker}`,
];

describe("a database whose tables are another role's", () => {
  it("is migrated by that role alone, and the bridge's role can do all of the bridge's work [DEL-9]", async (t) => {
    let end = async () => {};
    t.after(() => end());
    const database = await testDatabase(t, { migrated: false });
    const [owner, worker] = [`owner_${database.name}`, `worker_${database.name}`];
    const password = database.name;
    for (const sql of rolesOf(owner, worker, database.name, password)) await database.pool.query(sql);
    const as = (role: string) => {
      const url = new URL(database.url);
      [url.username, url.password] = [role, password];
      return url.href;
    };
    const [owners, workers] = [owner, worker].map((role) =>
      createLedgerPool({ connectionString: as(role), max: 4 }),
    ) as [ReturnType<typeof createLedgerPool>, ReturnType<typeof createLedgerPool>];
    end = async () => {
      await Promise.all([owners.end(), workers.end()]);
      await database.pool.query(`DROP OWNED BY ${worker}, ${owner} CASCADE`);
      await database.pool.query(`DROP ROLE ${worker}, ${owner}`);
    };

    await assert.rejects(migrate(workers), {
      code: "database_unavailable",
      hint: /drawbridge bridge migrate/,
    });
    assert.ok((await migrate(owners)) > 0);
    assert.equal(await migrate(workers), 0);
    await assert.rejects(workers.query("DROP TABLE bridge_rooms"), { code: "42501" });
    await assert.rejects(workers.query("CREATE TABLE other (n integer)"), { code: "42501" });

    const keys = ContentKeys.parse(Buffer.alloc(32, 7).toString("base64"));
    const ledger = createLedger(workers, keys, {
      noticeIntervalMs: NOTICE_INTERVAL_MS,
      roomGateMs: ROOM_GATE_MS,
      isGhost: () => false,
    });
    const connection = await openProcessConnection(as(worker), () => {});
    assert.deepEqual((await connection.observe()).live, [connection.process]);
    assert.deepEqual(await connection.take(["audit"]), ["audit"]);
    await connection.notify("delegations");
    await releaseEnded(workers, T0);
    await ledger.intake.admit({
      transactionId: "t1",
      ingress: "transaction",
      receivedAt: T0,
      ...arrivals(job("q1")),
      malformed: [],
      roomState: [],
      redacted: [],
      capacity: { roomQueue: 64, globalQueue: 4_096 },
    });
    const holder = connection.process;
    const [one] = await ledger.delegations.claim({ holder, limit: 1, now: T0, leaseUntil: T0 + LEASE_MS });
    assert.ok(one);
    await ledger.delegations.beginDispatch(one.lease, BUCKET, T0);
    await ledger.delegations.recordAccepted(one.lease, ACCEPTED, T0);
    const sends = await ledger.delegations.recordReply(one, { parts: [PART], agentVersion: undefined }, T0);
    assert.ok(sends !== "canceled" && sends[0] !== undefined);
    await ledger.delegations.recordSent(sends[0].sendId, "$sent" as EventId);
    await ledger.delegations.finish(
      one.lease,
      { state: "completed", stage: "reply", reason: "answered" },
      T0,
    );
    assert.equal((await ledger.audit.export(10, async () => {}, T0)).length, 1);
    await finishedStore(workers, ghost());
    assert.deepEqual(await stored(workers, ghost()), {});
    assert.ok(await ledger.marker.advance(await ledger.marker.read()));
    const year = 365 * 24 * 60 * 60 * 1_000;
    const kinds = ["delegations", "audit", "notices", "rooms", "handledEvents", "malformedEvents"] as const;
    const others = ["messageIndices", "deviceInbox", "sessions", "contexts"] as const;
    const times = Object.fromEntries([...kinds, ...others].map((kind) => [kind, year]));
    await ledger.retention.round(times as unknown as RetentionTimes, systemClock);
    await connection.close();
  });
});
