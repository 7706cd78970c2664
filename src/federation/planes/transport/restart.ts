// The homeserver's restart: the command, and what the transport plane records of it between passes.
// Invariant: an intent is durable before it is acted upon, so that a crash between writing the include file and the
// restart is noticed, and a crash loop cannot restart the homeserver more often than allowed.

import { spawn } from "node:child_process";
import { statSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import type { Clock } from "../../../domain/clock.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { PRIVATE, readIfPresent, writeWhole } from "../../../runtime/write-file.ts";
import type { FederationConfig } from "../../config.ts";
import { borderStatus } from "../border/status.ts";
import type { PlaneOutcome, PlaneProgress } from "../plane.ts";
import type { DesiredInclude } from "./render.ts";
import { isInForce, runningWhitelist } from "./whitelist.ts";

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
    hint: "Run the command of transport.restart by hand, and correct what it reports; the include file is written.",
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

/** The restarts of the last hour. A time in the future was written by a wrong clock. */
function recentRestarts(record: RestartRecord, now: number): readonly number[] {
  return record.restarts.filter((at) => at <= now && now - at < HOUR_MS);
}

/** Milliseconds until another restart is allowed; 0 when it is now. */
function untilAllowedMs(record: RestartRecord, maxPerHour: number, now: number): number {
  const recent = recentRestarts(record, now);
  const blocking = recent[recent.length - maxPerHour];
  return blocking === undefined ? 0 : blocking + HOUR_MS - now;
}

const POLL_MS = 100;

/** The homeserver's restart, within its limit, to a verified end. */
export class Restart {
  readonly #config: FederationConfig;
  readonly #record: RestartRecordFile;
  readonly #clock: Clock;

  constructor(config: FederationConfig, record: RestartRecordFile, clock: Clock) {
    this.#config = config;
    this.#record = record;
    this.#clock = clock;
  }

  async run(include: DesiredInclude, progress: PlaneProgress): Promise<PlaneOutcome> {
    const { command, maxPerHour, timeout } = this.#config.transport.restart;
    const before = this.#record.read();
    const now = this.#clock.now();
    const waitMs = untilAllowedMs(before, maxPerHour, now);
    if (waitMs > 0) return { state: "deferred", reason: "restart_limit", retryAfterMs: waitMs };

    const startedBefore = await this.#startedAt();
    const pending = sha256Tagged(include.text);
    const restarts = [...recentRestarts(before, now), now];
    this.#record.write({ pending, restarts });
    progress.note("restarting the homeserver for a changed whitelist");
    await runRestartCommand(command, this.#config.directory, timeout);
    await this.#whenBack(include, startedBefore, now + timeout);
    this.#record.write({ pending: null, restarts });
    progress.note(
      `the homeserver runs with ${include.whitelist.length} servers, ${this.#clock.now() - now} ms`,
    );
    return { state: "in_force", changed: true };
  }

  /** When the process that answers now was started, if one does. */
  async #startedAt(): Promise<string | undefined> {
    try {
      return (await borderStatus(this.#config).status()).started_at;
    } catch (error) {
      // Without its status only the whitelist distinguishes an old process from a new one.
      if (error instanceof DrawbridgeError) return undefined;
      throw error;
    }
  }

  /** Waits until another process than `before` answers with the declared whitelist. */
  async #whenBack(include: DesiredInclude, before: string | undefined, deadline: number): Promise<void> {
    for (;;) {
      if (isInForce(await runningWhitelist(this.#config), include)) {
        const startedAt = await this.#startedAt();
        if (before === undefined || (startedAt !== undefined && startedAt !== before)) return;
      }
      if (this.#clock.now() >= deadline) break;
      await this.#clock.sleep(POLL_MS);
    }
    throw new DrawbridgeError(
      "homeserver_unavailable",
      "the homeserver did not come back with the declared whitelist in time",
      {
        hint: "Read the homeserver's log; see that it reads transport.includeFile, and that the restart command restarts it.",
      },
    );
  }
}
