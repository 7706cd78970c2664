// Adds to package-lock.json what npm leaves out of it: packages for platforms other than the one that wrote
// it (npm installs them only elsewhere, and forgets them whenever its registry does not show them). Without
// these entries `npm ci` refuses the lock on every platform.
// Invariant: nothing is invented: name and version are those that a locked package asks for exactly.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./run-program.ts";

interface LockedPackage {
  readonly version?: string;
  readonly integrity?: string;
  /** A package of this repository, linked into node_modules. */
  readonly link?: boolean;
  readonly dev?: boolean;
  readonly optional?: boolean;
  /** Some packages name one platform without a list. */
  readonly os?: readonly string[] | string;
  readonly cpu?: readonly string[] | string;
  readonly libc?: readonly string[];
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

interface Lock {
  packages: Record<string, LockedPackage>;
}

const SYSTEMS = [
  "aix",
  "android",
  "darwin",
  "freebsd",
  "linux",
  "netbsd",
  "openbsd",
  "openharmony",
  "sunos",
  "win32",
];
const PROCESSORS = ["arm64", "arm", "ia32", "loong64", "mips64el", "ppc64", "riscv64", "s390x", "x64"];

/** What a platform package's name says about the platform, such as `@biomejs/cli-linux-arm64-musl`. */
function platformOf(name: string): Pick<LockedPackage, "cpu" | "libc" | "os"> | undefined {
  const words = name.split(/[-/]/);
  const os = SYSTEMS.find((system) => words.includes(system));
  const cpu = PROCESSORS.find((processor) => words.includes(processor));
  if (os === undefined || cpu === undefined) return undefined;
  const last = words.at(-1) ?? "";
  const libc =
    os !== "linux"
      ? undefined
      : last.startsWith("musl")
        ? ["musl"]
        : last.startsWith("gnu")
          ? ["glibc"]
          : undefined;
  return { cpu: [cpu], ...(libc === undefined ? {} : { libc }), os: [os] };
}

/** Adds the missing entries to `lock` and returns their names. */
export function completeLock(lock: Lock): string[] {
  const added: string[] = [];
  for (const [, locked] of Object.entries(lock.packages)) {
    for (const [name, wanted] of Object.entries(locked.optionalDependencies ?? {})) {
      const place = `node_modules/${name}`;
      const platform = platformOf(name);
      if (lock.packages[place] !== undefined || platform === undefined) continue;
      if (!/^[0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?$/.test(wanted)) continue;
      const { cpu, ...rest } = platform;
      lock.packages[place] = {
        version: wanted,
        ...(cpu === undefined ? {} : { cpu }),
        ...(locked.dev === true ? { dev: true } : {}),
        optional: true,
        ...rest,
      };
      added.push(name);
    }
  }
  lock.packages = Object.fromEntries(Object.entries(lock.packages).sort(([a], [b]) => (a < b ? -1 : 1)));
  return added;
}

const FILE = join(ROOT, "package-lock.json");

export function readLock(): Lock {
  return JSON.parse(readFileSync(FILE, "utf8")) as Lock;
}

export async function updateLock(): Promise<number> {
  const lock = readLock();
  const added = completeLock(lock);
  if (added.length > 0) writeFileSync(FILE, `${JSON.stringify(lock, null, 2)}\n`);
  process.stdout.write(`package-lock.json: ${added.length} entries added\n`);
  return 0;
}
