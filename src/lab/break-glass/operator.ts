// What the operator types: the product's own commands, each in a process of its own.
import { spawn } from "node:child_process";
import { join } from "node:path";
import process from "node:process";
import { DrawbridgeError } from "../../domain/errors.ts";
import { CLONE } from "../layout.ts";
import { findPrograms } from "../programs.ts";

/** What Node.js has compiled is kept, since a walk starts the same program some eighty times. */
const COMPILED = join(CLONE, "node_modules", ".cache", "compile");

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
      env: { NODE_COMPILE_CACHE: COMPILED, ...process.env },
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
