// Starts one program of a unit. Invariants: a program is the leader of its own session, so that an
// interrupt typed at a terminal reaches none of them; its output goes to its log and nowhere else.
import { spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync, renameSync, statSync } from "node:fs";
import { dirname } from "node:path";
import type { Clock } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { createDatabases, databasesOf } from "../configuration/databases.ts";
import { writeJson } from "../files.ts";
import type { Lab } from "../lab.ts";
import { startEmbeddedPostgres } from "../postgres/embedded-postgres.ts";
import { identityOf, isAlive, type ProcessIdentity } from "../processes.ts";
import type { CommandLine } from "./unit-specs.ts";

export interface RunningProgram {
  readonly identity: ProcessIdentity;
  /** How it ended, such as `exit 0` or `SIGKILL`. */
  readonly ended: Promise<string>;
  /** Asks it to end in order. */
  readonly stopSignal: NodeJS.Signals;
}

const LOG_BYTES_MAX = 64 * 1024 * 1024;
const POSTGRES_POLL_MS = 200;

export async function launchCommand(program: CommandLine, logFile: string): Promise<RunningProgram> {
  const log = openLog(logFile);
  try {
    const child = spawn(program.command, [...program.args], {
      cwd: program.directory,
      detached: true,
      stdio: ["ignore", log, log],
      env: { ...process.env, ...program.environment },
    });
    const ended = new Promise<string>((resolve) => {
      child.once("exit", (code, signal) => resolve(signal ?? `exit ${code}`));
      child.once("error", (error: NodeJS.ErrnoException) => resolve(`not started: ${error.code}`));
    });
    const identity = child.pid === undefined ? undefined : identityOf(child.pid);
    if (identity === undefined) {
      throw new DrawbridgeError("program_failed", `${program.command} ended at once: ${await ended}`);
    }
    return { identity, ended, stopSignal: "SIGTERM" };
  } finally {
    closeSync(log);
  }
}

/** PostgreSQL on the lab's own port, with the databases of all programs. One that runs there is taken over. */
export async function launchPostgres(
  lab: Lab,
  clock: Clock,
  log: (message: string) => void,
): Promise<RunningProgram> {
  const server = await startEmbeddedPostgres({
    directory: lab.paths.postgres,
    port: lab.ports.postgres,
    detached: true,
    log,
    clock,
  });
  if (server.port !== lab.ports.postgres) {
    await server.stop();
    throw new DrawbridgeError("program_failed", `another program listens on port ${lab.ports.postgres}`, {
      hint: "Run ./task fed:down and ./task fed:up: it chooses other ports.",
    });
  }
  writeJson(lab.paths.postgresPlace, { dataDirectory: server.dataDirectory, logFile: server.logFile });
  await createDatabases(server.url, databasesOf(lab));
  const identity = identityOf(server.pid);
  if (identity === undefined) throw new DrawbridgeError("program_failed", "PostgreSQL ended at once");
  // SIGINT is its fast shutdown: open connections are ended, nothing is lost.
  return { identity, ended: endOf(identity, clock), stopSignal: "SIGINT" };
}

/** It is no child of this process when it survived an earlier supervisor, so it is watched. */
async function endOf(identity: ProcessIdentity, clock: Clock): Promise<string> {
  while (isAlive(identity)) await clock.sleep(POSTGRES_POLL_MS);
  return "ended";
}

function openLog(file: string): number {
  mkdirSync(dirname(file), { recursive: true });
  try {
    if (statSync(file).size > LOG_BYTES_MAX) renameSync(file, `${file}.old`);
  } catch {
    // There is none yet.
  }
  return openSync(file, "a", 0o600);
}
