// The `git` program, run with fixed arguments. Invariants: no shell; nothing of the caller's environment or
// of the machine's git configuration reaches it; no hook, pager, editor, prompt, fetch or replacement object;
// a repository that belongs to another user is usable, because its path was configured by the operator.
import { execFile } from "node:child_process";
import process from "node:process";
import { DrawbridgeError } from "../../domain/errors.ts";

const TIMEOUT_MS = 120_000;
/** What of its complaints is kept. */
const STDERR_BYTES_MAX = 65_536;
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
  // What it prints is read.
  "log.showSignature=false",
  "i18n.logOutputEncoding=UTF-8",
  "diff.orderFile=/dev/null",
].flatMap((setting) => ["-c", setting]);

function environment(more: Readonly<Record<string, string>>): NodeJS.ProcessEnv {
  const { PATH, TMPDIR, SSH_AUTH_SOCK } = process.env;
  return {
    ...{ PATH, TMPDIR, SSH_AUTH_SOCK },
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
  readonly cwd: string;
  readonly input?: string | Buffer;
  readonly env?: Readonly<Record<string, string>>;
  /** Further settings, `name=value`, each as one argument. */
  readonly settings?: readonly string[];
  /** How much it may print. */
  readonly bytesMax?: number;
}

/** Whatever the exit code; `stderr` may quote the repository and is never logged. @throws DrawbridgeError `repository_unusable` */
export function git(args: readonly string[], call: GitCall) {
  const settings = (call.settings ?? []).flatMap((setting) => ["-c", setting]);
  const { bytesMax = OUTPUT_BYTES_MAX } = call;
  const limits = { timeout: TIMEOUT_MS, killSignal: "SIGKILL", maxBuffer: bytesMax } as const;
  return new Promise<{ code: number; stdout: Buffer; stderr: string }>((resolve, reject) => {
    const child = execFile(
      "git",
      ["--no-pager", ...SETTINGS, ...settings, ...args],
      { ...limits, cwd: call.cwd, env: environment(call.env ?? {}), encoding: "buffer" },
      (cause, stdout, stderr) => {
        const { code = 0, killed = false } = cause ?? {};
        if (killed || code === "ERR_CHILD_PROCESS_STDIO_MAXBUFFER") {
          const bounds = `${TIMEOUT_MS / 1_000} s and ${bytesMax} bytes`;
          reject(gitFailure(args, `did not end within ${bounds}`, GitBounds));
        } else if (typeof code === "string") {
          const message = `cannot run git in ${call.cwd}: ${code}`;
          const hint =
            code === "ENOENT"
              ? "Check that the folder exists, and install git 2.38 or later."
              : "Check the rights of the folder.";
          reject(new DrawbridgeError("repository_unusable", message, { hint, cause }));
        } else resolve({ code: code ?? 128, stdout, stderr: stderr.toString("utf8", 0, STDERR_BYTES_MAX) });
      },
    );
    // A git that ends without reading all of its input says why by its exit code.
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(call.input ?? "");
  });
}

export async function gitOk(args: readonly string[], call: GitCall): Promise<Buffer> {
  const answer = await git(args, call);
  if (answer.code !== 0) throw gitFailure(args, answer.stderr.trim() || `exit code ${answer.code}`);
  return answer.stdout;
}

export const gitLine = async (args: readonly string[], call: GitCall): Promise<string> =>
  (await gitOk(args, call)).toString("utf8").trim();

/** Git was ended, because a repository holds more than it may. */
export class GitBounds extends DrawbridgeError {}

export function gitFailure(args: readonly string[], why: string, Failure = DrawbridgeError): DrawbridgeError {
  const verb = args.find((argument) => !argument.startsWith("-")) ?? "";
  const locked = why.includes(".lock': File exists");
  return new Failure("repository_unusable", `git ${verb} failed: ${why}`, {
    hint: locked
      ? "If no git is at work in this repository, one was killed there: remove the lock file named above."
      : "Look at the repository with git itself, as the user that runs this command.",
  });
}
