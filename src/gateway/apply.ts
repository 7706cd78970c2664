// Bringing a rendered configuration into force in a running Envoy, in an order that leaves no gap: new
// clusters stand before a route names them, and old ones go after the last route that did.
// Invariant: it returns only when Envoy reports every version.
import type { EnvoyAdmin } from "./admin.ts";
import { placeFile } from "./live-files.ts";
import { LIVE_FILES, type LiveFile, type RenderedGateway } from "./render.ts";
import { discoveryResponse, type JsonObject, toFile, versionOf } from "./resource.ts";

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
 * Moves a running gateway from one configuration to the next.
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
