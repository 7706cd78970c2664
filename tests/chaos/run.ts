// One run: rounds of faults under load, each followed by its recovery and by the oracle's verdict.
// Invariants: a round ends when every question of it has ended, or when that was waited for in vain, which is a
// violation; after a violation the run ends, and its lab's files are kept.

import { formatDuration } from "../../lab/progress.ts";
import { examine, notEnforced } from "../../lab/random-operations/examine.ts";
import { PARTNERS } from "../../lab/random-operations/operations.ts";
import { systemClock } from "../../src/domain/clock.ts";
import { Deployment } from "./deployment.ts";
import { Oracle } from "./oracle.ts";
import { nameOf, type Round, roundOf, titleOf } from "./schedule.ts";
import { tokenIn } from "./topics.ts";
import { World } from "./world.ts";

export interface ChaosOptions {
  readonly seed: number;
  readonly rounds: number;
  /** No round begins later than this after the first one. */
  readonly secondsMax: number;
  readonly print: (line: string) => void;
  /** Where the lab's files are kept after a violation. */
  readonly keptIn: string;
  /** Ends the run after the round at hand. */
  readonly stop: AbortSignal;
}

export interface ChaosTotals {
  readonly seed: number;
  readonly rounds: number;
  readonly seconds: number;
  /** How many of each kind: `kill agent`. */
  readonly faults: Readonly<Record<string, number>>;
  /** How many of each kind: `conversation`. */
  readonly questions: Readonly<Record<string, number>>;
  readonly answered: number;
  /** Questions that ended without an answer, with a notice or because they were redacted. */
  readonly ended: number;
  /** Questions that no transaction of the homeserver brought. */
  readonly byCatchup: number;
  /** Questions that the homeserver delivered after a later one of their room. */
  readonly overtaken: number;
  readonly violations: readonly string[];
  /** Where the lab's files are, after a violation. */
  readonly folder: string | null;
}

/** For retries that wait, a room that is held by its first question, and a homeserver that found the bridge away. */
const PATIENCE_MS = 180_000;
const ROUND_MS = 10 * 60_000;
const POLL_MS = 200;

export async function runChaos(options: ChaosOptions): Promise<ChaosTotals> {
  const { seed, print, keptIn } = options;
  const oracle = new Oracle();
  print(`seed ${seed}: starting the lab`);
  const deployment = await Deployment.start((body) => {
    const token = tokenIn(body);
    if (token !== undefined) oracle.called(token);
  });
  let violations: readonly string[] = ["the run did not end"];
  try {
    const world = await World.open(deployment, oracle);
    try {
      const begun = systemClock.now();
      const done = await runRounds(options, deployment, world);
      violations = done.violations;
      const { answered, ended, byCatchup, overtaken } = oracle.judge();
      return {
        seed,
        rounds: done.rounds.length,
        seconds: Math.round((systemClock.now() - begun) / 1_000),
        faults: countsOf(done.rounds.flatMap(({ faults }) => faults.map(nameOf))),
        questions: countsOf(done.rounds.flatMap(({ questions }) => questions.map(({ kind }) => kind))),
        answered,
        ended,
        byCatchup,
        overtaken,
        violations,
        folder: violations.length === 0 ? null : keptIn,
      };
    } finally {
      world.close();
    }
  } finally {
    await deployment.end(violations.length > 0 ? keptIn : undefined);
  }
}

function countsOf(names: readonly string[]): Readonly<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const name of names.toSorted()) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

async function runRounds(
  { seed, rounds, secondsMax, print, stop }: ChaosOptions,
  deployment: Deployment,
  world: World,
): Promise<{ readonly rounds: readonly Round[]; readonly violations: readonly string[] }> {
  const done: Round[] = [];
  const deadline = systemClock.now() + secondsMax * 1_000;
  while (done.length < rounds && systemClock.now() < deadline && !stop.aborted) {
    const round = roundOf(seed, done.length);
    const begun = systemClock.now();
    // What does not come back to work, or a question that nobody accepts, is no less wrong than a lost answer.
    const { violations, spans } = await within(ROUND_MS, runRound(deployment, world, round)).catch(
      (error) => ({
        violations: [
          `round ${round.number} did not end: ${error instanceof Error ? error.message : String(error)}`,
        ],
        spans: `gave up after ${formatDuration(systemClock.now() - begun)}`,
      }),
    );
    done.push(round);
    const what = `${titleOf(round.faults)}; ${round.questions.length} questions`;
    print(`round ${round.number}: ${what}; ${spans}; ${violations.length === 0 ? "ok" : "VIOLATED"}`);
    if (violations.length > 0) return { rounds: done, violations };
  }
  return {
    rounds: done,
    violations: [
      ...(await agreed(world)),
      ...(await world.changedDevices()),
      ...(await examine(deployment.lab, PARTNERS)),
    ],
  };
}

async function runRound(
  deployment: Deployment,
  world: World,
  round: Round,
): Promise<{ readonly violations: readonly string[]; readonly spans: string }> {
  const begun = systemClock.now();
  const isOver = new AbortController();
  const polling = observeUntil(world, isOver.signal);
  const wrong: string[] = [];
  try {
    await Promise.all([
      ...round.faults.map((fault) =>
        inTime(fault, async () => void wrong.push(...(await deployment.inflict(fault)))),
      ),
      ...round.questions.map((ask, place) => inTime(ask, () => world.ask(round.number, place, ask))),
    ]);
  } finally {
    isOver.abort();
    await polling;
  }
  const madeAt = systemClock.now();
  await deployment.recovered();
  const recoveredAt = systemClock.now();
  if (round.faults.some(({ kind }) => kind === "contain")) world.partnershipWasOpened();
  const violations = [...wrong, ...(await settle(world)), ...(await notEnforced(deployment.lab))];
  const [faults, recovery, check] = [
    madeAt - begun,
    recoveredAt - madeAt,
    systemClock.now() - recoveredAt,
  ].map(formatDuration);
  return { violations, spans: `faults ${faults}, recovery ${recovery}, check ${check}` };
}

async function within<Value>(ms: number, work: Promise<Value>): Promise<Value> {
  const ended = new AbortController();
  const tooLong = systemClock.sleep(ms, ended.signal).then(() => {
    throw new Error(`it took longer than ${formatDuration(ms)}`);
  });
  try {
    return await Promise.race([work, tooLong]);
  } finally {
    ended.abort();
    tooLong.catch(() => undefined);
  }
}

async function inTime({ atMs }: { readonly atMs: number }, work: () => Promise<void>): Promise<void> {
  await systemClock.sleep(atMs);
  await work();
}

/** People see what the agent asks them, and answer it, while faults are made. */
async function observeUntil(world: World, isOver: AbortSignal): Promise<void> {
  while (!isOver.aborted) {
    await world.observe();
    await systemClock.sleep(POLL_MS);
  }
}

/** Waits until every question has ended. @returns what is wrong */
async function settle(world: World): Promise<readonly string[]> {
  const deadline = systemClock.now() + PATIENCE_MS;
  for (;;) {
    await world.observe();
    const { open, violations } = world.oracle.judge();
    if (violations.length > 0 || open.length === 0) return violations;
    if (systemClock.now() > deadline) {
      return open.map(
        ({ kind, token, event, room }) =>
          `${kind} ${token} (${event} in ${room}) has no visible end after ${formatDuration(PATIENCE_MS)}`,
      );
    }
    await systemClock.sleep(POLL_MS);
  }
}

/** Waits until both homeservers show the shared rooms alike, and looks for late repetitions. */
async function agreed(world: World): Promise<readonly string[]> {
  const deadline = systemClock.now() + PATIENCE_MS;
  for (;;) {
    await world.observe();
    const differences = world.differences();
    if (differences.length === 0) return world.oracle.judge().violations;
    if (systemClock.now() > deadline) return differences;
    await systemClock.sleep(POLL_MS);
  }
}
