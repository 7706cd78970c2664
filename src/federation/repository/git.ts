// The `git` program, run with fixed arguments. Invariants: no shell; nothing of the caller's environment or
// of the machine's git configuration reaches it; no hook, pager, editor, prompt, fetch or replacement object;
// a repository that belongs to another user is usable, because its path was configured by the operator.
import { spawn } from "node:child_process";
import process from "node:process";
import { DrawbridgeError } from "../../domain/errors.ts";

const TIMEOUT_MS = 120_000;
const OUTPUT_BYTES_MAX = 1 << 29;

/** What the repository's own configuration may not decide. Command scope, so it outranks every file. */
const SETTINGS = [
  "safe.directory=*",
  "core.hooksPath=/dev/null",
  "core.fsmonitor=false",
  "core.quotePath=false",
  "core.fsync=committed",
  // Another writer of the branch is waited for; a lock that is left over is reported.
  "core.filesRefLockTimeout=2000",
  "core.packedRefsTimeout=2000",
  "gc.auto=0",
  "maintenance.auto=false",
  "protocol.allow=never",
  "commit.gpgSign=false",
  "gpg.program=/bin/false",
  "gpg.x509.program=/bin/false",
  "gpg.ssh.program=ssh-keygen",
].flatMap((setting) => ["-c", setting]);

function environment(more: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  const kept: NodeJS.ProcessEnv = {};
  for (const name of ["PATH", "TMPDIR", "SSH_AUTH_SOCK"]) {
    const value = process.env[name];
    if (value !== undefined) kept[name] = value;
  }
  return {
    ...kept,
    LC_ALL: "C",
    TZ: "UTC",
    GIT_CONFIG_NOSYSTEM: "1",
    GIT_CONFIG_GLOBAL: "/dev/null",
    GIT_ATTR_NOSYSTEM: "1",
    GIT_TERMINAL_PROMPT: "0",
    GIT_OPTIONAL_LOCKS: "0",
    GIT_NO_REPLACE_OBJECTS: "1",
    GIT_NO_LAZY_FETCH: "1",
    GIT_LITERAL_PATHSPECS: "1",
    // A signing key with a passphrase fails instead of asking at the terminal.
    SSH_ASKPASS: "/bin/false",
    SSH_ASKPASS_REQUIRE: "force",
    ...more,
  };
}

export interface GitCall {
  /** The folder that git is run in. */
  readonly cwd: string;
  readonly input?: string | Buffer;
  readonly env?: Readonly<Record<string, string>>;
  /** Further settings, `name=value`, each as one argument. */
  readonly settings?: readonly string[];
}

export interface GitAnswer {
  readonly code: number;
  readonly stdout: Buffer;
  /** For people; never part of a log, because it may quote what is in the repository. */
  readonly stderr: string;
}

/**
 * Runs git to its end, whatever its exit code.
 * @throws DrawbridgeError `repository_unusable` when there is no git, or it does not end
 */
export function git(args: readonly string[], call: GitCall): Promise<GitAnswer> {
  return new Promise((resolve, reject) => {
    const settings = (call.settings ?? []).flatMap((setting) => ["-c", setting]);
    const child = spawn("git", ["--no-pager", ...SETTINGS, ...settings, ...args], {
      cwd: call.cwd,
      env: environment(call.env ?? {}),
      stdio: ["pipe", "pipe", "pipe"],
    });
    const stdout: Buffer[] = [];
    let bytes = 0;
    let stderr = "";
    let overrun: string | undefined;
    const end = (reason: string) => {
      overrun ??= reason;
      child.kill("SIGKILL");
    };
    const timer = setTimeout(() => end(`did not end within ${TIMEOUT_MS / 1_000} s`), TIMEOUT_MS);
    child.stdout.on("data", (chunk: Buffer) => {
      stdout.push(chunk);
      bytes += chunk.length;
      if (bytes > OUTPUT_BYTES_MAX) end(`printed more than ${OUTPUT_BYTES_MAX} bytes`);
    });
    child.stderr.on("data", (chunk: Buffer) => {
      if (stderr.length < 65_536) stderr += chunk.toString("utf8");
    });
    // A git that ends without reading all of its input says why by its exit code.
    child.stdin.on("error", () => undefined);
    child.once("error", (cause: NodeJS.ErrnoException) => {
      clearTimeout(timer);
      const missing = cause.code === "ENOENT";
      reject(
        new DrawbridgeError(
          "repository_unusable",
          `cannot run git in ${call.cwd}: ${cause.code ?? "failed"}`,
          {
            hint: missing
              ? "Check that the folder exists, and install git 2.38 or later."
              : "Check the rights of the folder.",
            cause,
          },
        ),
      );
    });
    child.once("close", (code) => {
      clearTimeout(timer);
      if (overrun !== undefined) reject(gitFailure(args, overrun));
      else resolve({ code: code ?? 128, stdout: Buffer.concat(stdout), stderr });
    });
    child.stdin.end(call.input ?? "");
  });
}

/**
 * Runs git, which must succeed.
 * @throws DrawbridgeError `repository_unusable`
 */
export async function gitOk(args: readonly string[], call: GitCall): Promise<Buffer> {
  const answer = await git(args, call);
  if (answer.code !== 0) throw gitFailure(args, answer.stderr.trim() || `exit code ${answer.code}`);
  return answer.stdout;
}

/** One line of output. */
export async function gitLine(args: readonly string[], call: GitCall): Promise<string> {
  return (await gitOk(args, call)).toString("utf8").trim();
}

/** What a failure of git means to the operator. */
export function gitFailure(args: readonly string[], why: string): DrawbridgeError {
  const verb = args.find((argument) => !argument.startsWith("-")) ?? "";
  const locked = why.includes(".lock': File exists");
  return new DrawbridgeError("repository_unusable", `git ${verb} failed: ${why}`, {
    hint: locked
      ? "If no git is at work in this repository, one was killed there: remove the lock file named above."
      : "Look at the repository with git itself, as the user that runs this command.",
  });
}
