// Draining many delegations that need no work, each room in order and under fences, beside two job queues that keep the
// order of a key: graphile-worker with a serial queue a room, and pg-boss with strict FIFO by key.
import { Logger, makeWorkerUtils, run as runWorker } from "graphile-worker";
import { PgBoss } from "pg-boss";
import { job, ledgerFixture, room, T0 } from "../tests/support/ledger.ts";
import { TEST_POSTGRES_URL } from "../tests/support/test-server.ts";
import type { Bench, BenchContext } from "./bench.ts";
import { commitFloor } from "./support/commit-floor.ts";
import { createDatabase } from "./support/create-database.ts";
import { size } from "./support/size.ts";

const JOBS = size(20_000, 2_000);
const ROOMS = size(1_000, 200);
const INSERTED_AT_ONCE = 1_000;
const CONNECTIONS = 16;
/** What one claim or fetch of ours and of pg-boss takes at most. */
const BATCH = 64;
const TIMES_FASTER_MIN = 5;

const roomOf = (n: number) => `room${n % ROOMS}`;
const batches = Array.from({ length: JOBS / INSERTED_AT_ONCE }, (_, batch) =>
  Array.from({ length: INSERTED_AT_ONCE }, (__, index) => batch * INSERTED_AT_ONCE + index),
);

async function perSecond(drain: () => Promise<void>): Promise<number> {
  const begun = performance.now();
  await drain();
  return (JOBS * 1_000) / (performance.now() - begun);
}

async function ours(postgresUrl: string): Promise<{ readonly rate: number; readonly floor: number }> {
  process.env[TEST_POSTGRES_URL] = postgresUrl;
  const closing: (() => unknown)[] = [];
  const { delegations, admit, url } = await ledgerFixture(
    { after: (close: () => unknown) => closing.push(close) },
    CONNECTIONS,
  );
  try {
    for (const batch of batches) {
      await admit(
        batch.map((n, position) => job(`q${n}`, { room: room(roomOf(n)), position })),
        { capacity: { roomQueue: JOBS, globalQueue: 2 * JOBS } },
      );
    }
    let ended = 0;
    const drain = async (holder: string) => {
      while (ended < JOBS) {
        const claimed = await delegations.claim({ holder, limit: BATCH, now: T0, leaseUntil: T0 + 30_000 });
        await Promise.all(
          claimed.map(({ lease }) =>
            delegations.finish(lease, { state: "failed", stage: "dispatch", reason: "agent_failed" }, T0),
          ),
        );
        ended += claimed.length;
      }
    };
    const rate = await perSecond(async () => void (await Promise.all(["one", "two"].map(drain))));
    return { rate, floor: await commitFloor(url, CONNECTIONS) };
  } finally {
    for (const close of closing) await close();
  }
}

async function graphileWorker(postgresUrl: string): Promise<number> {
  const connectionString = await createDatabase(postgresUrl, "bench_drain_graphile");
  const utils = await makeWorkerUtils({ connectionString });
  await utils.migrate();
  for (const batch of batches) {
    await utils.addJobs(batch.map((n) => ({ identifier: "nothing", queueName: roomOf(n), payload: { n } })));
  }
  await utils.release();
  let ended = 0;
  const all = Promise.withResolvers<void>();
  const rate = await perSecond(async () => {
    const runner = await runWorker({
      connectionString,
      noHandleSignals: true,
      // Else it writes a line for each job.
      logger: new Logger(() => () => undefined),
      taskList: {
        nothing: async () => {
          ended += 1;
          if (ended === JOBS) all.resolve();
        },
      },
      preset: {
        worker: {
          concurrentJobs: CONNECTIONS,
          maxPoolSize: CONNECTIONS,
          localQueue: { size: 500 },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        },
      },
    });
    await all.promise;
    await runner.stop();
  });
  return rate;
}

async function pgBoss(postgresUrl: string): Promise<number> {
  const connectionString = await createDatabase(postgresUrl, "bench_drain_boss");
  const boss = new PgBoss({ connectionString, max: CONNECTIONS, supervise: false, schedule: false });
  await boss.start();
  try {
    await boss.createQueue("nothing", { policy: "key_strict_fifo" });
    for (const batch of batches) {
      await boss.insert(
        "nothing",
        batch.map((n) => ({ data: { n }, singletonKey: roomOf(n) })),
      );
    }
    let ended = 0;
    const drain = async () => {
      while (ended < JOBS) {
        const jobs = await boss.fetch("nothing", { batchSize: BATCH });
        if (jobs.length === 0) continue;
        await boss.complete(
          "nothing",
          jobs.map(({ id }) => id),
        );
        ended += jobs.length;
      }
    };
    return await perSecond(async () => void (await Promise.all([drain(), drain()])));
  } finally {
    await boss.stop({ graceful: false });
  }
}

async function run({ postgresUrl, progress }: BenchContext) {
  const { rate: own, floor } = await ours(postgresUrl);
  progress(`ours: ${own.toFixed(0)} a second beside ${floor.toFixed(0)} commits`);
  const peers = {
    "graphile-worker": await graphileWorker(postgresUrl),
    "pg-boss": await pgBoss(postgresUrl),
  };
  const fastest = Math.max(...Object.values(peers));
  const beside = Object.entries(peers).map(([name, rate]) => ({
    measure: `delegations ended per second, beside ${name}`,
    ours: own.toFixed(0),
    reference: `${rate.toFixed(0)} (${name})`,
    bar: `≥ ${TIMES_FASTER_MIN} × the faster of them`,
    outcome: `${(own / rate).toFixed(1)} ×`,
    met: own >= TIMES_FASTER_MIN * fastest,
    numbers: { ours: own, reference: rate, unit: "per second" },
  }));
  return [
    ...beside,
    {
      measure: "delegations ended per second, beside commits",
      ours: own.toFixed(0),
      reference: `${floor.toFixed(0)} commits of one row per second`,
      bar: "none",
      outcome: `${(own / floor).toFixed(2)} of it`,
      met: true,
      numbers: { ours: own, reference: floor, unit: "per second" },
    },
  ];
}

export const bench: Bench = {
  name: "Drain",
  minutes: 3,
  description:
    `${JOBS.toLocaleString("en")} delegations in ${ROOMS.toLocaleString("en")} rooms, which are claimed and ended with an audit record each, by the ledger's own functions on ` +
    `${CONNECTIONS} connections. Beside them the same number of jobs that do nothing: graphile-worker with a serial queue a room, ${CONNECTIONS} jobs at a time, a local queue and ` +
    `batched completion; pg-boss with the policy key_strict_fifo, fetched and completed ${BATCH} at a time. One process each. ` +
    "A delegation is ended by a statement and a commit of its own, as soon as its answer is sent: state, fence, next head of the room, capacity, cleared content and audit record " +
    "in one. So the database's rate of commits bounds it, which stands beside it, on as many connections; the peers complete many jobs by one commit, and write none of this.",
  run,
};
