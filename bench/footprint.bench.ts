// Memory and start time of a bridge with one ghost and with a thousand, beside an idle Node.js process.
import { spawn, spawnSync } from "node:child_process";
import { request } from "undici";
import { systemClock } from "../src/domain/clock.ts";
import type { Bench, BenchContext, BenchRow } from "./bench.ts";
import type { AgentBehaviour } from "./support/bench-agents.ts";
import { startBenchBridge } from "./support/bridge-process.ts";
import { createDatabase } from "./support/create-database.ts";
import { median, ms, residentMiB, timed } from "./support/measure.ts";
import { size } from "./support/size.ts";

const GHOSTS = size([1, 1_000], [1, 20]);
const ROUNDS = size(3, 1);
const IDLE_MS = size(10_000, 2_000);
const EVENTS = 50;
const PATIENCE_MS = 120_000;

interface Footprint {
  readonly startMs: number;
  readonly idleMiB: number;
  /** After each ghost has answered once. */
  readonly usedMiB: number;
}

const question = (ghost: number) => ({
  type: "m.room.message",
  event_id: `$footprint${ghost}`,
  room_id: `!room${ghost}`,
  sender: "@alice:a.test",
  origin_server_ts: 1_760_000_000_000 + ghost,
  content: { msgtype: "m.text", body: "question", "m.mentions": { user_ids: [`@agent_a${ghost}:a.test`] } },
});

async function footprint(url: string, ghosts: number): Promise<Footprint> {
  const agents = Object.fromEntries(
    Array.from({ length: ghosts }, (_, n): [string, AgentBehaviour] => [`a${n}`, { kind: "answer" }]),
  );
  let answered = 0;
  const bridge = await startBenchBridge(url, {
    agents,
    onSent: ({ msgtype }) => {
      if (msgtype === "m.text") answered += 1;
    },
  });
  try {
    await systemClock.sleep(IDLE_MS);
    const idleMiB = bridge.residentMiB();
    for (let from = 0; from < ghosts; from += EVENTS) {
      const to = Math.min(from + EVENTS, ghosts);
      const events = Array.from({ length: to - from }, (_, n) => question(from + n));
      const response = await request(`${bridge.intakeUrls[0]}/_matrix/app/v1/transactions/${from}`, {
        method: "PUT",
        headers: { authorization: `Bearer ${bridge.hsToken}`, "content-type": "application/json" },
        body: JSON.stringify({ events }),
      });
      await response.body.dump();
      if (response.statusCode !== 200) throw new Error(`intake answered ${response.statusCode}`);
    }
    const deadline = performance.now() + PATIENCE_MS;
    while (answered < ghosts && performance.now() < deadline) await systemClock.sleep(50);
    if (answered < ghosts) throw new Error(`${answered} of ${ghosts} ghosts have answered`);
    return { startMs: bridge.startMs, idleMiB, usedMiB: bridge.residentMiB() };
  } finally {
    await bridge.stop();
  }
}

/** A Node.js process that does nothing. */
async function bareProcess(): Promise<{ readonly startMs: number; readonly idleMiB: number }> {
  const starts = await timed(ROUNDS, async () => spawnSync(process.execPath, ["-e", "0"]));
  const idle = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "ignore" });
  try {
    await systemClock.sleep(1_000);
    return { startMs: median(starts), idleMiB: residentMiB(idle.pid ?? 0) };
  } finally {
    idle.kill();
  }
}

async function run({ postgresUrl, progress }: BenchContext): Promise<readonly BenchRow[]> {
  const bare = await bareProcess();
  const measured = new Map<number, Footprint>();
  for (const ghosts of GHOSTS) {
    const rounds: Footprint[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      rounds.push(
        await footprint(await createDatabase(postgresUrl, `bench_footprint_${ghosts}_${round}`), ghosts),
      );
      progress(`${ghosts} ghosts: ${JSON.stringify(rounds.at(-1))}`);
    }
    const of = (what: keyof Footprint) => median(rounds.map((one) => one[what]));
    measured.set(ghosts, { startMs: of("startMs"), idleMiB: of("idleMiB"), usedMiB: of("usedMiB") });
  }
  const [few = 0, many = 0] = GHOSTS;
  const [one, all] = [few, many].map((ghosts) => measured.get(ghosts)) as [Footprint, Footprint];
  const named = `${many.toLocaleString("en")} ghosts`;
  const row = (
    measure: string,
    ours: number,
    reference: number,
    unit: "MiB" | "ms",
    of: string,
  ): BenchRow => {
    const text = (value: number) => (unit === "ms" ? ms(value) : `${value.toFixed(0)} MiB`);
    return {
      measure,
      ours: text(ours),
      reference: `${text(reference)} (${of})`,
      bar: "none",
      outcome: `${text(ours - reference)} more`,
      met: true,
      numbers: { ours, reference, unit },
    };
  };
  return [
    row("start until ready, 1 ghost, on an empty database", one.startMs, bare.startMs, "ms", "`node -e 0`"),
    row(`start until ready, ${named}, on an empty database`, all.startMs, one.startMs, "ms", "1 ghost"),
    row("memory, idle, 1 ghost", one.idleMiB, bare.idleMiB, "MiB", "an idle Node.js process"),
    row(`memory, idle, ${named}`, all.idleMiB, one.idleMiB, "MiB", "1 ghost"),
    row(`memory after each of ${named} has answered`, all.usedMiB, all.idleMiB, "MiB", "the same, idle"),
  ];
}

export const bench: Bench = {
  name: "Footprint",
  minutes: 3,
  description:
    `A bridge with plain rooms, with 1 ghost and with ${GHOSTS[1]?.toLocaleString("en")}, each of an agent of its own: from the start of its process, from the sources, on an empty database that it sets up, until it says that it is ready; ` +
    `its resident memory ${IDLE_MS / 1_000} s later, and again when each ghost has answered one question. Medians of ${ROUNDS} rounds. ` +
    "Beside it a Node.js process that does nothing.",
  run,
};
