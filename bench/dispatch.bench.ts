// From a mention to the agent's call, at 50 mentions a second, beside an empty round trip through the same
// database. The bridge is the real process; each mention is a transaction of its own.
import { Client } from "pg";
import { Agent, request } from "undici";
import { systemClock } from "../src/domain/clock.ts";
import type { Bench, BenchContext } from "./bench.ts";
import { startBenchBridge } from "./support/bridge-process.ts";
import { createDatabase } from "./support/create-database.ts";
import { ms, summarize } from "./support/measure.ts";
import { size } from "./support/size.ts";

const PER_SECOND = 50;
/** Half a minute, until what runs at each mention is compiled. */
const WARM_UP = size(1_500, 100);
const MEASURED = size(1_000, 100);
const ROOMS = 40;

async function run({ postgresUrl, progress }: BenchContext) {
  const url = await createDatabase(postgresUrl, "bench_dispatch");
  const sentAt = new Map<string, number>();
  let dispatched = Promise.withResolvers<void>();
  const latencies: number[] = [];
  const bridge = await startBenchBridge(url, {
    onQuestion: (question) => {
      const sent = sentAt.get(question);
      if (sent !== undefined) latencies.push(performance.now() - sent);
      dispatched.resolve();
    },
  });
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query("CREATE TABLE bench_commits (n bigint NOT NULL)");
  const agent = new Agent({ connections: 1 });
  const roundTrips: number[] = [];
  const commits: number[] = [];
  const acknowledged: number[] = [];
  try {
    const begun = performance.now();
    for (let n = 0; n < WARM_UP + MEASURED; n++) {
      const dueIn = begun + (n * 1_000) / PER_SECOND - performance.now();
      if (dueIn > 0) await systemClock.sleep(dueIn);
      if (n === WARM_UP) latencies.length = 0;
      const question = `question ${n}`;
      const event = {
        type: "m.room.message",
        event_id: `$bench${n}`,
        room_id: `!room${n % ROOMS}`,
        sender: "@alice:a.test",
        origin_server_ts: 1_760_000_000_000 + n,
        content: { msgtype: "m.text", body: question, "m.mentions": { user_ids: ["@agent_docs:a.test"] } },
      };
      dispatched = Promise.withResolvers();
      const sent = performance.now();
      sentAt.set(question, sent);
      const response = await request(`${bridge.intakeUrls[0]}/_matrix/app/v1/transactions/${n}`, {
        method: "PUT",
        headers: { authorization: `Bearer ${bridge.hsToken}`, "content-type": "application/json" },
        body: JSON.stringify({ events: [event] }),
        dispatcher: agent,
      });
      await response.body.dump();
      if (response.statusCode !== 200) throw new Error(`intake answered ${response.statusCode}`);
      if (n >= WARM_UP) acknowledged.push(performance.now() - sent);
      // What the reference costs must not be paid by the mention beside it.
      await Promise.race([dispatched.promise, systemClock.sleep(1_000 / PER_SECOND)]);
      const before = performance.now();
      await client.query("SELECT");
      const between = performance.now();
      await client.query("INSERT INTO bench_commits VALUES ($1)", [n]);
      if (n < WARM_UP) continue;
      roundTrips.push(between - before);
      commits.push(performance.now() - between);
    }
    for (let wait = 0; latencies.length < MEASURED && wait < 100; wait++) await systemClock.sleep(50);
    progress(
      `${latencies.length} of ${MEASURED} mentions dispatched; acknowledged in ${ms(summarize(acknowledged).p50Ms)}`,
    );
    if (latencies.length < MEASURED) throw new Error("not every mention was dispatched");
    const ours = summarize(latencies);
    const empty = summarize(roundTrips);
    const commit = summarize(commits);
    const row = (p: "p50Ms" | "p99Ms", bar: number) => ({
      measure: `mention to dispatch, ${p.slice(0, 3)}`,
      ours: ms(ours[p]),
      reference: ms(empty[p]),
      bar: `≤ ${bar} ms above the reference`,
      outcome: `${ms(ours[p] - empty[p])} above; an insert of one row and its commit took ${ms(commit[p])}`,
      met: ours[p] - empty[p] <= bar,
      numbers: { ours: ours[p], reference: empty[p], unit: "ms" },
    });
    return [row("p50Ms", 4), row("p99Ms", 15)];
  } finally {
    await agent.close();
    await client.end();
    await bridge.stop();
  }
}

export const bench: Bench = {
  name: "Mention to dispatch",
  minutes: 1,
  description:
    "Fifty mentions a second, each in a transaction of its own, to a running bridge: from the first byte of the " +
    "transaction to the agent's reading of the question. Beside it, when the agent has read the question, an empty query and then " +
    "an insert of one row with its commit, on a connection to the same database. " +
    "On the way stand two commits: the admission, which claims the question as well, and the intent to call, which waits for the disk for both.",
  run,
};
