// Runs programs for tasks, with their output passed through or collected.
import { type SpawnOptions, spawn } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The root of the repository. */
export const ROOT = fileURLToPath(new URL("..", import.meta.url));

/** A program that an npm package has installed. */
export function npmProgram(name: string): string {
  return join(ROOT, "node_modules", ".bin", name);
}

/** A program of the Python environment. */
export function pythonProgram(name: string): string {
  return join(ROOT, ".venv", "bin", name);
}

export interface Outcome {
  readonly code: number;
  /** Standard output and standard error, in the order written; empty when passed through. */
  readonly output: string;
}

export interface RunOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** The folder to run it in; the root of the repository if absent. */
  readonly cwd?: string;
  /** Collects the output instead of passing it through. */
  readonly quiet?: boolean;
}

/** Runs a program; a signal that ends this process ends it too. */
export function runProgram(
  program: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<Outcome> {
  const spawnOptions: SpawnOptions = {
    cwd: options.cwd ?? ROOT,
    env: { ...process.env, ...options.env },
    stdio: options.quiet === true ? ["ignore", "pipe", "pipe"] : "inherit",
  };
  return new Promise((resolve) => {
    const child = spawn(program, [...args], spawnOptions);
    let output = "";
    const collect = (chunk: Buffer) => {
      output += chunk.toString("utf8");
    };
    child.stdout?.on("data", collect);
    child.stderr?.on("data", collect);
    // An interrupt typed at a terminal reaches the child by itself.
    const forward = (signal: NodeJS.Signals) => {
      if (!(signal === "SIGINT" && process.stdin.isTTY)) child.kill(signal);
    };
    const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
    for (const signal of signals) process.on(signal, forward);
    const finish = (code: number, text: string) => {
      for (const signal of signals) process.off(signal, forward);
      resolve({ code, output: text });
    };
    child.on("error", (error) => finish(127, `${output}${program}: ${error.message}\n`));
    child.on("close", (code) => finish(code ?? 1, output));
  });
}
