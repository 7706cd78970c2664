// What a claim costs while 10,000, 100,000 and a million delegations wait.
import { Client } from "pg";
import { type LedgerFixture, ledgerFixture, T0 } from "../tests/support/ledger.ts";
import { TEST_POSTGRES_URL } from "../tests/support/test-server.ts";
import type { Bench, BenchContext } from "./bench.ts";
import { median, ms, percentile, timed } from "./support/measure.ts";
import { size } from "./support/size.ts";

const WAITING = size([10_000, 100_000, 1_000_000], [1_000, 10_000, 20_000]);
const ROOMS = 1_000;
const CLAIMS = size(300, 50);
const WARM_UP = 50;
const LIMIT = 8;
const COST_MAX = 1.2;

const FILL = `
  INSERT INTO bridge_delegations (matrix_event_id, ghost_mxid, room_id, room_seq, room_ordinal, room_siblings,
    sender_mxid, origin_server_ts, agent_id, target_fingerprint, state, admitted_at)
  SELECT '$' || n, '@agent_docs:a.test', '!room' || n % ${ROOMS}, 1 + n / ${ROOMS}, 0, 1, '@alice:a.test', 0, 'docs',
    'sha256:target', 'queued', $2
  FROM generate_series(0, $1::integer - 1) n`;
const FILL_ROOMS = `
  INSERT INTO bridge_rooms (room_id, next_seq, head_at, open_count)
  SELECT '!room' || r, 1 + $1::integer / ${ROOMS}, $2::timestamptz + r * interval '1 millisecond', $1::integer / ${ROOMS}
  FROM generate_series(0, ${ROOMS} - 1) r`;

/** By a connection without the time limits of the ledger's. */
async function filled({ url }: LedgerFixture, waiting: number): Promise<void> {
  const admitted = new Date(T0 - 60_000);
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(FILL, [waiting, admitted]);
    await client.query(FILL_ROOMS, [waiting, admitted]);
    await client.query("VACUUM ANALYZE bridge_delegations");
    await client.query("ANALYZE bridge_rooms");
    await client.query("CHECKPOINT");
  } finally {
    await client.end();
  }
}

/** Milliseconds of each claim; what was claimed is put back, behind the other rooms. */
async function claims({ delegations }: LedgerFixture): Promise<number[]> {
  let now = T0;
  const durations: number[] = [];
  for (let n = 0; n < WARM_UP + CLAIMS; n++) {
    now += 1;
    const request = { holder: "one", limit: LIMIT, now, leaseUntil: now + 30_000 };
    const [took = 0] = await timed(1, async () => {
      const claimed = await delegations.claim(request);
      if (claimed.length !== LIMIT) throw new Error(`${claimed.length} were claimed`);
      leases = claimed.map(({ lease }) => lease);
    });
    if (n >= WARM_UP) durations.push(took);
    for (const lease of leases) await delegations.defer(lease, now);
  }
  return durations.sort((a, b) => a - b);
}
let leases: Parameters<LedgerFixture["delegations"]["defer"]>[0][] = [];

async function run({ postgresUrl, progress }: BenchContext) {
  process.env[TEST_POSTGRES_URL] = postgresUrl;
  const medians: { readonly waiting: number; readonly durations: readonly number[] }[] = [];
  for (const waiting of WAITING) {
    const closing: (() => unknown)[] = [];
    const fixture = await ledgerFixture({ after: (close: () => unknown) => closing.push(close) }, 4);
    try {
      await filled(fixture, waiting);
      medians.push({ waiting, durations: await claims(fixture) });
      progress(`${waiting.toLocaleString("en")} waiting: ${ms(median(medians.at(-1)?.durations ?? []))}`);
    } finally {
      for (const close of closing) await close();
    }
  }
  const base = median(medians[0]?.durations ?? []);
  return medians.map(({ waiting, durations }) => {
    const cost = median(durations) / base;
    return {
      measure: `a claim of ${LIMIT} with ${waiting.toLocaleString("en")} waiting, median`,
      ours: ms(median(durations)),
      reference: `${ms(base)} (${WAITING[0]?.toLocaleString("en")})`,
      bar: `≤ ${COST_MAX} × the reference`,
      outcome: `${cost.toFixed(2)} ×; p90 ${ms(percentile(durations, 90))}`,
      met: cost <= COST_MAX,
      numbers: { ours: median(durations), reference: base, unit: "ms" },
    };
  });
}

export const bench: Bench = {
  name: "Claim",
  minutes: 5,
  description: `Claims of ${LIMIT} delegations in ${ROOMS.toLocaleString("en")} rooms, ${CLAIMS} times, each put back at once, while so many wait in all.`,
  run,
};
