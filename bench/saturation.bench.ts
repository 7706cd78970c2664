// How many questions a second one, two and four bridge processes carry from the homeserver's transaction to the answer in
// the room, beside the commits a second that the same database makes.
import { availableParallelism } from "node:os";
import { Agent, request } from "undici";
import { systemClock } from "../src/domain/clock.ts";
import type { Bench, BenchContext } from "./bench.ts";
import { type BenchBridge, startBenchBridge } from "./support/bridge-process.ts";
import { commitFloor } from "./support/commit-floor.ts";
import { createDatabase } from "./support/create-database.ts";
import { size } from "./support/size.ts";

const PROCESSES = size([1, 2, 4], [1, 2]);
const ROOMS = 2_000;
const EVENTS_PER_TRANSACTION_MAX = 100;
const MEASURED_MS = size(8_000, 2_000);
/** How long the task of an agent takes that does not answer at once. */
const TASK_MS = size(20_000, 2_000);
/** It is measured when as many answers have come as questions are open at a time, or after this time. */
const WARM_UP_MS_MAX = 120_000;
const COMMITTERS = 8;
/** The requirement on three processes. */
const PER_SECOND_MIN = 50;
const TIMES_WITH_TWO_MIN = 1.6;
/** Two processes, homeserver, agent and database need processors of their own. */
const CORES_TO_SCALE = 8;

interface Load {
  readonly name: string;
  readonly answerMs: number;
  /** Questions that are open at a time; with `answerMs` they bound what can be answered a second. */
  readonly open: number;
}

const OPEN_TASKS = size(1_200, 400);

const LOADS: readonly Load[] = [
  { name: "an instant agent", answerMs: 0, open: 300 },
  { name: `answers after ${TASK_MS / 1_000} s`, answerMs: TASK_MS, open: OPEN_TASKS },
];

interface Asking {
  /** Questions asked. */
  asked: number;
  isOver: boolean;
}

/** Sends transactions one after the other, as a homeserver does, each to the next process, while too few are open. */
async function ask(bridge: BenchBridge, load: Load, asking: Asking, answered: () => number): Promise<void> {
  const agent = new Agent({ connections: 1 });
  for (let n = 0; !asking.isOver; n++) {
    const free = load.open - (asking.asked - answered());
    const count = Math.min(free, EVENTS_PER_TRANSACTION_MAX);
    if (count <= 0) {
      await systemClock.sleep(2);
      continue;
    }
    const events = Array.from({ length: count }, (_, index) => ({
      type: "m.room.message",
      event_id: `$saturation${asking.asked + index}`,
      room_id: `!room${(asking.asked + index) % ROOMS}`,
      sender: `@user${index % 7}:a.test`,
      origin_server_ts: 1_760_000_000_000 + asking.asked + index,
      content: {
        msgtype: "m.text",
        body: `question ${asking.asked + index}`,
        "m.mentions": { user_ids: ["@agent_docs:a.test"] },
      },
    }));
    const url = bridge.intakeUrls[n % bridge.intakeUrls.length];
    const response = await request(`${url}/_matrix/app/v1/transactions/${n}`, {
      method: "PUT",
      headers: { authorization: `Bearer ${bridge.hsToken}`, "content-type": "application/json" },
      body: JSON.stringify({ events }),
      dispatcher: agent,
    });
    await response.body.dump();
    if (response.statusCode !== 200) throw new Error(`intake answered ${response.statusCode}`);
    asking.asked += count;
  }
  await agent.close();
}

interface Carried {
  readonly perSecond: number;
  /** Processor time of the bridge for each question, which other work on the machine changes little. */
  readonly processorMs: number;
}

async function carried(url: string, processes: number, load: Load): Promise<Carried> {
  let answered = 0;
  const queue = 4 * load.open;
  const bridge = await startBenchBridge(url, {
    // The status message of a question that waits, and its edits, are notices.
    onSent: ({ msgtype }) => {
      if (msgtype === "m.text") answered += 1;
    },
    processes,
    agents: { docs: load.answerMs === 0 ? { kind: "answer" } : { kind: "task", ms: load.answerMs } },
    limits: { globalQueue: queue, serverQueue: queue, agentQueue: queue },
  });
  const asking: Asking = { asked: 0, isOver: false };
  try {
    const sent = ask(bridge, load, asking, () => answered);
    sent.catch(() => undefined);
    const patience = performance.now() + WARM_UP_MS_MAX;
    while (answered < load.open && performance.now() < patience) await systemClock.sleep(50);
    const [before, begun, processor] = [answered, performance.now(), bridge.processorMs()];
    await systemClock.sleep(Math.max(MEASURED_MS, load.answerMs));
    const [count, ms] = [answered - before, performance.now() - begun];
    const used = bridge.processorMs() - processor;
    asking.isOver = true;
    await sent;
    return { perSecond: (count * 1_000) / ms, processorMs: used / count };
  } finally {
    asking.isOver = true;
    await bridge.stop();
  }
}

async function run({ postgresUrl, progress }: BenchContext) {
  const rows = [];
  for (const [index, load] of LOADS.entries()) {
    let alone = Number.NaN;
    for (const processes of PROCESSES) {
      const url = await createDatabase(postgresUrl, `bench_saturation_${index}_${processes}`);
      const floor = await commitFloor(url, COMMITTERS);
      const { perSecond: rate, processorMs } = await carried(url, processes, load);
      progress(
        `${processes} processes, ${load.name}: ${rate.toFixed(0)} a second beside ${floor.toFixed(0)} commits, ${processorMs.toFixed(1)} ms of processor time each`,
      );
      if (processes === 1) alone = rate;
      const times = rate / alone;
      // What is answered by tasks is bounded by how many questions are open, whatever the processes could carry.
      const isBounded = load.answerMs > 0;
      const mustScale = !isBounded && processes === 2 && availableParallelism() >= CORES_TO_SCALE;
      rows.push({
        measure: `${processes} ${processes === 1 ? "process" : "processes"}, ${load.name}`,
        ours: `${rate.toFixed(0)} questions per second`,
        reference: `${floor.toFixed(0)} commits per second`,
        bar: isBounded
          ? "none"
          : processes === 2
            ? `≥ ${PER_SECOND_MIN} per second; ≥ ${TIMES_WITH_TWO_MIN} × one process on ${CORES_TO_SCALE} cores or more`
            : `≥ ${PER_SECOND_MIN} per second`,
        outcome: `${times.toFixed(2)} × one process; ${(floor / rate).toFixed(1)} commits of the floor and ${processorMs.toFixed(1)} ms of processor time for each`,
        met: isBounded || (rate >= PER_SECOND_MIN && (!mustScale || times >= TIMES_WITH_TWO_MIN)),
        numbers: { ours: rate, reference: floor, unit: "per second" },
      });
    }
  }
  return rows;
}

export const bench: Bench = {
  name: "Saturation",
  minutes: 8,
  description:
    `Questions in ${ROOMS.toLocaleString("en")} plain rooms, from a homeserver that sends one transaction at a time to the processes in turn, ` +
    `until the answer is sent to the room; so many are kept open that the bridge always has work, and of tasks ${OPEN_TASKS.toLocaleString("en")}, which bounds their rate at ${(OPEN_TASKS / TASK_MS) * 1_000} a second. The agent answers at once, or by a task ` +
    `that is done after ${TASK_MS / 1_000} seconds; a notice to the room, such as that a question waits, is no answer. Homeserver, agent, database and all processes share the machine. Beside it the commits of one row each ` +
    `that the same database makes a second on ${COMMITTERS} connections, just before. Measured over ${MEASURED_MS / 1_000} s, and with tasks over ${Math.max(MEASURED_MS, TASK_MS) / 1_000} s.`,
  run,
};
