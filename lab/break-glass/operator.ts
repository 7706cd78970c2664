// What the operator types: the product's own commands, each in a process of its own.
import { spawn } from "node:child_process";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { findPrograms } from "../programs.ts";

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
