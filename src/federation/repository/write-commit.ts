// Commits are made without a work tree: blobs and trees, which git takes in as one pack, and a commit object.
// Invariants: nothing in force changes here; a commit that no branch was moved to is garbage that git collects.
import { DrawbridgeError } from "../../domain/errors.ts";
import { gitLine, gitOk } from "./git.ts";
import { FOLDER_MODE, type GitObject, objectId, packOf, treeOf } from "./objects.ts";
import { parseRevision, type Repository, type Revision } from "./repository.ts";
import { isDatedInFuture } from "./signatures.ts";

const FILE_MODE = "100644";

/** Texts to be by path; null where a file is to go. */
export type Changes = ReadonlyMap<string, string | null>;

export interface CommitAuthor {
  readonly name: string;
  readonly email: string;
}

export interface NewCommit {
  /** The first one's tree is what the changes are made to; none: the first commit of a repository. */
  readonly parents: readonly Revision[];
  readonly changes: Changes;
  readonly message: string;
  readonly author: CommitAuthor;
  /** Milliseconds since the Unix epoch; the youngest parent's date where that is a little later. */
  readonly at: number;
  /** Private SSH key that it is signed with. */
  readonly signingKeyFile?: string | undefined;
}

/** Writes the objects of a commit. @throws DrawbridgeError `repository_unusable`, also for an unusable signing key */
export async function writeCommit(repository: Repository, commit: NewCommit): Promise<Revision> {
  const tree = await writeTree(repository, commit);
  const seconds = Math.max(Math.floor(commit.at / 1_000), await lastDate(repository, commit));
  const sign = commit.signingKeyFile === undefined ? [] : ["-S"];
  const parents = commit.parents.flatMap((parent) => ["-p", parent]);
  const settings = sign.length === 0 ? [] : ["gpg.format=ssh", `user.signingKey=${commit.signingKeyFile}`];
  const { name, email } = commit.author;
  const who = ["AUTHOR", "COMMITTER"].flatMap((role) => [
    [`GIT_${role}_NAME`, name],
    [`GIT_${role}_EMAIL`, email],
    [`GIT_${role}_DATE`, `@${seconds} +0000`],
  ]);
  const call = repository.call({ input: commit.message, settings, env: Object.fromEntries(who) });
  const id = await gitLine(["commit-tree", ...sign, ...parents, tree], call);
  const revision = parseRevision(id);
  if (revision === undefined) throw new DrawbridgeError("internal", "git commit-tree printed no commit");
  return revision;
}

/** The youngest parent's date, before which no commit may be dated; a date in the future is not taken over. */
async function lastDate(repository: Repository, { parents, at }: NewCommit): Promise<number> {
  if (parents.length === 0) return 0;
  const past = await repository.datesOf(parents);
  return Math.max(0, ...past.filter((date) => !isDatedInFuture(date, at)));
}

/** @returns the ID of the commit's tree */
async function writeTree(repository: Repository, { parents: [base], changes }: NewCommit): Promise<string> {
  const before = base && (await repository.treeOf(base));
  if (before !== undefined && changes.size === 0) return before;
  const made: GitObject[] = [];
  const root = await changedFolder(repository, before, [...changes], made);
  const tree = root ?? put(repository, made, treeOf([]));
  await gitOk(
    ["unpack-objects", "-q", "--strict"],
    repository.call({ input: packOf(repository.format, made) }),
  );
  return tree;
}

function put({ format }: Repository, made: GitObject[], object: GitObject): string {
  made.push(object);
  return objectId(format, object);
}

/**
 * Adds what a folder becomes by changes, given by their paths in it.
 * @param tree what it is; undefined for a new one
 * @returns the ID of its tree; undefined when it has nothing in it
 */
async function changedFolder(
  repository: Repository,
  tree: string | undefined,
  changes: readonly (readonly [string, string | null])[],
  made: GitObject[],
): Promise<string | undefined> {
  const found = tree === undefined ? [] : await repository.entries(tree);
  const entries = new Map(found.map((entry) => [entry.name, entry]));
  for (const [first, inside] of Map.groupBy(changes, ([path]) => path.replace(/\/.*/s, ""))) {
    const name = Buffer.from(first).toString("latin1");
    const below = inside.flatMap(([path, text]) =>
      path === first ? [] : [[path.slice(first.length + 1), text] as const],
    );
    const text = inside.find(([path]) => path === first)?.[1];
    const old = entries.get(name);
    const oldTree = old?.mode === FOLDER_MODE ? old.id : undefined;
    const file =
      typeof text === "string"
        ? { name, mode: FILE_MODE, id: put(repository, made, { type: "blob", bytes: Buffer.from(text) }) }
        : text === undefined && oldTree === undefined
          ? old
          : undefined;
    const tree = below.length === 0 ? oldTree : await changedFolder(repository, oldTree, below, made);
    if (file !== undefined && tree !== undefined) {
      throw new DrawbridgeError("repository_unusable", `${first} would be a file and a folder at once`, {
        hint: "Look at the repository with git itself: something else than a file is in the place of one.",
      });
    }
    const entry = file ?? (tree === undefined ? undefined : { name, mode: FOLDER_MODE, id: tree });
    if (entry === undefined) entries.delete(name);
    else entries.set(name, entry);
  }
  return entries.size === 0 ? undefined : put(repository, made, treeOf([...entries.values()]));
}
