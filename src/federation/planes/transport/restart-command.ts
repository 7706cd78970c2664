// Runs the command that restarts the homeserver. No shell is involved, and nothing that it prints is kept.
import { spawn } from "node:child_process";
import { DrawbridgeError } from "../../../domain/errors.ts";

/**
 * Resolves when the command has ended well.
 * @param timeoutMs after which it is killed
 * @throws DrawbridgeError `program_failed`
 */
export async function runRestartCommand(
  command: readonly string[],
  directory: string,
  timeoutMs: number,
): Promise<void> {
  const [program = "", ...args] = command;
  const outcome = await new Promise<string>((resolve) => {
    const child = spawn(program, args, {
      cwd: directory,
      stdio: "ignore",
      signal: AbortSignal.timeout(timeoutMs),
      killSignal: "SIGKILL",
    });
    child.once("error", (error: NodeJS.ErrnoException) => {
      resolve(
        error.name === "AbortError" ? "did not end in time" : `could not be run: ${error.code ?? error.name}`,
      );
    });
    child.once("exit", (code, signal) =>
      resolve(code === 0 ? "" : `ended with ${signal ?? `exit code ${code}`}`),
    );
  });
  if (outcome === "") return;
  throw new DrawbridgeError("program_failed", `the homeserver's restart command ${outcome}`, {
    hint: "Run the command of transport.restart by hand, and hint what it says; the include file is written.",
  });
}
