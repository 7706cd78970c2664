// The homeserver's restart: the command, and what the transport plane records of it between passes.
// Invariant: an intent is durable before it is acted upon, so that a crash between writing the include file and the
// restart is noticed, and a crash loop cannot restart the homeserver more often than allowed.
import { spawn } from "node:child_process";
import { statSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { PRIVATE, readIfPresent, writeWhole } from "../../../runtime/write-file.ts";

/**
 * Runs the command without a shell; nothing that it prints is kept.
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

const HOUR_MS = 3_600_000;

const Record = z.strictObject({
  version: z.literal(1),
  /** SHA-256, tagged, of the include file that awaits a restart; null when none does. */
  pending: z.string().nullable(),
  /** Milliseconds since the epoch, oldest first, of the last hour. */
  restarts: z.array(z.number()),
});
export type RestartRecord = Omit<z.output<typeof Record>, "version">;

const EMPTY: RestartRecord = { pending: null, restarts: [] };

export class RestartRecordFile {
  readonly #file: string;
  readonly #maxPerHour: number;

  /**
   * @param state the reconciler's folder
   * @param maxPerHour restarts that are allowed within an hour
   */
  constructor(state: string, maxPerHour: number) {
    this.#file = join(state, "transport.json");
    this.#maxPerHour = maxPerHour;
  }

  /**
   * What is remembered. A record that cannot be understood counts as a restart that is due, and as if all
   * restarts but one had been made when it was last written: a closing is not held up, and a loop is.
   */
  read(): RestartRecord {
    const text = readIfPresent(this.#file);
    if (text === undefined) return EMPTY;
    try {
      return Record.parse(JSON.parse(text));
    } catch {
      const writtenAt = Math.trunc(statSync(this.#file).mtimeMs);
      return { pending: "unknown", restarts: Array.from({ length: this.#maxPerHour - 1 }, () => writtenAt) };
    }
  }

  write(record: RestartRecord): void {
    writeWhole(this.#file, `${JSON.stringify({ version: 1, ...record })}\n`, PRIVATE);
  }
}

/** The restarts of the last hour. A time that lies ahead was written by a clock that was wrong. */
export function recentRestarts(record: RestartRecord, now: number): readonly number[] {
  return record.restarts.filter((at) => at <= now && now - at < HOUR_MS);
}

/** Milliseconds until another restart is allowed; 0 when it is now. */
export function untilAllowedMs(record: RestartRecord, maxPerHour: number, now: number): number {
  const recent = recentRestarts(record, now);
  const blocking = recent[recent.length - maxPerHour];
  return blocking === undefined ? 0 : blocking + HOUR_MS - now;
}
