// The npm packages as their users get them: packed, then installed into an empty folder. Needs npm, no registry.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { delimiter, join } from "node:path";
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
