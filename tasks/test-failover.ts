// A replicated PostgreSQL under the bridge. Patroni comes from pip into an environment of its own, etcd from Debian's
// package if the machine has none; PostgreSQL is the machine's own, because a member needs all of its programs.
import { createHash } from "node:crypto";
import { existsSync, globSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { canEnter, reachableDirectory, unprivilegedUser } from "../lab/postgres/unprivileged-user.ts";
import { DrawbridgeError } from "../src/domain/errors.ts";
import { PATRONI_PROGRAMS } from "../tests/failover/patroni.ts";
import { FAILOVERS } from "../tests/support/kills.ts";
import { ROOT, runProgram } from "./run-program.ts";
import { runTests } from "./run-tests.ts";

const REQUIREMENTS = join(ROOT, "requirements", "patroni.txt");
/** Root's Python may be where the servers' user cannot go. */
const PYTHONS = ["/usr/bin/python3", "python3"];
const FILE_TIMEOUT_MS = 120 * 60_000;
const SHORT_TIMES = "3";

/** `--times N` kills the primary so often; `--short` does a few times. */
export async function testFailover(args: readonly string[]): Promise<number> {
  const position = args.indexOf("--times");
  const times = position < 0 ? undefined : args[position + 1];
  const filters = args.filter(
    (one, index) => one !== "--short" && (position < 0 || index < position || index > position + 1),
  );
  const short = args.includes("--short") ? SHORT_TIMES : undefined;
  const wanted = times ?? short;
  const folder = installFolder();
  return runTests({
    folders: ["tests/failover"],
    args: filters,
    concurrency: 1,
    timeoutMs: FILE_TIMEOUT_MS,
    env: {
      [PATRONI_PROGRAMS.postgres]: postgresPrograms(),
      [PATRONI_PROGRAMS.etcd]: await etcd(folder),
      [PATRONI_PROGRAMS.patroni]: await patroni(folder),
      ...(wanted === undefined ? {} : { [FAILOVERS]: wanted }),
    },
  });
}

/** In the clone, unless the user that PostgreSQL runs as cannot go there. */
function installFolder(): string {
  const folder = join(ROOT, ".drawbridge", "tools", "patroni");
  mkdirSync(folder, { recursive: true });
  return canEnter(folder, unprivilegedUser()) ? folder : reachableDirectory(folder);
}

function postgresPrograms(): string {
  const found = globSync("/usr/lib/postgresql/*/bin/pg_rewind").sort((left, right) =>
    left.localeCompare(right, "en", { numeric: true }),
  );
  const newest = found.at(-1);
  if (newest !== undefined) return join(newest, "..");
  throw new DrawbridgeError("program_failed", "PostgreSQL is not installed on this machine", {
    hint: "Install it: sudo apt-get install postgresql (its service need not run).",
  });
}

async function etcd(folder: string): Promise<string> {
  const installed = ["/usr/bin/etcd", "/usr/local/bin/etcd"].find((path) => existsSync(path));
  const unpacked = join(folder, "etcd", "usr", "bin", "etcd");
  if (installed !== undefined || existsSync(unpacked)) return installed ?? unpacked;
  process.stderr.write("Fetching etcd from Debian's package etcd-server …\n");
  const staging = join(folder, "etcd.new");
  rmSync(staging, { recursive: true, force: true });
  mkdirSync(staging, { recursive: true });
  const fetched = await runProgram(
    "sh",
    ["-c", "apt-get download etcd-server && dpkg -x etcd-server_*.deb ."],
    {
      quiet: true,
      cwd: staging,
    },
  );
  if (fetched.code !== 0) {
    throw new DrawbridgeError("program_failed", `etcd could not be fetched\n${fetched.output}`, {
      hint: "Install it: sudo apt-get install etcd-server (its service need not run).",
    });
  }
  renameSync(staging, join(folder, "etcd"));
  return unpacked;
}

/** Installed whole or not at all: the stamp, which names what is installed, is written last. */
async function patroni(folder: string): Promise<string> {
  const environment = join(folder, "venv");
  const stamp = join(environment, ".installed");
  const program = join(environment, "bin", "patroni");
  const wanted = createHash("sha256").update(readFileSync(REQUIREMENTS)).digest("hex");
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === wanted) return program;
  process.stderr.write("Installing Patroni …\n");
  rmSync(environment, { recursive: true, force: true });
  const python = PYTHONS.find((path) => existsSync(path)) ?? "python3";
  const install = ["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--quiet"];
  for (const [command, ...args] of [
    [python, "-m", "venv", environment],
    [join(environment, "bin", "python"), ...install, "--require-hashes", "-r", REQUIREMENTS],
  ] as const) {
    const { code, output } = await runProgram(command, args, { quiet: true });
    if (code !== 0) {
      throw new DrawbridgeError("program_failed", `Patroni could not be installed\n${output}`, {
        hint: "See that a Python package index can be reached; then run the task again.",
      });
    }
  }
  writeFileSync(stamp, wanted);
  return program;
}
