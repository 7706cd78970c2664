// The Envoy program: finding it, validating files with it, running it. Invariant: the kernel ends Envoy with the process
// that started it; what an earlier run left behind all the same is ended before a new one starts.
import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Clock } from "../domain/clock.ts";
import { DrawbridgeError, errorName } from "../domain/errors.ts";
import type { GatewayConfig } from "./config.ts";

const LOG_FLUSH_INTERVAL_MS = 200;
const LEFTOVER_WAIT_MS = 5_000;
const OWN_LOG_FORMAT = '{"level":"%l","time":"%Y-%m-%dT%T.%eZ","source":"envoy","msg":"%j"}';

const INSTALL_HINT =
  "Install Envoy, or name its program as envoy.binary; it is started by setpriv (util-linux).";

/** Before the Envoy of an earlier run is ended. @throws DrawbridgeError `program_failed` where Envoy could not be started */
export async function requireSetpriv(): Promise<void> {
  await endOf(spawn("setpriv", ["--version"], { stdio: "ignore" }));
}

/** Has Envoy validate a file. @throws DrawbridgeError `program_failed` with Envoy's words, which speak of configuration */
export async function validateFile(binary: string, file: string): Promise<void> {
  const child = spawn(
    binary,
    ["--mode", "validate", "-c", file, "--disable-hot-restart", "--log-level", "error"],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  let words = "";
  child.stderr.setEncoding("utf8");
  child.stderr.on("data", (text: string) => {
    if (words.length < 4_096) words += text;
  });
  const code = await endOf(child);
  if (code === 0) return;
  throw new DrawbridgeError("program_failed", `Envoy refuses the rendered configuration: ${words.trim()}`, {
    hint: "Correct the gateway's configuration; the rendered file is beside the live ones.",
  });
}

/** Starts Envoy on a bootstrap file, and notes its process ID beside it. Its own log goes to standard error. */
export function startEnvoy(bootstrap: string, { binary, concurrency }: GatewayConfig["envoy"]): ChildProcess {
  const args = [
    // Envoy itself asks to be ended with its parent only in hot-restart mode, which leaves a file in /dev/shm at each start.
    ["--pdeathsig", "TERM", "--", binary, "--disable-hot-restart"],
    ["--config-path", bootstrap],
    ["--reject-unknown-dynamic-fields"],
    ["--concurrency", String(concurrency)],
    ["--drain-strategy", "immediate"],
    ["--file-flush-interval-msec", String(LOG_FLUSH_INTERVAL_MS)],
    ["--log-level", "warn"],
    ["--log-format", OWN_LOG_FORMAT],
  ].flat();
  const child = spawn("setpriv", args, { stdio: ["ignore", "ignore", "inherit"] });
  if (child.pid !== undefined) writeFileSync(pidFile(bootstrap), `${child.pid}\n`);
  return child;
}

const pidFile = (bootstrap: string): string => join(dirname(bootstrap), "envoy.pid");

/** The process that was noted beside a bootstrap file; undefined unless it still runs on that file. */
function noted(bootstrap: string): number | undefined {
  try {
    const pid = Number(readFileSync(pidFile(bootstrap), "utf8"));
    const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
    return pid > 1 && words.includes(bootstrap) ? pid : undefined;
  } catch {
    return undefined;
  }
}

/** Ends what an earlier run left behind; two would answer by two policies. @throws DrawbridgeError `program_failed` */
export async function endLeftover(bootstrap: string, clock: Clock): Promise<void> {
  let pid = noted(bootstrap);
  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    if (pid === undefined) return;
    process.kill(pid, signal);
    const deadline = clock.now() + LEFTOVER_WAIT_MS;
    while (pid !== undefined && clock.now() < deadline) {
      await clock.sleep(20);
      pid = noted(bootstrap);
    }
  }
  if (pid === undefined) return;
  throw new DrawbridgeError("program_failed", `the Envoy of an earlier run (process ${pid}) does not end`, {
    hint: `End process ${pid}, then start the gateway again.`,
  });
}

export function endOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    child.once("error", (cause) => {
      const problem = `Envoy could not be started (${errorName(cause)})`;
      reject(new DrawbridgeError("program_failed", problem, { hint: INSTALL_HINT, cause }));
    });
    child.once("exit", (code) => resolve(code ?? 128));
  });
}
