// A commit that this machine itself makes on the organisation's branch: an act, a report. Invariants: the branch
// moves from the commit that was built on, or not at all; it never moves to a commit that the reconciler would
// refuse for want of a signature; work trees that have the branch checked out come along, also after a kill.
import { z } from "zod";
import { DrawbridgeError } from "../domain/errors.ts";
import { type CommitAuthor, type NewCommit, writeCommit } from "./repository/commit.ts";
import { parseRevision, type Repository, type Revision } from "./repository/repository.ts";
import { canReadSigners, isSignedByAllowed } from "./repository/signature.ts";
import { bringAlong, requireClean, workTreesOf } from "./repository/work-trees.ts";
import type { StateFolder } from "./state/folder.ts";

export interface BranchContext {
  readonly repository: Repository;
  readonly state: StateFolder;
  readonly author: CommitAuthor;
  readonly signingKeyFile?: string | undefined;
  /** OpenSSH allowed signers; absent: any commit is taken up. */
  readonly allowedSignersFile?: string | undefined;
}

interface BranchChange extends Pick<NewCommit, "parents" | "base" | "changes" | "message" | "at"> {
  /** For the reflog. */
  readonly reason: string;
}

export interface Committed {
  readonly revision: Revision;
  /** Work trees that were edited so quickly that they could not be brought along. */
  readonly workTreesBehind: readonly string[];
}

/**
 * Commits on top of the first parent, which must be the branch's head. The lock `commit` is held by the caller,
 * who has called `finishWorkTrees` under it.
 * @returns undefined when the branch has moved; then nothing has changed
 * @throws DrawbridgeError `config_invalid` when the commit would be refused, `work_tree_dirty`,
 *   `repository_unusable`; nothing has changed then either
 */
export async function commitToBranch(
  context: BranchContext,
  { reason, ...change }: BranchChange,
): Promise<Committed | undefined> {
  const { repository, state, author, signingKeyFile } = context;
  const from = change.parents[0];
  const revision = await writeCommit(repository, { ...change, author, signingKeyFile });
  await requireTakenUp(context, revision);
  const folders = await workTreesOf(repository);
  if (folders.length > 0) {
    await requireClean(folders, await repository.changedPaths(from, revision));
    state.write(PENDING_FILE, { version: 1, from, to: revision, folders });
  }
  if (!(await repository.advance(from, revision, `drawbridge: ${reason}`))) return undefined;
  return { revision, workTreesBehind: folders.length > 0 ? await finishWorkTrees(context) : [] };
}

/** A commit without an allowed signature would be a head that is refused, and keep everything else out as well. */
async function requireTakenUp(
  { repository, signingKeyFile, allowedSignersFile }: BranchContext,
  revision: Revision,
): Promise<void> {
  if (allowedSignersFile === undefined) return;
  if (await isSignedByAllowed(repository, revision, allowedSignersFile)) return;
  const what = !canReadSigners(allowedSignersFile)
    ? "that file cannot be read"
    : signingKeyFile === undefined
      ? "repository.signingKeyFile is not set"
      : "the key of repository.signingKeyFile is not among them";
  throw new DrawbridgeError(
    "config_invalid",
    `only commits signed by a key of ${allowedSignersFile} are taken up, and ${what}; nothing was changed`,
    {
      mend: "Name a private key in `repository.signingKeyFile` whose public half stands in `repository.allowedSignersFile`, and run the command again.",
    },
  );
}

const PENDING_FILE = "pending-work-trees.json";
const Pending = z.strictObject({
  version: z.literal(1),
  from: z.string(),
  to: z.string(),
  folders: z.array(z.string()),
});

/**
 * Brings work trees along that a commit has left behind, the last one or one that was killed.
 * @returns those that could not be
 */
export async function finishWorkTrees({
  repository,
  state,
}: Pick<BranchContext, "repository" | "state">): Promise<readonly string[]> {
  const pending = state.read(Pending, PENDING_FILE, () => undefined);
  if (pending === undefined) return [];
  const [from, to] = [parseRevision(pending.from), parseRevision(pending.to)];
  const head = await repository.head();
  const behind: string[] = [];
  if (
    from !== undefined &&
    to !== undefined &&
    head !== undefined &&
    (await repository.isAncestor(to, head))
  ) {
    const present = new Set(await workTreesOf(repository));
    for (const folder of pending.folders) {
      if (present.has(folder) && !(await bringAlong(folder, from, to))) behind.push(folder);
    }
  }
  state.remove(PENDING_FILE);
  return behind;
}
