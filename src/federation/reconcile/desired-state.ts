// What one revision wants: its registry, and the rendered files of each plane as they were committed.
// Invariants: a revision is read whole; a plane's digest is that of its committed files, by path and text.
import { appendFileSync } from "node:fs";
import * as z from "zod";
import { sha256Tagged } from "../../domain/digest.ts";
import { isObject, parseJson } from "../../domain/json.ts";
import { PRIVATE, readIfPresent, writeWhole } from "../../runtime/write-file.ts";
import type { PlaneName } from "../plane-order.ts";
import type { DesiredPlane, RenderedFiles } from "../planes/plane.ts";
import { isRenderedPath, planeOfPath, renderAll } from "../planes/render.ts";
import { loadRegistry } from "../registry/load.ts";
import { Partner, type Registry } from "../registry/partner.ts";
import { blobIdOf, isFile, isSubmodule, type Repository, type Revision } from "../repository/repository.ts";
import type { StateFolder } from "../state/folder.ts";

const RENDERED = "rendered/";
const PLAIN_FILE = "100644";
const NO_FILE = "\0no file";

export type RevisionFiles = Readonly<Awaited<ReturnType<typeof readRevision>>>;

/** By path; partners that are known are not read again. `renderedBlobs`: null for what is no plain file among renders. */
export async function readRevision(repository: Repository, revision: Revision, cache: PartnerCache) {
  const entries = await repository.list(revision, ["registry", "rendered", "kubernetes"]);
  const registry = entries.filter(({ path }) => !isRenderedPath(path));
  const unknown = registry.flatMap((entry) =>
    isFile(entry) && !cache.has(entry.blobId) ? [entry.blobId] : [],
  );
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
    renderedBlobs: new Map(
      entries
        .filter(({ path }) => isRenderedPath(path))
        .map(({ path, blobId, mode }) => [path, mode === PLAIN_FILE ? blobId : null]),
    ),
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
  for (const [path, text] of wanted) {
    if (renderedBlobs.get(path) !== blobIdOf(text, revision)) changes.set(path, text);
  }
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

// Partners that were read before, by the ID of their blob, so that a change of one of ten thousand reads one.
// Invariants: a line that is torn, or of another form, is read from the repository again; the file holds little more
// than what the newest revision holds, and is this user's alone, as the whole state folder is.

/** Raised when a partner that was valid before may be no longer, without a change of the schema. */
const FORM = 1;
const SPARE_LINES = 1_000;

let header: string | undefined;

/** Changes whenever what a partner's file may hold does. */
function headerOf(): string {
  const schema = () => JSON.stringify(z.toJSONSchema(Partner, { io: "input", unrepresentable: "any" }));
  header ??= `drawbridge-partners ${FORM} ${sha256Tagged(schema())}`;
  return header;
}

/** `loadRegistry` adds to it what it reads. */
export class PartnerCache extends Map<string, Partner> {
  readonly #file: string;
  readonly #header = headerOf();
  /** The blobs that the file holds; undefined where it has to be written anew. */
  #kept: Set<string> | undefined;

  constructor(state: StateFolder) {
    super();
    this.#file = state.file("cache", "partners.jsonl");
    const [found, ...lines] = (readIfPresent(this.#file) ?? "").split("\n");
    if (found !== this.#header) return;
    for (const line of lines) {
      const entry = parseJson(line);
      if (Array.isArray(entry) && entry.length === 2 && isObject(entry[1]))
        this.set(entry[0], entry[1] as Partner);
    }
    this.#kept = new Set(this.keys());
  }

  /** Keeps on disk what was read since. @param wanted the blobs of the newest revision */
  save(wanted: readonly string[]): void {
    const kept = this.#kept;
    const isAnew = kept === undefined || kept.size > 2 * wanted.length + SPARE_LINES;
    const lines: string[] = isAnew ? [this.#header] : [];
    const next = isAnew ? new Set<string>() : kept;
    for (const id of wanted) {
      const partner = this.get(id);
      if (partner === undefined || next.has(id)) continue;
      lines.push(JSON.stringify([id, partner]));
      next.add(id);
    }
    const text = lines.map((line) => `${line}\n`).join("");
    if (isAnew) writeWhole(this.#file, text, PRIVATE);
    else if (text !== "") appendFileSync(this.#file, text);
    this.#kept = next;
  }
}
