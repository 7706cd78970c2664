// Temporary folders and programs run by tests, both gone after the test.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { CLI_VARIABLE } from "../../lab/programs.ts";

/** The root of the repository. */
export const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** What Node.js runs as the CLI. */
export const cliMain = (): string => process.env[CLI_VARIABLE] ?? join(ROOT, "src", "cli", "main.ts");

/** A new folder, mode 0700, with a space in its name; removed after the test. */
export function temporaryFolder(t: { after(close: () => unknown): unknown }): string {
  const folder = mkdtempSync(join(tmpdir(), "drawbridge test "));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Writes a file and the folders above it. */
export function writeFile(path: string, content: string, mode = 0o600): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, content, { mode });
}

export interface Finished {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Running {
  readonly child: ChildProcess;
  /** Resolves with everything printed when the program has ended. */
  readonly finished: Promise<Finished>;
  /** Resolves when standard output contains `text`, to all of it so far. */
  printed(text: string): Promise<string>;
}

export interface StartOptions {
  readonly cwd?: string;
  /** Replaces the whole environment. */
  readonly env?: NodeJS.ProcessEnv;
  /** Its standard input; empty when absent. */
  readonly input?: string;
}

/** Starts a program; what it prints is collected. */
export function start(program: string, args: readonly string[], options: StartOptions = {}): Running {
  const { input = "", ...given } = options;
  const child = spawn(program, [...args], { cwd: ROOT, ...given, stdio: ["pipe", "pipe", "pipe"] });
  // It may end without reading.
  child.stdin.on("error", () => undefined);
  child.stdin.end(input);
  let stdout = "";
  let stderr = "";
  const waiting = new Set<() => void>();
  child.stdout.on("data", (chunk: Buffer) => {
    stdout += chunk.toString("utf8");
    for (const check of waiting) check();
  });
  child.stderr.on("data", (chunk: Buffer) => {
    stderr += chunk.toString("utf8");
  });
  const finished = new Promise<Finished>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve({ code, signal, stdout, stderr }));
  });
  const printed = (text: string) =>
    new Promise<string>((resolve, reject) => {
      const check = () => {
        if (stdout.includes(text)) resolve(stdout);
      };
      waiting.add(check);
      check();
      finished.then(() => reject(new Error(`${program} ended without printing ${text}: ${stderr}`)), reject);
    });
  return { child, finished, printed };
}

/** Runs a program to its end. */
export function run(program: string, args: readonly string[], options: StartOptions = {}): Promise<Finished> {
  return start(program, args, options).finished;
}

/** Runs the CLI to its end; the launcher `bin/drawbridge` has tests of its own. */
export function runCli(words: readonly string[], options: StartOptions = {}): Promise<Finished> {
  return run(process.execPath, [cliMain(), ...words], options);
}
