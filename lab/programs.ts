// The programs that a lab runs: Synapse and Envoy, from the project's Python environment, and `drawbridge`.
import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { CLONE } from "./layout.ts";

/** Names another virtual environment than the clone's own. */
const ENVIRONMENT_VARIABLE = "DRAWBRIDGE_VENV";
/** Names a bundled CLI, which starts faster than the clone's sources. */
export const CLI_VARIABLE = "DRAWBRIDGE_CLI";

export interface LabPrograms {
  readonly python: string;
  readonly envoy: string;
  /** Node.js, as it runs this code. */
  readonly node: string;
  readonly drawbridge: string;
}

/**
 * Finds the programs.
 * @throws DrawbridgeError `program_failed` when one is missing
 */
export function findPrograms(environment: NodeJS.ProcessEnv = process.env): LabPrograms {
  const venv = environment[ENVIRONMENT_VARIABLE] || join(CLONE, ".venv");
  const python = join(venv, "bin", "python");
  const libraries = join(venv, "lib");
  const envoy = (existsSync(libraries) ? readdirSync(libraries) : [])
    .map((version) => join(libraries, version, "site-packages", "envoy", "_bin", "envoy"))
    .find((file) => existsSync(file));
  if (!existsSync(python) || envoy === undefined) {
    throw new DrawbridgeError("program_failed", `Synapse and Envoy are not installed in ${venv}`, {
      hint: "Run ./task fed:up, which installs them first; ./task doctor says what stands in its way.",
    });
  }
  const drawbridge = environment[CLI_VARIABLE] || join(CLONE, "bin", "drawbridge");
  return { python, envoy, node: process.execPath, drawbridge };
}

export interface ProgramResult {
  readonly code: number;
  readonly stdout: string;
  /** Empty where it went to this program's own. */
  readonly stderr: string;
}

export interface RunOptions {
  /** Whether its standard error is kept, or goes to this program's own; kept when absent. */
  readonly stderr?: "inherit" | "pipe";
  /** Called with each line of standard error that is kept, as it is written. */
  readonly onLine?: (line: string) => void;
  /** Ends the program (SIGTERM). */
  readonly signal?: AbortSignal;
}

/** Runs a program to its end. One that cannot be started ends with 127 and says so on standard error. */
export function runProgram(
  command: string,
  args: readonly string[],
  directory: string,
  { stderr = "pipe", onLine, signal }: RunOptions = {},
): Promise<ProgramResult> {
  return new Promise((resolve) => {
    const child = spawn(command, [...args], { cwd: directory, stdio: ["ignore", "pipe", stderr], signal });
    let [output, errors, line] = ["", "", ""];
    child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
      output += chunk;
    });
    child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
      errors += chunk;
      const lines = `${line}${chunk}`.split("\n");
      line = lines.pop() ?? "";
      for (const whole of lines) onLine?.(whole);
    });
    child.once("error", ({ message }) => resolve({ code: 127, stdout: output, stderr: message }));
    child.once("close", (code) => resolve({ code: code ?? 1, stdout: output, stderr: errors }));
  });
}

/** Runs `drawbridge` with these arguments, in a process of its own, as an operator does. */
export function runDrawbridge(
  args: readonly string[],
  directory: string,
  options: RunOptions = { stderr: "inherit" },
): Promise<ProgramResult> {
  const { node, drawbridge } = findPrograms();
  return runProgram(node, [drawbridge, ...args], directory, options);
}
