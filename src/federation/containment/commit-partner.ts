// A change of one partner's file, committed with everything that it changes in the renders.
// Invariants: all of it or nothing; the branch moves only from what the change was built on; a file that
// somebody has edited stops it before the branch moves.
import { DrawbridgeError } from "../../domain/errors.ts";
import { advanceWithWorkTrees, finishWorkTrees } from "../change/pending-work-trees.ts";
import { PLANE_NAMES } from "../planes/names.ts";
import type { ReconcileContext } from "../reconcile/context.ts";
import type { Partner, PartnerEntry, Registry } from "../registry/partner.ts";
import { renderPartner, renderShared } from "../render.ts";
import { type CommitAuthor, writeCommit } from "../repository/commit.ts";
import { blobIdOf, type Revision } from "../repository/repository.ts";
import type { BaseContext, ContainmentBase } from "./base.ts";

const ATTEMPTS_MAX = 50;

export interface CommitContext extends BaseContext, Pick<ReconcileContext, "clock"> {
  readonly author: CommitAuthor;
  readonly signingKeyFile?: string | undefined;
  /** Told once, when another change of this machine is waited for. */
  readonly onWait?: () => void;
}

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

export interface Committed {
  readonly revision: Revision;
  /** Work trees that were edited so quickly that they could not be brought along. */
  readonly workTreesBehind: readonly string[];
}

/**
 * Tries until an attempt is not overtaken by somebody else's commit; one change of this machine at a time.
 * @param attempt undefined when the branch moved meanwhile
 * @throws DrawbridgeError `repository_unusable`
 */
export async function untilCommitted<Result>(
  context: CommitContext,
  attempt: () => Promise<Result | undefined>,
): Promise<Result> {
  const lock = await context.state.lock("commit", context.clock, context.onWait);
  try {
    await finishWorkTrees(context);
    for (let attempts = 0; attempts < ATTEMPTS_MAX; attempts++) {
      const result = await attempt();
      if (result !== undefined) return result;
    }
  } finally {
    await lock.release();
  }
  throw new DrawbridgeError("repository_unusable", "the branch moved at every attempt; nothing was changed", {
    mend: "See who commits to it so often, and run the command again.",
  });
}

/**
 * Commits a change on top of its base; to be called within `untilCommitted`.
 * @returns undefined when the branch moved meanwhile
 * @throws DrawbridgeError `work_tree_dirty`, `repository_unusable`
 */
export async function commitPartner(
  context: CommitContext,
  base: ContainmentBase,
  change: PartnerChange,
): Promise<Committed | undefined> {
  const changes = await changesOf(context, base, change);
  for (const [path, text] of change.files) changes.set(path, text);
  const revision = await writeCommit(context.repository, {
    parents: base.parents,
    base: base.tree,
    changes,
    message: change.message,
    author: context.author,
    at: context.clock.now(),
    signingKeyFile: context.signingKeyFile,
  });
  const workTreesBehind = await advanceWithWorkTrees(context, base.head, revision, change.reason);
  return workTreesBehind === undefined ? undefined : { revision, workTreesBehind };
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
  const [texts, shared] = await Promise.all([
    repository.blobs(wanted.flatMap((path) => blobOf(path) ?? [])),
    // Of the Kubernetes files only what speaks of all, or of this partner, can change; the others are not read.
    repository.listDirectly(
      base.tree,
      PLANE_NAMES.map((plane) => `kubernetes/${plane}`),
    ),
  ]);
  for (const path of setAside?.paths ?? []) changes.set(path, texts.get(blobOf(path) ?? "") ?? null);
  changes.set(entry.file, edit(texts.get(blobOf(entry.file) ?? "") ?? ""));

  const changed: PartnerEntry = { ...entry, partner };
  const after: Registry = {
    ...registry,
    partners: registry.partners.map((one) => (one === entry ? changed : one)),
  };
  const rendered = new Map([...renderShared(after), ...renderPartner(after, changed)]);
  const committed = new Map(shared.map(({ path, blobId }) => [path, blobId]));
  for (const [path, text] of rendered) {
    const blobId = committed.get(path);
    const same =
      blobId === undefined ? files.rendered.get(path) === text : blobIdOf(text, base.tree) === blobId;
    if (!same) changes.set(path, text);
  }
  const before = renderPartner(registry, entry).keys();
  for (const path of [...files.rendered.keys(), ...committed.keys(), ...before]) {
    if (!rendered.has(path)) changes.set(path, null);
  }
  return changes;
}
