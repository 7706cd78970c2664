// A change of one partner's file, committed with everything that it changes in the renders.
// Invariant: all of it or nothing.
import type { CommitContext } from "../change/commit-change.ts";
import { commitToBranch } from "../change/commit-to-branch.ts";
import { planeOfPath, renderAll } from "../planes/render.ts";
import type { Partner, PartnerEntry, Registry } from "../registry/partner.ts";
import { blobIdOf, type Revision } from "../repository/repository.ts";
import type { ContainmentBase } from "./base.ts";

export interface PartnerChange {
  /** As it is on the base. */
  readonly entry: PartnerEntry;
  /** As it is to be, and as `edit` makes its text say. */
  readonly changed: Partner;
  readonly edit: (text: string) => string;
  /** Files to be committed with it, by path in the repository. */
  readonly files: ReadonlyMap<string, string>;
  readonly message: string;
  /** What the branch's log says. */
  readonly reason: string;
}

/**
 * Commits a change on top of its base; to be called within `untilCommitted`.
 * @returns undefined when the branch moved meanwhile
 * @throws DrawbridgeError `config_invalid`, `repository_unusable`
 */
export async function commitPartner(
  context: CommitContext,
  base: ContainmentBase,
  change: PartnerChange,
): Promise<Revision | undefined> {
  const changes = await changesOf(context, base, change);
  for (const [path, text] of change.files) changes.set(path, text);
  const { parents, tree } = base;
  const { message, reason } = change;
  return commitToBranch(context, { parents, base: tree, changes, message, reason });
}

async function changesOf(
  { repository }: CommitContext,
  base: ContainmentBase,
  { entry, changed: partner, edit }: PartnerChange,
): Promise<Map<string, string | null>> {
  const { files, registry, setAside } = base;
  const changes = new Map<string, string | null>();
  const blobOf = (path: string) => files.registry.get(path)?.blobId;
  const wanted = [entry.file, ...(setAside?.paths ?? [])];
  const [texts, kubernetes] = await Promise.all([
    repository.blobs(wanted.flatMap((path) => blobOf(path) ?? [])),
    repository.list(base.tree, ["kubernetes"]),
  ]);
  for (const path of setAside?.paths ?? []) changes.set(path, texts.get(blobOf(path) ?? "") ?? null);
  changes.set(entry.file, edit(texts.get(blobOf(entry.file) ?? "") ?? ""));

  const changed: PartnerEntry = { ...entry, partner };
  const after: Registry = {
    ...registry,
    partners: registry.partners.map((one) => (one === entry ? changed : one)),
  };
  const rendered = renderAll(after);
  const committed = new Map(
    kubernetes.filter(({ path }) => planeOfPath(path)).map(({ path, blobId }) => [path, blobId]),
  );
  for (const [path, text] of rendered) {
    const blobId = committed.get(path);
    const same =
      blobId === undefined ? files.rendered.get(path) === text : blobIdOf(text, base.tree) === blobId;
    if (!same) changes.set(path, text);
  }
  for (const path of [...files.rendered.keys(), ...committed.keys()]) {
    if (!rendered.has(path)) changes.set(path, null);
  }
  return changes;
}
