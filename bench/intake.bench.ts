// Intake: transactions of 100 mentions over HTTP, durable when acknowledged, against the same rows written
// by one unnest statement and commit on the same server. One transaction in flight, as a homeserver sends them.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { Client, Pool } from "pg";
import { Agent, request } from "undici";
import { migrate } from "../src/bridge/ledger/migrate.ts";
import type { Bench, BenchContext } from "./bench.ts";
import { createDatabase } from "./support/create-database.ts";
import { median, ms, summarize, timed } from "./support/measure.ts";
import { size } from "./support/size.ts";

const EVENTS = 100;
const TRANSACTIONS = size(200, 10);
const ROUNDS = size(5, 1);
/** Until what runs at each transaction is compiled. */
const WARM_UP_ROUNDS = size(3, 1);
const ROOMS = 10;
/** What is sealed of a message, at the mean. */
const PROMPT_BYTES = 87;

function transaction(round: string, index: number): string {
  const events = Array.from({ length: EVENTS }, (_, n) => ({
    type: "m.room.message",
    event_id: `$${round}-${index}-${n}-abcdefghijklmnopqrstuvwxyz012345`,
    room_id: `!room${n % ROOMS}-abcdefghijklmnopqrstuvwxyz0123456789`,
    sender: `@user${n % 7}:a.test`,
    origin_server_ts: 1_760_000_000_000 + n,
    content: {
      msgtype: "m.text",
      body: `Docs: how does number ${n} of transaction ${index} find its way through all of this?`,
      "m.mentions": { user_ids: ["@agent_docs:a.test"] },
    },
    unsigned: { age: 42 },
  }));
  return JSON.stringify({ events });
}

async function startServer(databaseUrl: string): Promise<{ url: string; stop(): void }> {
  const script = new URL("./support/intake-server.ts", import.meta.url).pathname;
  const child = spawn(process.execPath, [decodeURIComponent(script), databaseUrl], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  for await (const line of createInterface({ input: child.stdout })) {
    return { url: line, stop: () => child.kill() };
  }
  throw new Error("the intake server did not start");
}

const TABLES = ["delegations", "handled_events", "rooms", "capacity"];

const COPY = `
  WITH capacity AS (
    UPDATE reference_capacity SET admitted = admitted + $18
  ), handled AS (
    INSERT INTO reference_handled_events (matrix_event_id, handled_at, body_sha256)
    SELECT event, $14, $15 FROM unnest($1::text[]) AS u (event)
  ), rooms AS (
    INSERT INTO reference_rooms AS r (room_id, next_seq, head_at, open_count)
    SELECT room_id, 1 + places, $14, places FROM unnest($16::text[], $17::int[]) AS u (room_id, places)
    ON CONFLICT (room_id) DO UPDATE SET
      next_seq = r.next_seq + excluded.open_count, open_count = r.open_count + excluded.open_count
  )
  INSERT INTO reference_delegations (matrix_event_id, ghost_mxid, room_id, sender_mxid, origin_server_ts, agent_id,
    target_fingerprint, prompt, room_seq, room_ordinal, room_siblings, state, admitted_at)
  SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::text[], $7::text[],
    $8::bytea[], $9::bigint[], $10::int[], $11::int[], $12::text[], $13::timestamptz[])`;

/** The same rows, into tables with the same keys and checks, by one statement that commits by itself. */
async function reference(client: Client, round: number): Promise<number[]> {
  const now = new Date();
  const prompt = Buffer.alloc(32 + PROMPT_BYTES, 7);
  const n = Array.from({ length: EVENTS }, (_, number) => number);
  const all = <Value>(value: Value) => n.map(() => value);
  const roomOf = (number: number) => `!room${number % ROOMS}-abcdefghijklmnopqrstuvwxyz0123456789`;
  const rooms = n.slice(0, ROOMS);
  return await timed(TRANSACTIONS, (index) => {
    const before = (round * TRANSACTIONS + index) * (EVENTS / ROOMS);
    return client.query({
      name: "reference",
      text: COPY,
      values: [
        n.map((number) => `$r${round}-${index}-${number}-abcdefghijklmnopqrstuvwxyz012345`),
        all("@agent_docs:a.test"),
        n.map(roomOf),
        n.map((number) => `@user${number % 7}:a.test`),
        n.map((number) => 1_760_000_000_000 + number),
        all("docs"),
        all(`sha256:${"0".repeat(64)}`),
        all(prompt),
        n.map((number) => 1 + before + Math.floor(number / ROOMS)),
        all(0),
        all(1),
        all("queued"),
        all(now),
        now,
        Buffer.alloc(32, 7),
        rooms.map(roomOf),
        rooms.map(() => EVENTS / ROOMS),
        EVENTS,
      ],
    });
  });
}

async function run({ postgresUrl, progress }: BenchContext) {
  const url = await createDatabase(postgresUrl, "bench_intake");
  const pool = new Pool({ connectionString: url, max: 1 });
  await migrate(pool);
  await pool.end();
  const client = new Client({ connectionString: url });
  await client.connect();
  for (const table of TABLES) {
    await client.query(`CREATE TABLE reference_${table} (LIKE bridge_${table} INCLUDING ALL)`);
  }
  await client.query("INSERT INTO reference_capacity DEFAULT VALUES");
  const server = await startServer(url);
  const agent = new Agent({ connections: 1 });
  try {
    const put = async (round: string, index: number, body: string) => {
      const response = await request(`${server.url}/_matrix/app/v1/transactions/${round}-${index}`, {
        method: "PUT",
        headers: { authorization: "Bearer bench", "content-type": "application/json" },
        body,
        dispatcher: agent,
      });
      await response.body.dump();
      if (response.statusCode !== 200) throw new Error(`intake answered ${response.statusCode}`);
    };
    const ours: number[][] = [];
    const theirs: number[][] = [];
    for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
      const bodies = Array.from({ length: TRANSACTIONS }, (_, index) => transaction(`r${round}`, index));
      const mine = await timed(TRANSACTIONS, (index) => put(`r${round}`, index, bodies[index] ?? ""));
      const reference_ = await reference(client, round);
      if (round < WARM_UP_ROUNDS) continue;
      ours.push(mine);
      theirs.push(reference_);
      progress(`round ${round}: ${ms(summarize(mine).p50Ms)} beside ${ms(summarize(reference_).p50Ms)}`);
    }
    const rate = (durations: readonly number[]) => 1_000 / summarize(durations).meanMs;
    const ratio = median(ours.map((durations, index) => rate(durations) / rate(theirs[index] ?? [])));
    const p99 = { ours: summarize(ours.flat()).p99Ms, theirs: summarize(theirs.flat()).p99Ms };
    const [{ count } = { count: 0 }] = (
      await client.query("SELECT count(*)::int AS count FROM bridge_delegations")
    ).rows;
    if (count !== (WARM_UP_ROUNDS + ROUNDS) * TRANSACTIONS * EVENTS)
      throw new Error(`only ${count} rows were recorded`);
    return [
      {
        measure: "intake rate, transactions of 100 mentions/s, median of the rounds",
        ours: median(ours.map(rate)).toFixed(0),
        reference: median(theirs.map(rate)).toFixed(0),
        bar: "≥ 0.6 of the reference",
        outcome: `${ratio.toFixed(2)} of it`,
        met: ratio >= 0.6,
        numbers: {
          ours: median(ours.map(rate)),
          reference: median(theirs.map(rate)),
          unit: "transactions/s",
        },
      },
      {
        measure: "acknowledgement, p99",
        ours: ms(p99.ours),
        reference: ms(p99.theirs),
        bar: "≤ 10 ms above the reference",
        outcome: `${ms(p99.ours - p99.theirs)} above`,
        met: p99.ours - p99.theirs <= 10,
        numbers: { ours: p99.ours, reference: p99.theirs, unit: "ms" },
      },
    ];
  } finally {
    server.stop();
    await agent.close();
    await client.end();
  }
}

export const bench: Bench = {
  name: "Intake",
  minutes: 2,
  description:
    "Transactions of 100 events in 10 rooms, each a mention, sent by HTTP one after the other as a homeserver sends them, " +
    "and acknowledged when durable; beside them the same rows by one `unnest` statement and commit on the same server, " +
    "into tables with the same keys and checks, in alternating rounds of 200: a delegation and a handled event for each " +
    "mention, each room's row, and the row that counts what was admitted. Beyond the rows themselves an admission takes the " +
    "lock, reads what is known of rooms and events, decides about each event, seals each prompt, and speaks HTTP.",
  run,
};
