// Replacing the files of a running Envoy, in an order that leaves no gap. Invariants: a file Envoy watches is replaced by a rename and never
// written in place, because any rename in that folder makes Envoy read all of them; a file whose content
// is unchanged is left alone, because a new listener drops the issuer's key set; new clusters stand before a
// route names them, and old ones go after the last route that did.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { JsonObject } from "../domain/json.ts";
import type { EnvoyAdmin } from "./envoy-admin.ts";
import { LIVE_FILES, type LiveFile, type RenderedGateway } from "./render/render.ts";
import { discoveryResponse, toFile, versionOf } from "./render/resource.ts";

/** Temporary files stand outside the watched folder, on the same file system. */
const STAGING = "staging";

/** Writes `content` to `directory/path` unless it stands there already; true when it was written. */
export function placeFile(directory: string, path: string, content: string): boolean {
  const target = join(directory, path);
  if (readIfPresent(target) === content) return false;
  const staged = join(directory, STAGING, path.replaceAll("/", "_"));
  mkdirSync(dirname(staged), { recursive: true });
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(staged, content, { mode: 0o644 });
  renameSync(staged, target);
  return true;
}

/**
 * Replaces a file in a folder that another program watches and reads whole: staged as a dot file, which such
 * programs pass over.
 */
export function placeWatched(file: string, content: string): void {
  if (readIfPresent(file) === content) return;
  const staged = join(dirname(file), `.${basename(file)}.new`);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(staged, content, { mode: 0o644 });
  renameSync(staged, file);
}

function readIfPresent(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

/** Old and new clusters side by side; of one name the new one. */
export function bothClusters(old: readonly JsonObject[], next: readonly JsonObject[]): JsonObject[] {
  const names = new Set(next.map((cluster) => cluster["name"]));
  return [...next, ...old.filter((cluster) => !names.has(cluster["name"]))];
}

/** Writes all files of a gateway that is not running yet. */
export function placeAll(directory: string, rendered: RenderedGateway): void {
  for (const [path, content] of Object.entries(rendered.files)) placeFile(directory, path, content);
}

/**
 * Moves a running Envoy from one configuration to the next; returns when it reports every version.
 * @throws DrawbridgeError `program_failed` when Envoy does not take a file
 */
export async function applyLive(
  directory: string,
  current: RenderedGateway,
  next: RenderedGateway,
  admin: Pick<EnvoyAdmin, "stats" | "waitForVersions">,
  signal: AbortSignal,
): Promise<void> {
  const place = (file: LiveFile) =>
    placeFile(directory, LIVE_FILES[file], next.files[LIVE_FILES[file]] ?? "");

  const before = await admin.stats();
  const between = bothClusters(current.clusters, next.clusters);
  placeFile(directory, LIVE_FILES.cds, toFile(discoveryResponse(between)));
  await admin.waitForVersions({ cds: versionOf(between) }, before, signal);
  place("lds");
  place("rds");
  await admin.waitForVersions({ lds: next.versions.lds, rds: next.versions.rds }, before, signal);
  place("cds");
  await admin.waitForVersions(next.versions, before, signal);
}
