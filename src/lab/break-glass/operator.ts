// What the operator types: the product's own commands, each in a process of its own.
import { spawn } from "node:child_process";
import process from "node:process";
import { DrawbridgeError } from "../../domain/errors.ts";
import { findPrograms } from "../programs.ts";

export interface Typed {
  readonly code: number;
  readonly stdout: string;
}

/** Runs `drawbridge` with these arguments; its progress goes to this program's standard error. */
export function typed(args: readonly string[], directory: string): Promise<Typed> {
  const { node, drawbridge } = findPrograms();
  return new Promise((resolve, reject) => {
    const child = spawn(node, [drawbridge, ...args], {
      cwd: directory,
      stdio: ["ignore", "pipe", "inherit"],
      env: process.env,
    });
    let stdout = "";
    child.stdout.setEncoding("utf8");
    child.stdout.on("data", (chunk: string) => {
      stdout += chunk;
    });
    child.once("error", (cause) =>
      reject(new DrawbridgeError("program_failed", "drawbridge does not start", { cause })),
    );
    child.once("close", (code) => resolve({ code: code ?? 1, stdout }));
  });
}
