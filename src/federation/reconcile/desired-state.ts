// What one revision wants: its registry, and the rendered files of each plane as they were committed.
// Invariants: a revision is read whole; a plane's digest is that of its committed files, by path and text.
import { sha256Tagged } from "../../domain/digest.ts";
import type { PlaneName } from "../plane-order.ts";
import type { DesiredPlane, RenderedFiles } from "../planes/plane.ts";
import { isRenderedPath, planeOfPath, renderAll } from "../planes/render.ts";
import { loadRegistry } from "../registry/load.ts";
import type { Registry } from "../registry/partner.ts";
import { blobIdOf, isFile, isSubmodule, type Repository, type Revision } from "../repository/repository.ts";
import type { PartnerCache } from "../state/partner-cache.ts";

const RENDERED = "rendered/";
const PLAIN_FILE = "100644";
const NO_FILE = "\0no file";

export type RevisionFiles = Readonly<Awaited<ReturnType<typeof readRevision>>>;

/** By path; partners that are known are not read again. `renderedBlobs`: null for what is no plain file among renders. */
export async function readRevision(repository: Repository, revision: Revision, cache: PartnerCache) {
  const entries = await repository.list(revision, ["registry", "rendered", "kubernetes"]);
  const registry = entries.filter(({ path }) => !isRenderedPath(path));
  const unknown = registry.flatMap((one) => (isFile(one) && !cache.has(one.blobId) ? [one.blobId] : []));
  const all = entries.filter(({ path }) => isRenderedPath(path));
  const rendered = entries.filter((entry) => entry.path.startsWith(RENDERED) && !isSubmodule(entry));
  const texts = await repository.blobs([...unknown, ...rendered.map(({ blobId }) => blobId)]);
  return {
    registry: new Map(
      registry.map((entry) => {
        const { path, blobId, mode } = entry;
        // A link or a submodule is no file of the registry: what its object holds is never read as one.
        if (!isFile(entry)) return [path, { blobId: `${mode} ${blobId}`, text: () => NO_FILE }];
        return [path, { blobId, text: () => texts.get(blobId) ?? "" }];
      }),
    ),
    rendered: new Map(rendered.map(({ path, blobId }) => [path, texts.get(blobId) ?? ""])),
    renderedBlobs: new Map(all.map(({ path, blobId, mode }) => [path, mode === PLAIN_FILE ? blobId : null])),
  };
}

/** The registry of a revision. @throws RegistryError with every problem of every file */
export function registryOf(files: RevisionFiles, cache: PartnerCache): Registry {
  const registry = loadRegistry(files.registry, cache);
  cache.save([...files.registry.values()].map(({ blobId }) => blobId));
  return registry;
}

/** What a revision lacks of a registry's renders: texts by path, null where a file has to go. */
export function renderedChanges(revision: Revision, { renderedBlobs }: RevisionFiles, registry: Registry) {
  const changes = new Map<string, string | null>();
  const wanted = renderAll(registry);
  for (const path of renderedBlobs.keys()) if (!wanted.has(path)) changes.set(path, null);
  for (const [path, text] of wanted)
    if (renderedBlobs.get(path) !== blobIdOf(text, revision)) changes.set(path, text);
  return changes;
}

export type DesiredState = Readonly<ReturnType<typeof desiredState>>;

export function desiredState(revision: Revision, files: Pick<RevisionFiles, "rendered">, registry: Registry) {
  const plane = (name: PlaneName) => filesOf(name, files.rendered);
  const [transport, rooms, border] = [plane("transport"), plane("rooms"), plane("border")];
  const planes = { transport, rooms, border, card: plane("card"), gateway: plane("gateway") };
  return { revision, registry, planes };
}

export function filesOf(plane: PlaneName, rendered: RenderedFiles) {
  const own = [...rendered]
    .filter(([path]) => planeOfPath(path) === plane)
    .map(([path, text]) => [path.slice(RENDERED.length), text] as const)
    .sort(([left], [right]) => (left < right ? -1 : 1));
  return { files: new Map(own), digest: sha256Tagged(JSON.stringify(own)) };
}

/** The state of a revision that was good when it was accepted. @throws RegistryError; DrawbridgeError `repository_unusable` */
export async function stateAt(
  { repository, cache }: { readonly repository: Repository; readonly cache: PartnerCache },
  revision: Revision,
): Promise<DesiredState> {
  const files = await readRevision(repository, revision, cache);
  return desiredState(revision, files, registryOf(files, cache));
}

export function desiredPlane({ revision, registry, planes }: DesiredState, plane: PlaneName): DesiredPlane {
  return { revision, registry, files: planes[plane].files };
}
