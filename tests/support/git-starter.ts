// Git for tests, started by a shell that waits for the next call: whenever Node.js starts a program it copies its page tables,
// which takes 3 to 24 ms by the memory in use, and tests of federation control start git thousands of times.
// Imported for its effect. Invariants: git has the arguments, environment, folder and input that it was called with, and nothing
// of the shell's; a shell runs one git at a time, and ends with this process.
import childProcess, { type SpawnOptions } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { PassThrough, Writable } from "node:stream";

const { spawn } = childProcess;
const folder = mkdtempSync(join(tmpdir(), "drawbridge-git-"));
process.once("exit", () => rmSync(folder, { recursive: true, force: true }));

interface Call {
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function shellCommand({ args, cwd, env }: Call): string {
  const variables = Object.entries(env).map(([name, value]) => `${name}=${quoted(value ?? "")}`);
  const words = [`cd ${quoted(cwd)}`, "unset PWD OLDPWD", `export ${variables.join(" ")}`];
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

  kill(signal: NodeJS.Signals): void {
    if (this.isAlive && this.#child.pid !== undefined) process.kill(-this.#child.pid, signal);
  }

  /** The code is null when the shell was killed meanwhile. */
  async run(call: Call, input: Buffer) {
    const [stdin, stdout, stderr] = this.#files;
    writeFileSync(stdin, input);
    const ended = new Promise<number | null>((resolve) => {
      this.#ended = resolve;
    });
    this.#output.ref();
    const files = `<${quoted(stdin)} >${quoted(stdout)} 2>${quoted(stderr)}`;
    this.#child.stdin.write(`(${shellCommand(call)}) ${files}; echo $?\n`);
    const code = await ended;
    this.#output.unref();
    return { code, stdout: readFileSync(stdout), stderr: readFileSync(stderr) };
  }
}

const idle: Shell[] = [];
let shells = 0;

/** As much of a child process as callers of git use. */
class Git extends EventEmitter {
  readonly stdout = new PassThrough();
  readonly stderr = new PassThrough();
  readonly stdin: Writable;
  readonly #shell = idle.pop() ?? new Shell(`${shells++}`);

  constructor(call: Call) {
    super();
    const input: Buffer[] = [];
    this.stdin = new Writable({
      write: (chunk: Buffer, _encoding, done) => {
        input.push(chunk);
        done();
      },
      final: (done) => {
        done();
        this.#run(call, Buffer.concat(input)).catch((error: unknown) => this.emit("error", error));
      },
    });
  }

  async #run(call: Call, input: Buffer): Promise<void> {
    const { code, stdout, stderr } = await this.#shell.run(call, input);
    if (this.#shell.isAlive) idle.push(this.#shell);
    const read = Promise.all([once(this.stdout, "end"), once(this.stderr, "end")]);
    this.stdout.end(stdout);
    this.stderr.end(stderr);
    await read;
    this.emit("close", code, code === null ? "SIGKILL" : null);
  }

  kill(signal: NodeJS.Signals): void {
    this.#shell.kill(signal);
  }
}

childProcess.spawn = ((program: string, args: readonly string[] = [], options: SpawnOptions = {}) => {
  const { cwd, env, stdio } = options;
  const isPiped = Array.isArray(stdio) && stdio.every((one) => one === "pipe");
  // What is wrong with a folder, or with where git is looked for, only the real call says.
  const canGo = typeof cwd === "string" && existsSync(cwd) && env?.["PATH"] !== undefined;
  if (program !== "git" || !isPiped || !canGo) return spawn(program, args, options);
  return new Git({ args, cwd, env });
}) as typeof spawn;
syncBuiltinESMExports();
