// What one revision wants: its registry, and the rendered files of each plane as they were committed.
// Invariants: a revision is read whole; a plane's digest is that of its committed files, by path and text.
import { sha256Tagged } from "../../domain/digest.ts";
import { PLANE_NAMES, type PlaneName } from "../plane-order.ts";
import type { DesiredPlane, RenderedFiles } from "../planes/plane.ts";
import { PLANE_RENDERS, planeOfPath } from "../planes/render.ts";
import { loadRegistry, type StoredFile } from "../registry/load.ts";
import type { Registry } from "../registry/partner.ts";
import type { Repository, Revision, TreeEntry } from "../repository/repository.ts";
import type { PartnerCache } from "../state/partner-cache.ts";

const RENDERED = "rendered/";

/** Registry and rendered files of a revision, by path; partners that are known are not read again. */
export interface RevisionFiles {
  readonly registry: ReadonlyMap<string, StoredFile>;
  /** By path in the repository. */
  readonly rendered: ReadonlyMap<string, string>;
}

/** @throws DrawbridgeError `repository_unusable` */
export async function readRevision(
  repository: Repository,
  revision: Revision,
  cache: PartnerCache,
): Promise<RevisionFiles> {
  const entries = await repository.list(revision, ["registry", "rendered"]);
  const isRendered = ({ path }: TreeEntry) => path.startsWith(RENDERED);
  const registry = entries.filter((entry) => !isRendered(entry));
  const unknown = cache.prepare(registry.map(({ blobId }) => blobId));
  const rendered = entries.filter(isRendered);
  const texts = await repository.blobs([...unknown, ...rendered.map(({ blobId }) => blobId)]);
  return {
    registry: new Map(
      registry.map(({ path, blobId }) => [path, { blobId, text: () => texts.get(blobId) ?? "" }]),
    ),
    rendered: new Map(rendered.map(({ path, blobId }) => [path, texts.get(blobId) ?? ""])),
  };
}

/**
 * The registry of a revision.
 * @throws RegistryError with every problem of every file
 */
export function registryOf(files: RevisionFiles, cache: PartnerCache): Registry {
  const registry = loadRegistry(files.registry, { cache });
  cache.save([...files.registry.values()].map(({ blobId }) => blobId));
  return registry;
}

/** The first path below `rendered/` at which the committed files are not what the registry renders. */
export function firstRenderedDifference(files: RevisionFiles, registry: Registry): string | undefined {
  const wanted = new Map<string, string>();
  for (const plane of PLANE_NAMES) {
    for (const [path, text] of PLANE_RENDERS[plane].render(registry)) wanted.set(`${RENDERED}${path}`, text);
  }
  const paths = new Set([...wanted.keys(), ...files.rendered.keys()]);
  return [...paths].sort().find((path) => wanted.get(path) !== files.rendered.get(path));
}

export interface DesiredState {
  readonly revision: Revision;
  readonly registry: Registry;
  readonly planes: Readonly<Record<PlaneName, { readonly files: RenderedFiles; readonly digest: string }>>;
}

export function desiredState(revision: Revision, files: RevisionFiles, registry: Registry): DesiredState {
  const plane = (name: PlaneName) => {
    const own = [...files.rendered]
      .filter(([path]) => planeOfPath(path) === name)
      .map(([path, text]) => [path.slice(RENDERED.length), text] as const)
      .sort(([left], [right]) => (left < right ? -1 : 1));
    return { files: new Map(own), digest: sha256Tagged(JSON.stringify(own)) };
  };
  return {
    revision,
    registry,
    planes: {
      transport: plane("transport"),
      rooms: plane("rooms"),
      border: plane("border"),
      card: plane("card"),
      gateway: plane("gateway"),
    },
  };
}

export function desiredPlane({ revision, registry, planes }: DesiredState, plane: PlaneName): DesiredPlane {
  return { revision, registry, files: planes[plane].files };
}
