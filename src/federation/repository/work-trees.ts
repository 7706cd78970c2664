// Work trees that have the branch checked out: they are brought along when the branch moves under them.
// Invariants: a path that must change and that somebody has edited stops the change before anything is
// written; every other file, staged or not, is left as it is.
import { existsSync } from "node:fs";
import { DrawbridgeError } from "../../domain/errors.ts";
import { git, gitOk } from "./git.ts";
import type { Repository, Revision } from "./repository.ts";

/** The folders of the work trees whose checked-out branch is the repository's. */
export async function workTreesOf(repository: Repository): Promise<readonly string[]> {
  const listed = await gitOk(["worktree", "list", "--porcelain", "-z"], repository.call());
  const folders: string[] = [];
  for (const record of listed.toString("utf8").split("\0\0")) {
    const lines = record.split("\0");
    const folder = lines.find((line) => line.startsWith("worktree "))?.slice("worktree ".length);
    if (folder === undefined || lines.includes("bare")) continue;
    if (lines.includes(`branch ${repository.ref}`) && existsSync(folder)) folders.push(folder);
  }
  return folders;
}

/** Those of `paths` that are edited, staged or in the way in a work tree. */
async function dirtyPaths(folder: string, paths: readonly string[]): Promise<readonly string[]> {
  const args = [
    "status",
    "--porcelain=v1",
    "-z",
    "--no-renames",
    "--untracked-files=all",
    "--ignored=matching",
  ];
  const output = await gitOk([...args, "--", ...paths], { cwd: folder });
  return output
    .toString("utf8")
    .split("\0")
    .filter((line) => line !== "")
    .map((line) => line.slice(3));
}

/**
 * @throws DrawbridgeError `work_tree_dirty` when a path that is to change is not clean in a work tree
 */
export async function requireClean(folders: readonly string[], paths: readonly string[]): Promise<void> {
  for (const folder of folders) {
    const dirty = await dirtyPaths(folder, paths);
    if (dirty.length === 0) continue;
    const shown = dirty.slice(0, 5).join(", ");
    const more = dirty.length > 5 ? ` and ${dirty.length - 5} more` : "";
    throw new DrawbridgeError(
      "work_tree_dirty",
      `${folder} has changes in files that must change: ${shown}${more}`,
      {
        hint: "Commit them, or put them aside with git stash, and run the command again; nothing was changed.",
      },
    );
  }
}

/**
 * Brings the index and the clean files of a work tree from one revision to another (git-read-tree(1), two
 * trees). Repeating it changes nothing.
 * @returns false when the work tree was changed meanwhile so that it cannot be
 */
export async function bringAlong(folder: string, from: Revision, to: Revision): Promise<boolean> {
  await git(["update-index", "-q", "--refresh"], { cwd: folder });
  return (await git(["read-tree", "-m", "-u", from, to], { cwd: folder })).code === 0;
}
