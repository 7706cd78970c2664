// Opening a ghost whose store holds many room keys: time and memory, against a store that holds none.
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { build } from "esbuild";
import { Pool } from "pg";
import { pino } from "pino";
import { Machines } from "../src/bridge/crypto/machines.ts";
import { ContentKeys } from "../src/bridge/ledger/content-keys.ts";
import { migrate } from "../src/bridge/ledger/migrate.ts";
import { systemClock, systemRandom } from "../src/domain/clock.ts";
import { GhostSide, KeyServer, Person } from "../tests/support/crypto-world.ts";
import { ROOT } from "../tests/support/temporary.ts";
import type { Bench, BenchContext } from "./bench.ts";
import { createDatabase } from "./support/create-database.ts";
import { median } from "./support/measure.ts";
import { size } from "./support/size.ts";

const SOURCES = ["bench/support/open-ghost.ts", "src/bridge/crypto/machine-thread-entry.ts"];
const ROUNDS = size(5, 1);
const KEYS = size([0, 1_000, 100_000], [0, 100, 1_000]);
const OPEN_MS_MAX = 500;
const RESIDENT_MIB_MAX = 120;

const FIRST = "@agent_first:a.test";
const ghostWith = (keys: number) => `@agent_${keys}:a.test`;

/** Copies of a real session under other keys, which nothing asks for; as many hashes of messages, as real keys leave. */
const COPY = `
  INSERT INTO bridge_crypto_records (ghost_mxid, object_store, record_key, value, index_key, used_day)
  SELECT ghost_mxid, object_store, '\\x30' || sha256(record_key || int4send(n)) || '\\x1d' || sha256(int4send(n)) || '\\x00',
    value, index_key, used_day
  FROM bridge_crypto_records, generate_series(1, $2) AS n
  WHERE ghost_mxid = $1 AND object_store IN ('inbound_group_sessions3', 'olm_hashes')`;

async function makeGhosts(databaseUrl: string): Promise<void> {
  const machines = new Machines({
    threads: 1,
    databaseUrl,
    storeKeys: ContentKeys.parse(Buffer.alloc(32, 1).toString("base64")),
    policy: { senderDevices: "allow_all", verifiedIdentities: [] },
    clock: systemClock,
    random: systemRandom,
    log: pino({ level: "silent" }),
    onLost: (ghost, why) => {
      throw new Error(`${ghost}: ${why}`);
    },
  });
  const pool = new Pool({ connectionString: databaseUrl, max: 1 });
  const server = new KeyServer();
  const alice = await Person.join(server, "@alice:a.test");
  await new GhostSide(server, machines, FIRST).create();
  for (const keys of KEYS) {
    const ghost = new GhostSide(server, machines, ghostWith(keys));
    await ghost.create();
    await ghost.track(alice.user);
    if (keys === 0) continue;
    await alice.share("!room:a.test", ghost.ghost);
    await ghost.receive();
    await pool.query(COPY, [ghost.ghost, keys - 1]);
  }
  await pool.query("VACUUM (ANALYZE) bridge_crypto_records");
  await pool.end();
  await machines.close();
}

/** Compiles the process as it is installed: from its sources Node.js would load a compiler into each thread. */
async function compile(): Promise<string> {
  const outdir = join(ROOT, "node_modules/.cache/drawbridge-bench");
  await build({
    entryPoints: SOURCES.map((source) => join(ROOT, source)),
    ...{ outdir, entryNames: "[name]", bundle: true, platform: "node", format: "esm", packages: "external" },
  });
  return join(outdir, "open-ghost.js");
}

interface Opened {
  readonly openMs: number;
  readonly residentMiB: number;
}

function open(program: string, databaseUrl: string, keys: number): Opened {
  const args = [program, databaseUrl, ghostWith(keys), "GHOST", FIRST];
  const { stdout, stderr, status } = spawnSync(process.execPath, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as Opened;
}

async function run({ postgresUrl, progress }: BenchContext) {
  const databaseUrl = await createDatabase(postgresUrl, "bench_crypto_stores");
  const pool = new Pool({ connectionString: databaseUrl, max: 1 });
  await migrate(pool);
  await pool.end();
  await makeGhosts(databaseUrl);
  const program = await compile();
  const rounds: (readonly Opened[])[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    rounds.push(KEYS.map((keys) => open(program, databaseUrl, keys)));
    progress(JSON.stringify(rounds.at(-1)));
  }
  const of = (index: number, what: keyof Opened) =>
    median(rounds.map((round) => round[index]?.[what] ?? Number.NaN));
  return [1, 2].flatMap((index) =>
    (
      [
        ["openMs", "ms", OPEN_MS_MAX, "opening"],
        ["residentMiB", "MiB", RESIDENT_MIB_MAX, "resident after opening"],
      ] as const
    ).map(([what, unit, max, name]) => {
      const [ours, none] = [of(index, what), of(0, what)];
      return {
        measure: `${name} a ghost with ${KEYS[index]?.toLocaleString("en")} room keys`,
        ours: `${ours.toFixed(0)} ${unit}`,
        reference: `${none.toFixed(0)} ${unit} with none`,
        bar: `≤ ${max} ${unit}`,
        outcome: `${(ours - none).toFixed(0)} ${unit} more`,
        met: ours <= max,
        numbers: { ours, reference: none, unit },
      };
    }),
  );
}

export const bench: Bench = {
  name: "Stores of room keys",
  minutes: 2,
  description: `A process of its own opens one ghost's machine from its store in PostgreSQL; the thread and the library are loaded before. Memory is that of the whole process. Of each store's room keys one is real, the others are copies under other keys. Medians of ${ROUNDS} rounds.`,
  run,
};
