// Commands run in the test's own process, as far as what they print and their exit code are what a test is about: a start
// of Node.js takes a fifth of a second. Invariants: one command runs at a time, because a process has one exit code; what
// anything else prints meanwhile, such as the test runner, goes where it always goes.
import { AsyncLocalStorage } from "node:async_hooks";
import process from "node:process";
import { runWords } from "../../src/cli/lib/command.ts";
import { buildProgram } from "../../src/cli/program.ts";
import type { Finished } from "./temporary.ts";

interface Printed {
  stdout: string;
  stderr: string;
}

const printedBy = new AsyncLocalStorage<Printed>();
for (const name of ["stdout", "stderr"] as const) collect(name);

/** Keeps what a command writes to a stream. */
function collect(name: keyof Printed): void {
  const stream = process[name];
  const write = stream.write.bind(stream) as (...args: readonly unknown[]) => boolean;
  stream.write = (chunk: string | Uint8Array, ...more: readonly unknown[]) => {
    const printed = printedBy.getStore();
    if (printed === undefined) return write(chunk, ...more);
    printed[name] += typeof chunk === "string" ? chunk : Buffer.from(chunk).toString("utf8");
    for (const done of more) if (typeof done === "function") done();
    return true;
  };
}

let last: Promise<unknown> = Promise.resolve();

interface Surroundings {
  /** This process's own when absent. */
  readonly cwd?: string;
  /** Beside this process's own. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs the CLI as `runCli` does, in this process. */
export function runCliHere(words: readonly string[], surroundings: Surroundings = {}): Promise<Finished> {
  const finished = last.then(() => runOne(words, surroundings));
  last = finished.catch(() => undefined);
  return finished;
}

async function runOne(words: readonly string[], { cwd, env = {} }: Surroundings): Promise<Finished> {
  const printed: Printed = { stdout: "", stderr: "" };
  const before = { exitCode: process.exitCode, cwd: process.cwd() };
  process.exitCode = undefined;
  try {
    if (cwd !== undefined) process.chdir(cwd);
    Object.assign(process.env, env);
    const ended = await printedBy.run(printed, () => runWords(buildProgram, words));
    return { ...printed, code: ended ?? Number(process.exitCode ?? 0), signal: null };
  } finally {
    for (const name of Object.keys(env)) delete process.env[name];
    process.chdir(before.cwd);
    process.exitCode = before.exitCode;
  }
}
