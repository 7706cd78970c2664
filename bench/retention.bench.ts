// Retention: what deleting a batch costs, and a round that finds nothing to delete, with a hundred thousand delegations
// that have ended and with ten millions, in the same tables with all their indices.

import { Client, type Pool } from "pg";
import { migrate } from "../src/bridge/ledger/migrate.ts";
import { createLedgerPool } from "../src/bridge/ledger/postgres.ts";
import { createRetention } from "../src/bridge/ledger/retention.ts";
import { systemClock } from "../src/domain/clock.ts";
import type { Bench, BenchContext } from "./bench.ts";
import { createDatabase } from "./support/create-database.ts";
import { median, ms, percentile } from "./support/measure.ts";
import { size } from "./support/size.ts";

const DAY_MS = 24 * 60 * 60_000;
const SIZES = size([100_000, 10_000_000], [20_000, 40_000]);
const ROOMS = 2_000;
const BATCH = 500;
const ROUNDS = size(40, 5);
/** Kept for a year: the rows end over two years, so that half of them are due. */
const TIMES = {
  delegations: 365 * DAY_MS,
  audit: 365 * DAY_MS,
  notices: 365 * DAY_MS,
  rooms: 365 * DAY_MS,
  handledEvents: 365 * DAY_MS,
  malformedEvents: 365 * DAY_MS,
  messageIndices: 365 * DAY_MS,
  deviceInbox: 365 * DAY_MS,
  sessions: 365 * DAY_MS,
  contexts: 365 * DAY_MS,
};

/** Keys and indices are made after the rows, which is much faster. */
const PREPARE = `
  CREATE TEMP TABLE kept_keys AS SELECT conrelid::regclass AS owner, conname, contype, pg_get_constraintdef(oid) AS definition
    FROM pg_constraint WHERE contype IN ('p', 'u') AND conrelid = 'bridge_delegations'::regclass
      OR contype = 'f' AND confrelid = 'bridge_delegations'::regclass;
  CREATE TEMP TABLE kept AS SELECT indexdef FROM pg_indexes i WHERE tablename = 'bridge_delegations'
    AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conname = i.indexname);
  DO $$ DECLARE one record; BEGIN
    FOR one IN SELECT * FROM kept_keys ORDER BY contype
    LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', one.owner, one.conname); END LOOP;
    FOR one IN SELECT indexname FROM pg_indexes WHERE tablename = 'bridge_delegations'
    LOOP EXECUTE format('DROP INDEX %I', one.indexname); END LOOP;
  END $$`;
const FILL = `
  INSERT INTO bridge_delegations (matrix_event_id, ghost_mxid, room_id, room_seq, room_ordinal, room_siblings,
    sender_mxid, origin_server_ts, agent_id, target_fingerprint, state, a2a_attempted, admitted_at, accepted_at,
    reply_at, terminal_at, terminal_stage, terminal_reason)
  SELECT '$' || md5(n::text) || 'abcdefghijk', '@agent_docs:a.test', '!room' || n % ${ROOMS} || ':a.test', n / ${ROOMS}, 0, 1,
    '@user' || n % 100 || ':a.test', 0, 'docs', 'sha256:' || repeat('0', 64), 'completed', true, at, at, at, at,
    'reply', 'answered'
  FROM (SELECT n, $1::timestamptz - interval '2 years' * (1 - n / $3::float8) AS at
        FROM generate_series($2::bigint, $4::bigint) n) rows`;
const FINISH = `
  DO $$ DECLARE one record; statement text; BEGIN
    FOR one IN SELECT * FROM kept_keys ORDER BY contype DESC
    LOOP EXECUTE format('ALTER TABLE %s ADD CONSTRAINT %I %s', one.owner, one.conname, one.definition); END LOOP;
    FOR statement IN SELECT indexdef FROM kept LOOP EXECUTE statement; END LOOP;
  END $$;
  INSERT INTO bridge_sends (delegation_id, purpose, ordinal, transaction_id, event_type, state, event_id)
    SELECT id, 'reply', 0, 't' || id, 'm.room.message', 'sent', '$s' || id FROM bridge_delegations
    ORDER BY terminal_at LIMIT ${BATCH * ROUNDS * 2};
  ANALYZE bridge_delegations`;

/** A database with so many delegations that have ended. */
async function filled(context: BenchContext, size: number, now: number): Promise<Pool> {
  const url = await createDatabase(context.postgresUrl, `bench_retention_${size}`);
  const pool = createLedgerPool({ connectionString: url, max: 1 });
  await migrate(pool);
  // A connection without the time limits of the ledger's.
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query(
    "SET synchronous_commit = off; SET maintenance_work_mem = '512MB'; SET work_mem = '64MB'",
  );
  await client.query(PREPARE);
  for (let from = 1; from <= size; from += 1_000_000) {
    const to = Math.min(size, from + 999_999);
    await client.query(FILL, [new Date(now), from, size, to]);
    context.progress(`${to} of ${size} rows`);
  }
  await client.query(FINISH);
  await client.query("RESET synchronous_commit");
  await client.query("VACUUM bridge_delegations");
  await client.query("CHECKPOINT");
  await client.end();
  return pool;
}

async function run(context: BenchContext) {
  const now = systemClock.now();
  const pools: Pool[] = [];
  try {
    for (const size of SIZES) pools.push(await filled(context, size, now));
    const sides = pools.map((pool) => ({
      retention: createRetention(pool, BATCH),
      batches: [] as number[],
      idle: [] as number[],
    }));
    const clock = { now: () => now };
    const nothing = { ...TIMES, delegations: 800 * DAY_MS };
    // The sides take turns, so that other work on the machine meets both.
    for (let round = 0; round < ROUNDS; round++) {
      for (const { retention, batches } of sides) {
        const begun = performance.now();
        const { deleted } = await retention.round(TIMES, clock);
        batches.push(performance.now() - begun);
        if (deleted.get("delegations") !== BATCH) throw new Error("a batch was not full");
      }
    }
    for (let round = 0; round < ROUNDS; round++) {
      for (const { retention, idle } of sides) {
        const begun = performance.now();
        await retention.round(nothing, clock);
        idle.push(performance.now() - begun);
      }
    }
    const row = (measured: string, of: (side: (typeof sides)[number]) => number) => {
      const [reference = 0, ours = 0] = sides.map(of);
      return {
        measure: measured,
        ours: ms(ours),
        reference: `${ms(reference)} (${SIZES[0]?.toLocaleString("en")} rows)`,
        bar: "≤ 2 × the reference",
        outcome: `${(ours / reference).toFixed(2)} of it`,
        met: ours <= 2 * reference,
        numbers: { ours, reference, unit: "ms" },
      };
    };
    return [
      row(`a batch of ${BATCH} delegations, ${SIZES[1]?.toLocaleString("en")} rows, median`, ({ batches }) =>
        median(batches),
      ),
      row("a batch, p90", ({ batches }) =>
        percentile(
          batches.toSorted((a, b) => a - b),
          90,
        ),
      ),
      row("a round that finds nothing, median", ({ idle }) => median(idle)),
    ];
  } finally {
    for (const pool of pools) await pool.end();
  }
}

export const bench: Bench = {
  name: "Retention",
  minutes: 15,
  description:
    `A round of retention that deletes ${BATCH} delegations with the events of their answers, of which half are due, in a ` +
    "table of ten million delegations that have ended, with all its indices; beside it the same in a table of a hundred " +
    `thousand. ${ROUNDS} rounds each, in turns; a round looks at every other kind of row too.`,
  run,
};
