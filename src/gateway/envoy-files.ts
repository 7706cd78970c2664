// Replacing the files of a running Envoy, and what it reports of them over its admin interface. Invariants: a file is replaced
// by a rename, because any rename in a watched folder makes Envoy read all of it; an unchanged file is left alone, because a
// new listener drops the issuer's key set; new clusters stand before a route names them, and old ones go after the last route
// that did; a file is in force only when Envoy reports its version, since a refused update leaves the old one in place.
import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { request } from "undici";
import type { Clock } from "../domain/clock.ts";
import { DrawbridgeError, errorName } from "../domain/errors.ts";
import { type JsonObject, jsonText } from "../domain/json.ts";
import { PUBLIC, readIfPresent } from "../runtime/write-file.ts";
import { STAT_PREFIX } from "./render/listener.ts";
import { CERTIFICATE_FILE, LIVE_FILES, type LiveFile, type RenderedGateway } from "./render/render.ts";
import { discoveryResponse, versionOf } from "./render/resource.ts";
import { ROUTE_CONFIG_NAME } from "./render/routes.ts";

/** Temporary files stand outside the watched folder, on the same file system. */
const STAGING = "staging";

/** Writes `content` to `directory/path` unless it stands there already. */
export function placeFile(directory: string, path: string, content: string): void {
  place(join(directory, path), join(directory, STAGING, path.replaceAll("/", "_")), content);
}

/** Replaces a file that another program watches by its folder: staged as a dot file, which such programs pass over. */
export function placeWatched(file: string, content: string): void {
  place(file, join(dirname(file), `.${basename(file)}.new`), content);
}

function place(target: string, staged: string, content: string): void {
  const write = () => {
    if (readIfPresent(target) === content) return;
    for (const file of [staged, target]) mkdirSync(dirname(file), { recursive: true });
    writeFileSync(staged, content, { mode: PUBLIC });
    renameSync(staged, target);
  };
  // What was written of it takes room that what is in force may need.
  orRefused(target, write, () => rmSync(staged, { force: true, recursive: true }));
}

/** @throws DrawbridgeError `program_failed` when it cannot be written, such as on a full disk, or below what is no folder */
export function orRefused(target: string, write: () => void, undo?: () => void): void {
  try {
    write();
  } catch (cause) {
    undo?.();
    const hint = "Make room on the disk, or correct the path or its rights; it is tried again by itself.";
    const problem = `cannot write ${target}: ${errorName(cause)}`;
    throw new DrawbridgeError("program_failed", problem, { hint, cause });
  }
}

/** Old and new clusters side by side; of one name the new one. */
export function bothClusters(old: readonly JsonObject[], next: readonly JsonObject[]): JsonObject[] {
  const names = new Set(next.map((cluster) => cluster["name"]));
  return [...next, ...old.filter((cluster) => !names.has(cluster["name"]))];
}

export function placeAll(directory: string, rendered: RenderedGateway): void {
  for (const [path, content] of Object.entries(rendered.files)) placeFile(directory, path, content);
}

/** Returns when Envoy reports each version. @throws DrawbridgeError `program_failed` when it does not take a file */
export async function applyLive(
  directory: string,
  current: RenderedGateway,
  next: RenderedGateway,
  admin: EnvoyAdmin,
  signal: AbortSignal,
): Promise<void> {
  const placeNext = (path: keyof typeof next.files) => placeFile(directory, path, next.files[path]);

  const before = await admin.stats();
  const between = bothClusters(current.clusters, next.clusters);
  placeFile(directory, LIVE_FILES.cds, jsonText(discoveryResponse(between)));
  await admin.waitForVersions({ cds: versionOf(between) }, before, signal);
  placeNext(CERTIFICATE_FILE);
  placeNext(LIVE_FILES.lds);
  placeNext(LIVE_FILES.rds);
  await admin.waitForVersions({ lds: next.versions.lds, rds: next.versions.rds }, before, signal);
  placeNext(LIVE_FILES.cds);
  await admin.waitForVersions(next.versions, before, signal);
}

const SCOPES: Readonly<Record<LiveFile, string>> = {
  cds: "cluster_manager.cds",
  lds: "listener_manager.lds",
  rds: `http.${STAT_PREFIX}.rds.${ROUTE_CONFIG_NAME}`,
};
const WARMING = "listener_manager.total_listeners_warming";
const FILTER = `^(${[...Object.values(SCOPES), WARMING].map((scope) => scope.replaceAll(".", "\\.")).join("|")})`;

const POLL_INTERVAL_MS = 10;
const TIMEOUT_MS = 15_000;

export type FileStats = ReadonlyMap<string, string>;
/** An Envoy that has not been started has refused nothing. */
export const NO_STATS: FileStats = new Map();

async function readStats(adminPort: number): Promise<FileStats | undefined> {
  try {
    const { statusCode, body } = await request(
      `http://127.0.0.1:${adminPort}/stats?filter=${encodeURIComponent(FILTER)}`,
      { headersTimeout: 2_000, bodyTimeout: 2_000 },
    );
    const text = await body.text();
    if (statusCode !== 200) return undefined;
    const lines = text.split("\n").map((line) => line.split(": ", 2));
    return new Map(lines.map(([name, value]) => [name ?? "", (value ?? "").replace(/^"|"$/g, "")]));
  } catch {
    return undefined;
  }
}

/** How often Envoy has refused a version of this file, for its syntax or for what it says. */
function refusals(stats: FileStats, file: LiveFile): number {
  const count = (name: string) => Number(stats.get(`${SCOPES[file]}.${name}`) ?? 0);
  return count("update_rejected") + count("update_failure");
}

function failure(files: readonly (readonly [LiveFile, string])[], what: string): DrawbridgeError {
  const names = files.map(([file]) => `${file}.json`).join(", ");
  return new DrawbridgeError("program_failed", `Envoy ${what} ${names}`, {
    hint: "Envoy's own log on standard error says why; what it served before is still in force.",
  });
}

export type EnvoyAdmin = ReturnType<typeof createEnvoyAdmin>;

export function createEnvoyAdmin(port: number, clock: Clock) {
  return {
    /** What Envoy has counted so far: taken before files are written, to tell a new refusal from an old one. */
    stats: async (): Promise<FileStats> => (await readStats(port)) ?? NO_STATS,

    /**
     * Waits until Envoy serves exactly these versions and its listener is open. @param before taken before the files were
     * written. @throws DrawbridgeError `program_failed` when Envoy refuses a file, or does not serve it after 15 s
     */
    async waitForVersions(
      versions: Partial<Readonly<Record<LiveFile, string>>>,
      before: FileStats,
      signal: AbortSignal,
    ): Promise<void> {
      const wanted = Object.entries(versions) as [LiveFile, string][];
      const deadline = clock.now() + TIMEOUT_MS;
      for (;;) {
        const stats = await readStats(port);
        if (stats !== undefined) {
          const behind = wanted.filter(
            ([file, version]) => stats.get(`${SCOPES[file]}.version_text`) !== version,
          );
          if (behind.length === 0 && stats.get(WARMING) === "0") return;
          const refused = behind.filter(([file]) => refusals(stats, file) > refusals(before, file));
          if (refused.length > 0) throw failure(refused, "refuses");
        }
        if (clock.now() >= deadline) throw failure(wanted, "does not take up");
        await clock.sleep(POLL_INTERVAL_MS, signal);
      }
    },
  };
}
