// The Envoy program: where it is, asking it whether files are sound, running it.
// Envoy asks the kernel to be killed with its parent, so whoever starts it must stay.
import { type ChildProcess, spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { DrawbridgeError } from "../../../domain/errors.ts";
import type { GatewayConfig } from "./config.ts";

/** How long the access log may lag behind. */
const LOG_FLUSH_INTERVAL_MS = 200;
const OWN_LOG_FORMAT = '{"level":"%l","time":"%Y-%m-%dT%T.%eZ","source":"envoy","msg":"%j"}';

const MEND = "Install Envoy, or name its program in the configuration as envoy.binary.";

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * The path of the Envoy program.
 * @throws DrawbridgeError `program_failed` when there is none
 */
export function findEnvoy(
  configured: string | undefined,
  searchPath: string = process.env["PATH"] ?? "",
): string {
  if (configured?.includes("/")) {
    if (isExecutable(configured)) return configured;
    throw new DrawbridgeError("program_failed", `${configured} is not a program`, { mend: MEND });
  }
  const name = configured ?? "envoy";
  for (const directory of searchPath.split(delimiter)) {
    const candidate = join(directory, name);
    if (directory !== "" && isExecutable(candidate)) return candidate;
  }
  throw new DrawbridgeError("program_failed", `there is no program "${name}" in PATH`, { mend: MEND });
}

/**
 * Asks Envoy whether a configuration file is sound; nothing is listened on.
 * @throws DrawbridgeError `program_failed` with Envoy's own words, which speak of configuration alone
 */
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
    mend: "Correct the gateway's configuration; the rendered file is beside the live ones.",
  });
}

/** Starts Envoy on a bootstrap file. Its own log goes to standard error. */
export function startEnvoy(binary: string, bootstrap: string, config: GatewayConfig): ChildProcess {
  return spawn(
    binary,
    [
      "--config-path",
      bootstrap,
      "--reject-unknown-dynamic-fields",
      "--disable-hot-restart",
      "--concurrency",
      String(config.envoy.concurrency),
      "--file-flush-interval-msec",
      String(LOG_FLUSH_INTERVAL_MS),
      "--log-level",
      "warn",
      "--log-format",
      OWN_LOG_FORMAT,
    ],
    { stdio: ["ignore", "ignore", "inherit"] },
  );
}

/** Resolves with the exit code, or with 128 plus nothing better when a signal ended it. */
export function endOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve, reject) => {
    child.once("error", (cause) => {
      reject(new DrawbridgeError("program_failed", "Envoy could not be started", { mend: MEND, cause }));
    });
    child.once("exit", (code) => resolve(code ?? 128));
  });
}
