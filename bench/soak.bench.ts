// How a bridge fares for a long time with 200 agents and 2,000 rooms, of which one tenth is hostile: its memory, and
// how long questions to the other agents take, beside the same without the hostile ones.
import { Agent, request } from "undici";
import { systemClock } from "../src/domain/clock.ts";
import type { Bench, BenchContext } from "./bench.ts";
import type { AgentBehaviour } from "./support/bench-agents.ts";
import { type BenchBridge, type SentContent, startBenchBridge } from "./support/bridge-process.ts";
import { createDatabase } from "./support/create-database.ts";
import { median, ms, percentile } from "./support/measure.ts";
import { size } from "./support/size.ts";

const AGENTS = size(200, 40);
const ROOMS = 2_000;
const MINUTES = size(3, 0.5);
const QUICK_PER_SECOND = 10;
const HOSTILE_PER_SECOND = 2;
/** Of the whole time: before anything is measured, and until the hostile ones begin. */
const WARM_UP = 0.1;
const QUIET = 0.3;
const REPEAT_AFTER_MS = 100;
const REPEATED_MAX = 100;
const SLOWDOWN_MAX = 1.2;
const GROWTH_MAX = 1.1;

const HOSTILE: readonly AgentBehaviour[] = [
  { kind: "wide-table", cells: 100_000 },
  { kind: "empty-parts", parts: 50_000 },
  { kind: "endless" },
  { kind: "hang" },
  { kind: "never-done" },
  { kind: "input_required" },
  { kind: "away" },
];

const isHostile = (agent: number) => agent % 10 === 9;
const behaviours = Object.fromEntries(
  Array.from({ length: AGENTS }, (_, agent): [string, AgentBehaviour] => [
    `a${agent}`,
    isHostile(agent)
      ? (HOSTILE[Math.floor(agent / 10) % HOSTILE.length] as AgentBehaviour)
      : { kind: "answer" },
  ]),
);

/** A question in one of the rooms of the agent; each agent has ten rooms. */
function question(agent: number, n: number, sender: string) {
  return {
    type: "m.room.message",
    event_id: `$soak${n}`,
    room_id: `!room${agent + AGENTS * (n % (ROOMS / AGENTS))}`,
    sender,
    origin_server_ts: 1_760_000_000_000 + n,
    content: {
      msgtype: "m.text",
      body: `question ${n}`,
      "m.mentions": { user_ids: [`@agent_a${agent}:a.test`] },
    },
  };
}

/** What hostile members send besides: questions of users who may not ask, and invitations of ghosts that nobody has. */
function nuisance(n: number): readonly object[] {
  const ghost = `@agent_bait${n}:a.test`;
  return [
    question(n % AGENTS, n, "@mallory:evil.test"),
    {
      type: "m.room.member",
      event_id: `$bait${n}`,
      room_id: `!bait${n}`,
      sender: "@mallory:evil.test",
      state_key: ghost,
      origin_server_ts: 1_760_000_000_000 + n,
      content: { membership: "invite" },
    },
  ];
}

class Load {
  readonly #bridge: BenchBridge;
  readonly #http = new Agent({ connections: 1 });
  readonly #askedAt: Map<string, number>;
  /** Transactions that were not taken and sent again, as a homeserver does. */
  repeated = 0;
  /** Events and transactions that were made. */
  #made = 0;
  #transactions = 0;

  constructor(bridge: BenchBridge, askedAt: Map<string, number>) {
    this.#bridge = bridge;
    this.#askedAt = askedAt;
  }

  async #send(events: readonly object[]): Promise<void> {
    const url = `${this.#bridge.intakeUrls[0]}/_matrix/app/v1/transactions/${this.#transactions++}`;
    for (;;) {
      const response = await request(url, {
        method: "PUT",
        headers: { authorization: `Bearer ${this.#bridge.hsToken}`, "content-type": "application/json" },
        body: JSON.stringify({ events }),
        dispatcher: this.#http,
      });
      await response.body.dump();
      if (response.statusCode === 200) return;
      this.repeated += 1;
      if (this.repeated > REPEATED_MAX) throw new Error(`the intake answers ${response.statusCode}`);
      await systemClock.sleep(REPEAT_AFTER_MS);
    }
  }

  /** One second of it. */
  async second(withHostile: boolean): Promise<void> {
    const begun = performance.now();
    for (let n = 0; n < QUICK_PER_SECOND; n++) {
      const pause = begun + (n * 1_000) / QUICK_PER_SECOND - performance.now();
      if (pause > 0) await systemClock.sleep(pause);
      const made = this.#made++;
      const well = made % (AGENTS * 0.9);
      const event = question(Math.floor(well / 9) * 10 + (well % 9), made, "@alice:a.test");
      this.#askedAt.set(event.event_id, performance.now());
      await this.#send([event]);
      if (withHostile && n < HOSTILE_PER_SECOND) {
        const other = this.#made++;
        await this.#send([
          question((other % (AGENTS / 10)) * 10 + 9, other, "@bob:a.test"),
          ...nuisance(this.#made++),
        ]);
      }
    }
    const rest = begun + 1_000 - performance.now();
    if (rest > 0) await systemClock.sleep(rest);
  }

  close = () => this.#http.close();
}

async function run({ postgresUrl, progress, minutes = MINUTES }: BenchContext) {
  const url = await createDatabase(postgresUrl, "bench_soak");
  const askedAt = new Map<string, number>();
  const latencies = { quiet: [] as number[], hostile: [] as number[] };
  let phase: "quiet" | "hostile" | undefined;
  const bridge = await startBenchBridge(url, {
    agents: behaviours,
    onSent: (content: SentContent) => {
      const asked = content["m.relates_to"]?.["m.in_reply_to"]?.event_id ?? "";
      const at = askedAt.get(asked);
      if (at === undefined || content.msgtype !== "m.text") return;
      askedAt.delete(asked);
      if (phase !== undefined) latencies[phase].push(performance.now() - at);
    },
  });
  const memory: number[] = [];
  const load = new Load(bridge, askedAt);
  try {
    const seconds = Math.round(minutes * 60);
    for (let second = 0; second < seconds; second++) {
      const share = second / seconds;
      phase = share < WARM_UP ? undefined : share < QUIET ? "quiet" : "hostile";
      await load.second(phase === "hostile");
      if (phase === "hostile") memory.push(bridge.residentMiB());
      if (second % 60 === 59) progress(`minute ${(second + 1) / 60}: ${bridge.residentMiB().toFixed(0)} MiB`);
    }
    // What was asked last is still on its way.
    for (let tries = 0; tries < 100 && askedAt.size > 0; tries++) await systemClock.sleep(100);
  } finally {
    await load.close();
    await bridge.stop();
  }
  const [quiet, hostile] = [latencies.quiet, latencies.hostile].map((one) => one.sort((a, b) => a - b)) as [
    number[],
    number[],
  ];
  const slower = median(hostile) / median(quiet);
  const quarter = Math.floor(memory.length / 4);
  const [early, late] = [median(memory.slice(quarter, 2 * quarter)), median(memory.slice(-quarter))];
  return [
    {
      measure: `quick questions, p50, ${minutes} minutes`,
      ours: ms(median(hostile)),
      reference: `${ms(median(quiet))} (without the hostile ones)`,
      bar: `≤ ${SLOWDOWN_MAX} × the reference`,
      outcome: `${slower.toFixed(2)} ×; p99 ${ms(percentile(hostile, 99))} beside ${ms(percentile(quiet, 99))}`,
      met: slower <= SLOWDOWN_MAX,
      numbers: { ours: median(hostile), reference: median(quiet), unit: "ms" },
    },
    {
      measure: "quick questions without an answer",
      ours: String(askedAt.size),
      reference: `${hostile.length + quiet.length} answered`,
      bar: "none",
      outcome: `${askedAt.size}; ${load.repeated} transactions repeated`,
      met: askedAt.size === 0,
    },
    {
      measure: "memory, median of the last quarter",
      ours: `${late.toFixed(0)} MiB`,
      reference: `${early.toFixed(0)} MiB (second quarter)`,
      bar: `≤ ${GROWTH_MAX} × the reference`,
      outcome: `${(late / early).toFixed(2)} ×; highest ${Math.max(...memory).toFixed(0)} MiB`,
      met: late / early <= GROWTH_MAX,
      numbers: { ours: late, reference: early, unit: "MiB" },
    },
  ];
}

export const bench: Bench = {
  name: "Soak",
  minutes: 4,
  description:
    `${AGENTS} agents, each with ten of ${ROOMS.toLocaleString("en")} rooms; one tenth of the agents is hostile: wide tables, empty parts, ` +
    `answers without end, no answers, tasks without end, questions without end, 503. Hostile members of another server ask without permission and ` +
    `invite ghosts that do not exist. ${QUICK_PER_SECOND} questions a second to the other agents, from the transaction to the answer in the room; ` +
    `first without the hostile ones, then with ${HOSTILE_PER_SECOND} hostile questions a second. \`--minutes=30\` runs it longer.`,
  run,
};
