// Git for tests, started by a shell that waits for the next call: whenever Node.js starts a program it copies its page tables,
// which takes 3 to 24 ms by the memory in use, and tests of federation control start git thousands of times.
// Imported for its effect. Invariants: git has the arguments, environment, folder and input that it was called with, and nothing
// of the shell's; it writes no more than its caller takes; a shell runs one git at a time, and ends with this process.
import childProcess, { type ExecFileOptions } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { Writable } from "node:stream";

const { execFile, spawn } = childProcess;
const folder = mkdtempSync(join(tmpdir(), "drawbridge-git-"));
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

interface Call {
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
  readonly maxBuffer: number;
}

/** The exit code of a program that has written a larger file than it may: 128 and SIGXFSZ. */
const WROTE_TOO_MUCH = 153;

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function shellCommand({ args, cwd, env, maxBuffer }: Call): string {
  const variables = Object.entries(env).map(([name, value]) => `${name}=${quoted(value ?? "")}`);
  // In blocks of 512 bytes.
  const limit = `ulimit -f ${Math.ceil(maxBuffer / 512)}`;
  const words = [`cd ${quoted(cwd)}`, limit, "unset PWD OLDPWD", `export ${variables.join(" ")}`];
  return [...words, `exec git ${args.map(quoted).join(" ")}`].join(" && ");
}

class Shell {
  // A group of its own, so that a kill reaches git as well.
  readonly #child = spawn("/bin/sh", ["-s"], { stdio: ["pipe", "pipe", "ignore"], env: {}, detached: true });
  readonly #output = this.#child.stdout as Socket;
  readonly #files: readonly [string, string, string];
  #ended: (code: number | null) => void = () => undefined;
  isAlive = true;

  constructor(name: string) {
    const file = join(folder, name);
    this.#files = [`${file}.in`, `${file}.out`, `${file}.err`];
    this.#child.stdin.on("error", () => undefined);
    this.#output.on("data", (code: Buffer) => this.#ended(Number(code.toString("latin1"))));
    this.#child.once("close", () => {
      this.isAlive = false;
      this.#ended(null);
    });
    // Between two calls it keeps no process from ending.
    this.#child.unref();
    this.#output.unref();
  }

  /** The code is null when it took longer than `timeoutMs` and was killed. */
  async run(call: Call, input: Buffer, timeoutMs: number) {
    const [stdin, stdout, stderr] = this.#files;
    writeFileSync(stdin, input);
    const ended = new Promise<number | null>((resolve) => {
      this.#ended = resolve;
    });
    const timer = setTimeout(() => process.kill(-(this.#child.pid ?? 0), "SIGKILL"), timeoutMs);
    this.#output.ref();
    const files = `<${quoted(stdin)} >${quoted(stdout)} 2>${quoted(stderr)}`;
    this.#child.stdin.write(`(${shellCommand(call)}) ${files}; echo $?\n`);
    const code = await ended;
    clearTimeout(timer);
    this.#output.unref();
    // What a program has written that was ended is of use to nobody, and may be much.
    const killed = code === null || code === WROTE_TOO_MUCH;
    return {
      code,
      killed,
      stdout: killed ? Buffer.alloc(0) : readFileSync(stdout),
      stderr: readFileSync(stderr),
    };
  }
}

const idle: Shell[] = [];
let shells = 0;

type Callback = (cause: Error | null, stdout: Buffer, stderr: Buffer) => void;

async function runGit(call: Call, input: Buffer, timeoutMs: number, callback: Callback): Promise<void> {
  const shell = idle.pop() ?? new Shell(`${shells++}`);
  const { code, killed, stdout, stderr } = await shell.run(call, input, timeoutMs);
  if (shell.isAlive) idle.push(shell);
  const cause = code === 0 ? null : Object.assign(new Error("git failed"), { code, killed });
  callback(cause, stdout, stderr);
}

function execFileOrGit(
  program: string,
  args: readonly string[],
  options: ExecFileOptions,
  callback: Callback,
) {
  const { cwd, env, timeout = 0, maxBuffer = 1024 * 1024 } = options;
  // What is wrong with a folder, or with where git is looked for, only the real call says.
  const canGo = typeof cwd === "string" && existsSync(cwd) && env?.["PATH"] !== undefined && timeout > 0;
  if (program !== "git" || !canGo) {
    return execFile(program, args, options, callback as never);
  }
  const input: Buffer[] = [];
  const stdin = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      input.push(chunk);
      done();
    },
    final: (done) => {
      done();
      void runGit({ args, cwd, env, maxBuffer }, Buffer.concat(input), timeout, callback);
    },
  });
  return { stdin };
}

childProcess.execFile = Object.assign(execFileOrGit, execFile) as unknown as typeof execFile;
syncBuiltinESMExports();
