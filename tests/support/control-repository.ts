// An organisation's repository with the sample registry, and planes whose real parts are plain files, so that
// the reconciler and containment can be driven, and killed, without any server.
import { appendFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { type Clock, systemRandom } from "../../src/domain/clock.ts";
import { type FederationConfig, FederationConfigFile } from "../../src/federation/config.ts";
import { PLANE_NAMES, type PlaneName } from "../../src/federation/plane-order.ts";
import { applyFile, fileDrift } from "../../src/federation/planes/file-target.ts";
import type { DesiredPlane, Drift, PlaneOutcome, PlaneRuntime } from "../../src/federation/planes/plane.ts";
import { renderAll } from "../../src/federation/planes/render.ts";
import type { PlaneRuntimes } from "../../src/federation/planes/runtimes.ts";
import { type Federation, openFederation } from "../../src/federation/reconcile/context.ts";
import type { ReconcileEvent, Reporter } from "../../src/federation/reconcile/events.ts";
import { loadRegistry } from "../../src/federation/registry/load.ts";
import { planeState } from "../../src/federation/registry/partner.ts";
import type { Repository } from "../../src/federation/repository/repository.ts";
import { evidenceItem } from "../../src/records/format/evidence-item.ts";
import { bareRepository, commitOnTop } from "./repository.ts";
import { registryFiles } from "./sample-files.ts";

export const LIGHTHOUSE = "registry/partners/lighthouse.yaml";
export const PILOTS = "registry/partners/pilot-station.yaml";

/** The registry's files with everything that they render. */
export function rendered(registry: ReadonlyMap<string, string> = registryFiles()): Map<string, string> {
  return new Map([...registry, ...renderAll(loadRegistry(registry))]);
}

/** A bare repository that holds the sample organisation and its renders. */
export function controlRepository(folder: string): Promise<Repository> {
  return bareRepository(folder, Object.fromEntries(rendered()));
}

/** Commits the registry with a file of it put in the place of another, and everything rendered anew. */
export async function commitRegistry(
  repository: Repository,
  changes: ReadonlyMap<string, string | null>,
  options: { readonly render?: boolean; readonly signingKeyFile?: string } = {},
) {
  const before = await repository.read(await repository.requireHead(), [
    "registry",
    "rendered",
    "kubernetes",
  ]);
  const registry = new Map([...before].filter(([path]) => path.startsWith("registry/")));
  for (const [path, text] of changes) {
    if (text === null) registry.delete(path);
    else registry.set(path, text);
  }
  const all: Map<string, string | null> = options.render === false ? new Map() : rendered(registry);
  for (const path of before.keys()) if (!all.has(path) && options.render !== false) all.set(path, null);
  for (const [path, text] of changes) all.set(path, text);
  const { signingKeyFile } = options;
  return commitOnTop(repository, all, signingKeyFile === undefined ? {} : { signingKeyFile });
}

/** The sample partner's file as it is, with one piece replaced. */
export function partnerFile(path: string, from: string, to: string): string {
  const text = registryFiles().get(path) ?? "";
  if (!text.includes(from)) throw new TypeError(`${path} has no ${from}`);
  return text.replace(from, () => to);
}

export interface FilePlanes {
  readonly planes: PlaneRuntimes;
  /** What has been applied, in order. */
  readonly applied: PlaneName[];
  /** Decides a plane's outcome instead of its files, until it is deleted. */
  readonly instead: Map<PlaneName, () => Promise<PlaneOutcome>>;
  /** Told before each plane is applied. */
  onApply: (plane: PlaneName) => Promise<void>;
}

/** Planes that put their files below a folder, and note each apply in its file `order`. */
export function filePlanes(folder: string): FilePlanes {
  mkdirSync(folder, { recursive: true });
  const applied: PlaneName[] = [];
  const instead: FilePlanes["instead"] = new Map();
  const all: FilePlanes = { planes: {} as PlaneRuntimes, applied, instead, onApply: async () => undefined };
  const plane = (name: PlaneName): PlaneRuntime => ({
    name,
    async apply(desired) {
      applied.push(name);
      appendFileSync(join(folder, "order"), `${name} ${desired.revision}\n`);
      await all.onApply(name);
      const outcome = instead.get(name);
      if (outcome !== undefined) return outcome();
      const changes = [...desired.files].map(([path, text]) => applyFile(join(folder, path), text, 0o644));
      return { state: "in_force", changed: changes.includes(true) };
    },
    drift: async (desired) => driftOf(folder, name, desired),
    probe: async (desired, { partner }) => [
      evidenceItem({
        ...{ schema: "svc.federation.evidence_item.v1", plane: name, partner: partner.serverName },
        ...{ probe: "file", vantage: "operator", subject: null, layer: "file", status: null, reason: null },
        ...{ references: [desired.revision], at: "2026-01-02T03:04:05.000Z", duration_ms: null },
        verdict: planeState(partner, name),
      }),
    ],
  });
  return Object.assign(all, {
    planes: Object.fromEntries(PLANE_NAMES.map((name) => [name, plane(name)])) as PlaneRuntimes,
  });
}

function driftOf(folder: string, plane: PlaneName, desired: DesiredPlane): Drift[] {
  return [...desired.files].flatMap(([path, text]) => {
    const drift = fileDrift(join(folder, path), text);
    return drift === undefined ? [] : [{ plane, ...drift }];
  });
}

/** A configuration for a repository; nothing but the repository and the state is real. */
export function controlConfig(
  directory: string,
  repository: Readonly<Record<string, unknown>> & { readonly path: string },
): FederationConfig {
  const unused = "http://127.0.0.1:9";
  const config = FederationConfigFile.parse({
    version: 1,
    repository,
    homeserver: { url: unused, operatorToken: { env: "UNUSED" }, signingKeyFile: "unused" },
    transport: { includeFile: "unused", restart: { command: ["false"] } },
    border: { policyFile: "unused", statusToken: { env: "UNUSED" }, violationsFile: "unused" },
  });
  return { ...config, directory, file: join(directory, "federation.yaml") };
}

export interface Opened {
  readonly federation: Federation;
  readonly events: ReconcileEvent[];
  readonly parts: FilePlanes;
  /** Where the planes put their files. */
  readonly folder: string;
}

/**
 * Opens a repository with planes of files below `directory`. Where commits must be signed, the commit that it has now
 * counts as made before that, unless the settings say otherwise.
 */
export async function openControl(
  directory: string,
  repository: Repository,
  clock: Clock,
  settings: Readonly<Record<string, unknown>> = {},
): Promise<Opened> {
  const events: ReconcileEvent[] = [];
  const reporter: Reporter = { event: (event) => events.push(event), note: () => undefined };
  const folder = join(directory, "parts");
  const parts = filePlanes(folder);
  const trusted =
    settings["allowedSignersFile"] === undefined ? {} : { trustedBase: await repository.head() };
  const config = controlConfig(directory, { path: repository.path, ...trusted, ...settings });
  const planes = parts.planes;
  const federation = await openFederation(config, { clock, random: systemRandom, reporter, planes });
  return { federation, events, parts, folder };
}
