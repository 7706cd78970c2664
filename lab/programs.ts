// The programs that a lab runs: Synapse and Envoy, from the project's Python environment, and `drawbridge`.
import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { CLONE } from "./layout.ts";

/** Names another virtual environment than the clone's own. */
const ENVIRONMENT_VARIABLE = "DRAWBRIDGE_VENV";

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
  return { python, envoy, node: process.execPath, drawbridge: join(CLONE, "bin", "drawbridge") };
}

export interface ProgramResult {
  readonly code: number;
  readonly stdout: string;
  /** Empty where it went to this program's own. */
  readonly stderr: string;
}

/**
 * Runs a program to its end. One that cannot be started ends with 127 and says so on standard error.
 * @param stderr whether its standard error is kept, or goes to this program's own
 */
export function runProgram(
  command: string,
  args: readonly string[],
  directory: string,
  stderr: "inherit" | "pipe" = "pipe",
): Promise<ProgramResult> {
  return new Promise((resolve) => {
    const child = spawn(command, [...args], { cwd: directory, stdio: ["ignore", "pipe", stderr] });
    let [output, errors] = ["", ""];
    child.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
      output += chunk;
    });
    child.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
      errors += chunk;
    });
    child.once("error", ({ message }) => resolve({ code: 127, stdout: output, stderr: message }));
    child.once("close", (code) => resolve({ code: code ?? 1, stdout: output, stderr: errors }));
  });
}

/** Runs `drawbridge` with these arguments, in a process of its own, as an operator does. */
export function runDrawbridge(
  args: readonly string[],
  directory: string,
  stderr: "inherit" | "pipe" = "inherit",
): Promise<ProgramResult> {
  const { node, drawbridge } = findPrograms();
  return runProgram(node, [drawbridge, ...args], directory, stderr);
}
