// Random faults under load, from a seed, judged from outside the product (docs/reference/chaos.md).

import { randomInt } from "node:crypto";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { CLI_VARIABLE } from "../lab/programs.ts";
import { DrawbridgeError } from "../src/domain/errors.ts";
import type { ChaosTotals } from "../tests/chaos/run.ts";
import { bundleForTests } from "./build.ts";
import { inMemory } from "./memory-folder.ts";
import { ROOT } from "./run-program.ts";

const USAGE = `
Usage: ./task test:chaos [--seed N] [--rounds N] [--short] [--json]

Kills and freezes programs of a lab and disturbs its links at random while people ask, and judges what became of each
question from the rooms, the agent's tasks and the audit stream.

  --seed N    repeats the faults and questions of an earlier run; a random one when absent
  --rounds N  how many rounds; 20 when absent
  --short     begins no round after 80 seconds
  --json      prints the totals as JSON on standard output, everything else on standard error

  0  nothing was lost or repeated
  1  something was; the lines say what, and the lab's files are kept
`;

const OPTIONS = {
  seed: { type: "string" },
  rounds: { type: "string", default: "20" },
  short: { type: "boolean", default: false },
  json: { type: "boolean", default: false },
  help: { type: "boolean", short: "h", default: false },
} as const;

const SHORT_SECONDS = 80;

export async function testChaos(args: readonly string[]): Promise<number> {
  const values = parse(args);
  if (values.help) {
    process.stdout.write(`${USAGE.trim()}\n`);
    return 0;
  }
  const seed = values.seed === undefined ? randomInt(2 ** 31) : whole("--seed", values.seed);
  const rounds = whole("--rounds", values.rounds);
  const stop = new AbortController();
  for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => stop.abort());
  const output = values.json ? process.stderr : process.stdout;
  const print = (line: string) => void output.write(`${line}\n`);
  process.env[CLI_VARIABLE] ??= await bundleForTests();
  const totals = await inMemory(async () => {
    const keptIn = join(ROOT, ".drawbridge", "chaos", `seed-${seed}`);
    // It reads the variable as it is loaded.
    const { runChaos } = await import("../tests/chaos/run.ts");
    const secondsMax = values.short ? SHORT_SECONDS : Number.POSITIVE_INFINITY;
    return await runChaos({ seed, rounds, secondsMax, print, keptIn, stop: stop.signal });
  });
  report(totals, print);
  if (values.json) process.stdout.write(`${JSON.stringify(totals)}\n`);
  return totals.violations.length === 0 ? 0 : 1;
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS }).values;
  } catch (error) {
    throw new DrawbridgeError("usage", error instanceof Error ? error.message : "wrong arguments", {
      hint: USAGE.trim(),
    });
  }
}

function whole(option: string, text: string): number {
  if (/^\d{1,10}$/.test(text)) return Number(text);
  throw new DrawbridgeError("usage", `${option} is not a number: ${text}`, { hint: USAGE.trim() });
}

/** The sum, and each with its name. */
function listed(counts: Readonly<Record<string, number>>): string {
  const entries = Object.entries(counts);
  const sum = entries.reduce((total, [, count]) => total + count, 0);
  return `${sum} (${entries.map(([name, count]) => `${name} ${count}`).join(", ")})`;
}

function report(totals: ChaosTotals, print: (line: string) => void): void {
  const {
    seed,
    rounds,
    seconds,
    faults,
    questions,
    answered,
    ended,
    byCatchup,
    overtaken,
    violations,
    folder,
  } = totals;
  print(`${rounds} rounds in ${seconds} s, seed ${seed}`);
  print(`faults: ${listed(faults)}`);
  print(`questions: ${listed(questions)}`);
  print(
    `${answered} answered, ${ended} ended without an answer, ${byCatchup} by catchup, ${overtaken} delivered late; ${violations.length} violations`,
  );
  for (const violation of violations) print(`VIOLATION: ${violation}`);
  if (violations.length === 0) return;
  print(`Repeat it: ./task test:chaos --seed ${seed} --rounds ${rounds}`);
  print(`Look at ${folder}: logs, org-a/bridge/bridge.log, org-a/bridge/audit.jsonl, org-b/agent/tasks.`);
}
