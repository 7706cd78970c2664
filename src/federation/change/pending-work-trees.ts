// Work trees that have the branch checked out are brought along when it moves under them, also when whoever
// moved it was killed in between. Invariant: what is to be brought along is written before the branch moves.
import { z } from "zod";
import { parseRevision, type Repository, type Revision } from "../repository/repository.ts";
import { bringAlong, requireClean, workTreesOf } from "../repository/work-trees.ts";
import type { StateFolder } from "../state/folder.ts";

const PENDING_FILE = "pending-work-trees.json";
const Pending = z.strictObject({
  version: z.literal(1),
  from: z.string(),
  to: z.string(),
  folders: z.array(z.string()),
});

interface Where {
  readonly repository: Repository;
  readonly state: StateFolder;
}

/**
 * Moves the branch and the work trees that have it checked out.
 * @returns those that could not be brought along; undefined when the branch moved meanwhile, and nothing was done
 * @throws DrawbridgeError `work_tree_dirty` when an edited file is in the way
 */
export async function advanceWithWorkTrees(
  where: Where,
  from: Revision,
  to: Revision,
  reason: string,
): Promise<readonly string[] | undefined> {
  const { repository, state } = where;
  const folders = await workTreesOf(repository);
  if (folders.length > 0) {
    await requireClean(folders, await repository.changedPaths(from, to));
    state.write(PENDING_FILE, { version: 1, from, to, folders });
  }
  if (!(await repository.advance(from, to, reason))) return undefined;
  return folders.length > 0 ? finishWorkTrees(where) : [];
}

/**
 * Brings work trees along that an earlier change has left behind, or one that was killed.
 * @returns those that could not be
 */
export async function finishWorkTrees({ repository, state }: Where): Promise<readonly string[]> {
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
