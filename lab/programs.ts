// The programs a lab runs that are not Node.js: Synapse and Envoy, from the project's Python environment.

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

// What the operator types: the product's own commands, each in a process of its own.

export interface Typed {
  readonly code: number;
  readonly stdout: string;
  /** Empty where it went to this program's own. */
  readonly stderr: string;
}

/**
 * Runs `drawbridge` with these arguments.
 * @param progress where its standard error goes: to this program's own, or kept
 */
export function typed(
  args: readonly string[],
  directory: string,
  progress: "inherit" | "pipe" = "inherit",
): Promise<Typed> {
  const { node, drawbridge } = findPrograms();
  return new Promise((resolve, reject) => {
    const child = spawn(node, [drawbridge, ...args], {
      cwd: directory,
      stdio: ["ignore", "pipe", progress],
    });
    let [stdout, stderr] = ["", ""];
    child.stdout?.setEncoding("utf8");
    child.stdout?.on("data", (chunk: string) => {
      stdout += chunk;
    });
    child.stderr?.setEncoding("utf8");
    child.stderr?.on("data", (chunk: string) => {
      stderr += chunk;
    });
    child.once("error", (cause) =>
      reject(new DrawbridgeError("program_failed", "drawbridge does not start", { cause })),
    );
    child.once("close", (code) => resolve({ code: code ?? 1, stdout, stderr }));
  });
}
