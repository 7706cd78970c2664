// A PostgreSQL server of the lab's own, from the programs of the npm package for this platform.
// Invariants: loopback TCP only, scram passwords only, durable commits (fsync, synchronous_commit); one
// server a directory, even when several processes start it at once; no content of a row goes to its log; a
// server is reported only when its process is alive and works in the data directory, so that a reused process
// ID is never signalled.
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import {
  closeSync,
  existsSync,
  openSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { type Clock, type Random, systemClock, systemRandom } from "../../src/domain/clock.ts";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { freePort } from "../ports.ts";
import { isProcessAlive } from "../processes.ts";
import { type PostgresBinaries, postgresBinaries } from "./binaries.ts";
import { initialise, readOrMakePassword, serverHome, serverHomes, sweep } from "./server-directory.ts";
import { type UnprivilegedUser, unprivilegedUser } from "./unprivileged-user.ts";

export interface EmbeddedPostgresOptions {
  /** The server's own folder, created if missing: data, password, port, log. */
  readonly directory: string;
  /** Preferred port; by default the one of the last start. A port in use is replaced by a free one. */
  readonly port?: number;
  /** Whether the server outlives this process. By default it ends with it, even when it is killed. */
  readonly detached?: boolean;
  /** Called with notes for an operator: programs copied, data placed elsewhere. */
  readonly log?: (message: string) => void;
  readonly clock?: Clock;
  readonly random?: Random;
}

export interface EmbeddedPostgres {
  /** Connects as the superuser `postgres` to the database `postgres`. Holds the password: a secret. */
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  readonly dataDirectory: string;
  readonly logFile: string;
  /** True when the server was already running. */
  readonly reused: boolean;
  /** Ends the server, open connections included, and resolves when its process is gone. Idempotent. */
  stop(): Promise<void>;
}

const START_TIMEOUT_MS = 120_000;
const STOP_TIMEOUT_MS = 30_000;
const POLL_MS = 10;
const PORT_ATTEMPTS = 5;

const SETTINGS = {
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  fsync: "on",
  synchronous_commit: "on",
  full_page_writes: "on",
  max_connections: "300",
  timezone: "UTC",
  log_timezone: "UTC",
  // An error's statement and detail carry values of rows; neither belongs in a log.
  log_statement: "none",
  log_min_error_statement: "panic",
  log_error_verbosity: "terse",
};

// Holds the server for as long as its standard input stays open: the kernel closes it when the starter
// ends, however that ends, and the server then shuts down in order.
const LIFELINE = `exec 3<&0
"$@" </dev/null 3<&- &
server=$!
{ read -r _ <&3; kill -INT "$server"; } 2>/dev/null &
watcher=$!
exec 3<&-
wait "$server"
code=$?
kill "$watcher" 2>/dev/null
exit "$code"`;

function launch(
  home: string,
  port: number,
  binaries: PostgresBinaries,
  user: UnprivilegedUser | undefined,
  detached: boolean,
): ChildProcess {
  const command = [binaries.postgres, "-D", join(home, "data"), "-p", String(port)];
  for (const [name, value] of Object.entries(SETTINGS)) command.push("-c", `${name}=${value}`);
  const log = openSync(join(home, "postgres.log"), "a", 0o600);
  try {
    // Always a session of its own: an interrupt typed at the terminal reaches the starter alone.
    const common = { ...user, cwd: "/", detached: true } as const;
    const [program = binaries.postgres, ...args] = command;
    const child = detached
      ? spawn(program, args, { ...common, stdio: ["ignore", log, log] })
      : spawn("/bin/sh", ["-c", LIFELINE, "sh", ...command], { ...common, stdio: ["pipe", log, log] });
    child.unref();
    const lifeline = child.stdin as (typeof child.stdin & { unref?(): void }) | null;
    lifeline?.unref?.();
    lifeline?.on("error", () => {}); // The server ended first.
    return child;
  } finally {
    closeSync(log);
  }
}

function lastLines(file: string): string {
  try {
    return readFileSync(file, "utf8").trimEnd().split("\n").slice(-3).join(" | ");
  } catch {
    return "no log";
  }
}

/** Waits until the server of `data` is ready; undefined when `child` ended without one. */
async function becomesReady(
  data: string,
  clock: Clock,
  child: ChildProcess | undefined,
): Promise<Postmaster | undefined> {
  const deadline = clock.now() + START_TIMEOUT_MS;
  let ended = child === undefined;
  child?.once("exit", () => {
    ended = true;
  });
  child?.once("error", () => {
    ended = true;
  });
  while (clock.now() < deadline) {
    const state = postmasterOf(data);
    if (state.kind === "running" && state.postmaster.ready) return state.postmaster;
    if (ended && state.kind !== "running") return undefined;
    await clock.sleep(POLL_MS);
  }
  throw new DrawbridgeError(
    "database_unavailable",
    `PostgreSQL in ${data} is not ready after ${START_TIMEOUT_MS / 1000} s`,
    {
      hint: `Read ${join(dirname(data), "postgres.log")}: it may still be recovering from a crash.`,
    },
  );
}

function signal(pid: number, name: NodeJS.Signals): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error; // It ended in this very moment.
  }
}

async function endPostmaster(data: string, pid: number, clock: Clock): Promise<void> {
  // A fast shutdown ends connections and loses nothing. An immediate one is like a crash: the next start
  // recovers from it.
  for (const shutdown of ["SIGINT", "SIGQUIT"] as const) {
    if (!isPostmasterOf(pid, data)) return;
    signal(pid, shutdown);
    const deadline = clock.now() + STOP_TIMEOUT_MS;
    while (isPostmasterOf(pid, data) && clock.now() < deadline) await clock.sleep(POLL_MS);
  }
}

/**
 * Starts PostgreSQL in a directory, or finds the server that already runs there.
 *
 * As root it is run as `nobody`. When `nobody` cannot enter the directory, data (and programs, if need be)
 * are kept in a private directory under /var/tmp, and `log` reports that.
 * @throws DrawbridgeError `program_failed` when it cannot be initialised or started;
 *   `database_unavailable` when it does not become ready in two minutes.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const clock = options.clock ?? systemClock;
  const user = unprivilegedUser();
  const home = serverHome(options.directory, user, options.log);
  const data = join(home, "data");
  const portFile = join(home, "port");
  const logFile = join(home, "postgres.log");

  const handle = (postmaster: Postmaster, secret: string, reused: boolean): EmbeddedPostgres => ({
    url: `postgres://postgres:${secret}@127.0.0.1:${postmaster.port}/postgres`,
    port: postmaster.port,
    pid: postmaster.pid,
    dataDirectory: data,
    logFile,
    reused,
    stop: () => endPostmaster(data, postmaster.pid, clock),
  });

  sweep(home);
  const secret = readOrMakePassword(home, user, options.random ?? systemRandom);
  const found = await becomesReady(data, clock, undefined);
  if (found !== undefined) return handle(found, secret, true);

  const binaries = postgresBinaries(user);
  if (binaries.copiedTo !== undefined) {
    options.log?.(
      `PostgreSQL's programs run from a copy in ${binaries.copiedTo}: this clone is closed to their user`,
    );
  }
  initialise(home, binaries, user);

  const last = existsSync(portFile) ? Number(readFileSync(portFile, "utf8")) : undefined;
  let preferred = options.port ?? (Number.isInteger(last) ? last : undefined);
  for (let attempt = 0; attempt < PORT_ATTEMPTS; attempt++) {
    const state = postmasterOf(data);
    // PostgreSQL would take any live process for its own server; this one is proven to be another program.
    if (state.kind === "stale" && state.pidReused) rmSync(join(data, "postmaster.pid"), { force: true });
    const port = await freePort(preferred);
    const child = launch(home, port, binaries, user, options.detached === true);
    const ready = await becomesReady(data, clock, child);
    if (ready !== undefined) {
      if (ready.port === port) writeFileSync(portFile, String(port));
      return handle(ready, secret, ready.port !== port);
    }
    preferred = undefined; // Another program may have taken the port between the check and the start.
  }
  throw new DrawbridgeError("program_failed", `PostgreSQL does not start in ${home}: ${lastLines(logFile)}`, {
    hint: `Read ${logFile}.`,
  });
}

/**
 * Ends the server of a directory, if it runs, and removes everything that belongs to it, also what is kept
 * elsewhere because the server's user could not enter the directory.
 */
export async function removeEmbeddedPostgres(directory: string, clock: Clock = systemClock): Promise<void> {
  for (const home of serverHomes(directory)) {
    const data = join(home, "data");
    const state = postmasterOf(data);
    if (state.kind === "running") await endPostmaster(data, state.postmaster.pid, clock);
    rmSync(home, { recursive: true, force: true });
  }
}

export interface Postmaster {
  readonly pid: number;
  readonly port: number;
  /** Whether it accepts connections already. */
  readonly ready: boolean;
}

export type PostmasterState =
  | { readonly kind: "absent" }
  /** The lock file is of a server that ended, or its process ID now belongs to another program. */
  | { readonly kind: "stale"; readonly pidReused: boolean }
  | { readonly kind: "running"; readonly postmaster: Postmaster };

/** Whether `pid` is a live server of the data directory; a server ends a little after its lock file is gone. */
export function isPostmasterOf(pid: number, dataDirectory: string): boolean {
  if (!isProcessAlive(pid)) return false;
  try {
    return readlinkSync(`/proc/${pid}/cwd`) === realpathSync(dataDirectory);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === "EACCES") return false; // Another user's process: not one that we could have started.
    if (process.platform === "linux") return false; // It has just ended.
  }
  const listed = spawnSync("ps", ["-o", "command=", "-p", String(pid)], { encoding: "utf8" });
  return listed.status === 0 && listed.stdout.includes("postgres") && listed.stdout.includes(dataDirectory);
}

/** Reads and verifies `postmaster.pid` of a data directory. */
export function postmasterOf(dataDirectory: string): PostmasterState {
  let text: string;
  try {
    text = readFileSync(join(dataDirectory, "postmaster.pid"), "utf8");
  } catch {
    return { kind: "absent" };
  }
  // PostgreSQL's miscadmin.h: 1 pid, 2 data directory, 3 start, 4 port, 5 socket, 6 address, 7 memory, 8 status.
  const lines = text.split("\n").map((line) => line.trim());
  const pid = Number(lines[0]);
  const port = Number(lines[3]);
  if (!Number.isInteger(pid) || pid <= 0 || !isProcessAlive(pid)) return { kind: "stale", pidReused: false };
  if (!isPostmasterOf(pid, dataDirectory)) return { kind: "stale", pidReused: isProcessAlive(pid) };
  return { kind: "running", postmaster: { pid, port, ready: lines[7] === "ready" && port > 0 } };
}
