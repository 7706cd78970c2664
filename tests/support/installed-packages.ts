// The npm packages as their users get them: packed, then installed into an empty folder without a registry; and the oldest
// Node.js that each admits, from the registry once, by the lock file in tests/lab/package/oldest-node.
import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync } from "node:fs";
import { delimiter, join } from "node:path";
import { sha256 } from "../../src/domain/digest.ts";
import { type Finished, ROOT, run, writeFile } from "./temporary.ts";

/** The only package that `drawbridge` installs besides itself. */
const RUNTIME_DEPENDENCY = join(ROOT, "node_modules", "@matrix-org", "matrix-sdk-crypto-wasm");

export interface PackedPackage {
  readonly tarball: string;
  /** Paths of all files in the package. */
  readonly files: readonly string[];
}

/** The environment of a person at the machine: without the programs of this clone. */
export function machineEnvironment(): NodeJS.ProcessEnv {
  const path = (process.env["PATH"] ?? "").split(delimiter).filter((folder) => !folder.startsWith(ROOT));
  return { ...process.env, PATH: path.join(delimiter) };
}

async function npm(cwd: string, ...args: readonly string[]): Promise<Finished> {
  const ended = await run("npm", [...args, "--loglevel=error"], { cwd, env: machineEnvironment() });
  assert.equal(ended.code, 0, `npm ${args.join(" ")}: ${ended.stdout}${ended.stderr}`);
  return ended;
}

async function pack(into: string, ...args: readonly string[]): Promise<readonly PackedPackage[]> {
  const { stdout } = await npm(ROOT, "pack", "--json", "--pack-destination", into, ...args);
  const packed = JSON.parse(stdout) as { filename: string; files: { path: string }[] }[];
  return packed.map(({ filename, files }) => ({
    tarball: join(into, filename),
    files: files.map(({ path }) => path),
  }));
}

/** The program of the oldest Node.js that a package admits; kept in the clone for the next run. */
export async function oldestNode(name: "drawbridge" | "drawbridge-verify"): Promise<string> {
  const pinned = join(ROOT, "tests", "lab", "package", "oldest-node");
  const tools = join(ROOT, ".drawbridge", "tools");
  const lock = sha256(readFileSync(join(pinned, "package-lock.json"))).toString("hex");
  const folder = join(tools, `oldest-node-${lock.slice(0, 12)}`);
  if (!existsSync(folder)) {
    mkdirSync(tools, { recursive: true });
    const staging = mkdtempSync(join(tools, "oldest-node.new-"));
    cpSync(pinned, staging, { recursive: true });
    await npm(staging, "ci", "--ignore-scripts", "--no-audit", "--no-fund");
    renameSync(staging, folder);
  }
  return join(folder, "node_modules", `${name}-${process.arch}`, "bin", "node");
}

/** Packs `drawbridge` and `drawbridge-verify` as npm does before it publishes them. */
export async function packPackages(
  into: string,
): Promise<{ readonly drawbridge: PackedPackage; readonly verifier: PackedPackage }> {
  const [drawbridge, verifier] = await pack(into, ".", "./packages/verify");
  assert.ok(drawbridge !== undefined && verifier !== undefined);
  return { drawbridge, verifier };
}

/** Installs packed packages, without a registry, and what `drawbridge` depends on; returns node_modules. */
export async function installPackages(folder: string, tarballs: readonly string[]): Promise<string> {
  mkdirSync(folder);
  writeFile(join(folder, "package.json"), '{ "name": "consumer", "private": true }');
  await npm(folder, "install", "--offline", "--ignore-scripts", "--no-audit", "--no-fund", ...tarballs);
  return join(folder, "node_modules");
}

/** Packs what `drawbridge` depends on, from this clone. */
export async function packDependency(into: string): Promise<string> {
  const [dependency] = await pack(into, "--ignore-scripts", RUNTIME_DEPENDENCY);
  assert.ok(dependency !== undefined);
  return dependency.tarball;
}
