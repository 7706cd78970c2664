// The organisation's repository: one branch of it declares what is to be in force.
// Invariants: a revision is read as a whole and never from a work tree; the branch moves only from the commit
// that a change was built on to the commit that holds it (compare and swap). What an ID names never changes,
// so what was read of it is cached, within bounds; where a branch points is read each time.
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { LRUCache } from "lru-cache";
import { DrawbridgeError } from "../../domain/errors.ts";
import { type GitCall, git, gitFailure, gitLine, gitOk } from "./git.ts";
import {
  FOLDER_MODE,
  formatOf,
  type NamedEntry,
  type ObjectFormat,
  type ObjectType,
  objectId,
  readLooseObject,
  treeEntries,
} from "./objects.ts";

declare const brand: unique symbol;
/** The ID of a commit: 40 or 64 hexadecimal digits. */
export type Revision = string & { readonly [brand]: "Revision" };

/** Texts that are kept, in UTF-16 code units; each ID counts as that much more. */
const KEPT_TEXTS = 8 << 20;
/** Listings of revisions that are kept. */
const KEPT_LISTINGS = 16;
const KEPT_COMMITS = 10_000;
/** Commits that are looked at, one after another, before git is asked. */
const WALKED_MAX = 100;

const OBJECT_ID = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/;

export function parseRevision(value: unknown): Revision | undefined {
  return typeof value === "string" && OBJECT_ID.test(value) ? (value as Revision) : undefined;
}

/** The ID that a text's blob has beside a revision: SHA-1 or SHA-256, as the repository's format is. */
export function blobIdOf(text: string, beside: Revision): string {
  return objectId(formatOf(beside), { type: "blob", bytes: Buffer.from(text, "utf8") });
}

/** What a revision has at a path that is not a folder: a file, a symbolic link or a submodule. */
export interface TreeEntry {
  readonly path: string;
  /** Of a submodule the ID of a commit of another repository. */
  readonly blobId: string;
  /** As git writes it: `100644` is a plain file. */
  readonly mode: string;
}

export function isSubmodule({ mode }: TreeEntry): boolean {
  return mode === "160000";
}

/** Whether it is a file, executable or not: no link and no submodule. */
export function isFile({ mode }: Pick<TreeEntry, "mode">): boolean {
  return mode === "100644" || mode === "100755";
}

/** What never changes of a commit. */
interface CommitFacts {
  readonly tree: string;
  /** When it was committed, by its committer's clock: seconds since the Unix epoch. */
  readonly at: number;
  readonly parents: readonly Revision[];
}

export class Repository {
  /** As configured. */
  readonly path: string;
  readonly branch: string;
  readonly format: ObjectFormat;
  readonly #gitDirectory: string;
  readonly #texts = new LRUCache<string, string>({
    maxSize: KEPT_TEXTS,
    sizeCalculation: (text, id) => text.length + id.length,
  });
  readonly #listings = new LRUCache<string, readonly TreeEntry[]>({ max: KEPT_LISTINGS });
  readonly #commits = new LRUCache<Revision, CommitFacts>({ max: KEPT_COMMITS });

  private constructor(path: string, branch: string, format: ObjectFormat, gitDirectory: string) {
    this.path = path;
    this.branch = branch;
    this.format = format;
    this.#gitDirectory = gitDirectory;
  }

  /**
   * @throws DrawbridgeError `repository_unusable` when `path` is not the top of a repository, or the branch is
   *   checked out: a commit that this machine makes would not reach that work tree
   */
  static async open(path: string, branch: string): Promise<Repository> {
    let real: string;
    try {
      real = realpathSync(path);
    } catch (cause) {
      throw new DrawbridgeError("repository_unusable", `there is no repository at ${path}`, {
        hint: "Correct `repository.path`, or make the repository with git init.",
        cause,
      });
    }
    // Without the ceiling, git would take a folder inside another repository for that repository.
    const call = { cwd: real, env: { GIT_CEILING_DIRECTORIES: dirname(real) } };
    const asked = ["--git-common-dir", "--is-bare-repository", "--show-object-format"];
    const answer = await git(["rev-parse", "--path-format=absolute", ...asked], call);
    if (answer.code !== 0) {
      throw new DrawbridgeError("repository_unusable", `${path} is not the top of a git repository`, {
        hint: "Correct `repository.path`: a bare repository, or the folder that holds .git.",
      });
    }
    const [, gitDirectory = "", isBare, format] =
      /^(.*)\n(true|false)\n(sha1|sha256)\n$/s.exec(answer.stdout.toString("utf8")) ?? [];
    const repository = new Repository(real, branch, format as ObjectFormat, gitDirectory);
    // A bare repository without linked work trees has nowhere to check a branch out.
    const mayHaveWorkTrees = isBare !== "true" || existsSync(join(gitDirectory, "worktrees"));
    if (mayHaveWorkTrees) await repository.#refuseCheckedOut();
    return repository;
  }

  async #refuseCheckedOut(): Promise<void> {
    const listed = await gitOk(["worktree", "list", "--porcelain", "-z"], this.call());
    const entries = listed
      .toString("utf8")
      .split("\0\0")
      .map((entry) => entry.split("\0"));
    // A bare repository is listed as well, and has no checked-out files.
    const found = entries.find((lines) => !lines.includes("bare") && lines.includes(`branch ${this.ref}`));
    const folder = found?.find((line) => line.startsWith("worktree "))?.slice("worktree ".length);
    if (folder === undefined) return;
    throw new DrawbridgeError(
      "repository_unusable",
      `the branch ${this.branch} is checked out in ${folder}, which would not follow commits made here`,
      { hint: "Name a bare repository (git clone --bare), and edit in clones of it." },
    );
  }

  get ref(): string {
    return `refs/heads/${this.branch}`;
  }

  /** How git is called on this repository's objects and branches. */
  call(more: Omit<GitCall, "cwd"> = {}): GitCall {
    return { cwd: this.path, ...more, env: { ...more.env, GIT_DIR: this.#gitDirectory } };
  }

  /** The commit that the branch points at; undefined when there is no such branch. */
  async head(): Promise<Revision | undefined> {
    const loose = this.#looseHead();
    if (loose !== undefined) return loose;
    const answer = await git(["rev-parse", "--verify", "--quiet", `${this.ref}^{commit}`], this.call());
    return parseRevision(answer.stdout.toString("utf8").trim());
  }

  /**
   * The branch as git's file of it says; undefined where git keeps it elsewhere. The head is read at every step, and
   * starting git takes far longer than reading a file.
   */
  #looseHead(): Revision | undefined {
    try {
      return parseRevision(readFileSync(join(this.#gitDirectory, this.ref), "latin1").trimEnd());
    } catch {
      return undefined;
    }
  }

  /** @throws DrawbridgeError `repository_unusable` when the branch does not exist */
  async requireHead(): Promise<Revision> {
    const head = await this.head();
    if (head !== undefined) return head;
    throw new DrawbridgeError("repository_unusable", `${this.path} has no branch ${this.branch}`, {
      hint: "Correct `repository.branch`, or commit the registry to it first.",
    });
  }

  /** Whether `ancestor` is `descendant` or one of its ancestors; false also when it is unknown here. */
  async isAncestor(ancestor: Revision, descendant: Revision): Promise<boolean> {
    const known = new Set([descendant]);
    for (const commit of known) {
      if (commit === ancestor) return true;
      const facts = known.size > WALKED_MAX ? undefined : this.#facts(commit);
      if (facts === undefined) {
        return (await git(["merge-base", "--is-ancestor", ancestor, descendant], this.call())).code === 0;
      }
      for (const parent of facts.parents) known.add(parent);
    }
    return false;
  }

  /** Of a commit that has a file of its own. */
  #facts(revision: Revision): CommitFacts | undefined {
    const kept = this.#commits.get(revision);
    if (kept !== undefined) return kept;
    const [head = ""] = (this.#loose(revision, "commit")?.toString("latin1") ?? "").split("\n\n", 1);
    const found = /^tree (\w+)\n((?:parent \w+\n)*)author .*\ncommitter .*> (\d+) [+-]\d{4}(?:\n|$)/.exec(
      head,
    );
    if (found === null) return undefined;
    const [, tree = "", parents = "", at] = found;
    const facts = {
      tree,
      parents: parents.split(/parent |\n/).flatMap((id) => parseRevision(id) ?? []),
      at: Number(at),
    };
    this.#commits.set(revision, facts);
    return facts;
  }

  /** Undefined where the object has no file of its own: then git is asked. */
  #loose(id: string, type: ObjectType): Buffer | undefined {
    try {
      return readLooseObject(this.#gitDirectory, id, type);
    } catch {
      return undefined;
    }
  }

  /** When commits were made, in seconds since the Unix epoch and in any order, by one call of git at most. */
  async datesOf(revisions: readonly Revision[]): Promise<readonly number[]> {
    const kept = revisions.map((revision) => this.#facts(revision)?.at);
    if (!kept.includes(undefined)) return kept.flatMap((at) => at ?? []);
    const printed = await gitLine(["log", "--no-walk", "--format=%ct", ...revisions], this.call());
    return printed.split("\n").map(Number);
  }

  /** The first parents of a commit, itself first, at most `limit`. */
  async history(revision: Revision, limit: number): Promise<readonly Revision[]> {
    const args = ["rev-list", "--first-parent", `--max-count=${limit}`, revision];
    return (await gitLine(args, this.call())).split("\n").flatMap((line) => parseRevision(line) ?? []);
  }

  /**
   * The commits from a revision back to another one that have changed anything below a folder; each with the files that
   * it has written there.
   * @param since absent: the whole history
   * @param along the first parents of each, or also what merges bring by the others
   */
  async changesSince(
    since: Revision | undefined,
    revision: Revision,
    folder: string,
    along: "mainline" | "merged" = "mainline",
  ): Promise<ReadonlyMap<Revision, readonly TreeEntry[]>> {
    const known = along === "mainline" ? await this.#changesOfKnown(since, revision, folder) : undefined;
    if (known !== undefined) return known;
    const range = since === undefined ? [revision] : [revision, `^${since}`];
    const format = ["--format=%H", "--raw", "--no-abbrev", "--no-renames", "--diff-merges=first-parent"];
    // Without the full history, git leaves out whatever side a merge has set aside.
    const parents = along === "mainline" ? "--first-parent" : "--full-history";
    const args = ["log", parents, "--ignore-missing", ...format, ...range, "--", folder];
    const listed = await gitLine(args, this.call({ settings: ["log.showRoot=true"] }));
    const changes = new Map<Revision, TreeEntry[]>();
    let files: TreeEntry[] = [];
    for (const line of listed.split("\n")) {
      const commit = parseRevision(line);
      if (commit !== undefined) {
        files = [];
        changes.set(commit, files);
      }
      const [, mode = "", blobId, path] = /^:\d+ (\d+) \w+ (\w+) \w+\t(.*)$/.exec(line) ?? [];
      if (isFile({ mode }) && blobId !== undefined && path !== undefined) files.push({ path, blobId, mode });
    }
    return changes;
  }

  /** Undefined unless first parents with files of their own lead to `since`, or without it to the beginning. */
  async #changesOfKnown(since: Revision | undefined, revision: Revision, folder: string) {
    const changes = new Map<Revision, readonly TreeEntry[]>();
    let commit: Revision | undefined = revision;
    for (let walked = 0; commit !== since; walked++) {
      const facts: CommitFacts | undefined = commit && this.#facts(commit);
      if (commit === undefined || facts === undefined || walked === WALKED_MAX) return undefined;
      const parent: Revision | undefined = facts.parents[0];
      const before = new Map<string, string>();
      for (const { path, blobId, mode } of parent === undefined ? [] : await this.list(parent, [folder])) {
        before.set(path, `${mode} ${blobId}`);
      }
      const after = await this.list(commit, [folder]);
      const other = after.filter(({ path, blobId, mode }) => before.get(path) !== `${mode} ${blobId}`);
      if (other.length > 0 || after.length < before.size) changes.set(commit, other.filter(isFile));
      commit = parent;
    }
    return changes;
  }

  /** Everything that a revision has at or below the given paths, submodules included. */
  async list(revision: Revision, folders: readonly string[]): Promise<readonly TreeEntry[]> {
    const args = ["ls-tree", "-r", "-z", "--full-tree", revision, "--", ...folders];
    const request = args.join("\0");
    const kept = this.#listings.get(request) ?? this.#listLoose(revision, folders);
    const entries = kept ?? entriesIn(await gitOk(args, this.call()));
    this.#listings.set(request, entries);
    return entries;
  }

  /** Undefined unless the commit and all its trees there have files of their own. */
  #listLoose(revision: Revision, folders: readonly string[]): readonly TreeEntry[] | undefined {
    const entries: TreeEntry[] = [];
    const add = (tree: string, above: string): boolean =>
      this.#looseTree(tree)?.every(({ name, id, mode }) => {
        const path = `${above}${Buffer.from(name, "latin1")}`;
        const isWithin = folders.some((folder) => `${path}/`.startsWith(`${folder}/`));
        if (mode !== FOLDER_MODE) return !isWithin || entries.push({ path, blobId: id, mode });
        const leads = isWithin || folders.some((folder) => folder.startsWith(`${path}/`));
        return !leads || add(id, `${path}/`);
      }) ?? false;
    const tree = this.#facts(revision)?.tree;
    return tree !== undefined && add(tree, "") ? entries : undefined;
  }

  /** The ID of a commit's tree. */
  async treeOf(revision: Revision): Promise<string> {
    return (
      this.#facts(revision)?.tree ?? gitLine(["rev-parse", "--verify", `${revision}^{tree}`], this.call())
    );
  }

  #looseTree(id: string): readonly NamedEntry[] | undefined {
    const bytes = this.#loose(id, "tree");
    return bytes && treeEntries(bytes, this.format);
  }

  /** What a folder, by the ID of its tree, has in it; in one call of git at most. */
  async entries(tree: string): Promise<readonly NamedEntry[]> {
    return (
      this.#looseTree(tree) ?? treeEntries(await gitOk(["cat-file", "tree", tree], this.call()), this.format)
    );
  }

  /** The text of blobs, by ID, in one call of git at most. What is not UTF-8 is given as a text no parser takes. */
  async blobs(ids: Iterable<string>): Promise<ReadonlyMap<string, string>> {
    const texts = new Map<string, string>();
    const wanted: string[] = [];
    const keep = (id: string, bytes: Buffer) => {
      const text = textOf(bytes);
      texts.set(id, text);
      this.#texts.set(id, text);
    };
    for (const id of new Set(ids)) {
      const kept = this.#texts.get(id);
      const loose = kept === undefined ? this.#loose(id, "blob") : undefined;
      if (kept !== undefined) texts.set(id, kept);
      else if (loose !== undefined) keep(id, loose);
      else wanted.push(id);
    }
    if (wanted.length === 0) return texts;
    const output = await gitOk(["cat-file", "--batch"], this.call({ input: `${wanted.join("\n")}\n` }));
    let at = 0;
    for (const id of wanted) {
      const lineEnd = output.indexOf(0x0a, at);
      const [found, type, size] = output.toString("latin1", at, Math.max(lineEnd, at)).split(" ");
      if (found !== id || type !== "blob") {
        throw new DrawbridgeError("repository_unusable", `the repository lacks the object ${id}`, {
          hint: "Run git fsck in it, and restore what is missing from a clone.",
        });
      }
      keep(id, output.subarray(lineEnd + 1, lineEnd + 1 + Number(size)));
      at = lineEnd + 1 + Number(size) + 1;
    }
    return texts;
  }

  /** Every file of a revision below the given folders, by path. */
  async read(revision: Revision, folders: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const entries = (await this.list(revision, folders)).filter((entry) => !isSubmodule(entry));
    const texts = await this.blobs(entries.map(({ blobId }) => blobId));
    return new Map(entries.map(({ path, blobId }) => [path, texts.get(blobId) ?? ""]));
  }

  /**
   * Moves the branch from one commit to another.
   * @returns false when the branch is not, or no longer, at `from`
   */
  async advance(from: Revision, to: Revision, reason: string): Promise<boolean> {
    const args = ["update-ref", "-m", reason, this.ref, to, from];
    const answer = await git(args, this.call());
    if (answer.code === 0) return true;
    if ((await this.head()) !== from) return false;
    throw gitFailure(args, answer.stderr.trim());
  }
}

/** What `git ls-tree -z` has printed. */
function entriesIn(output: Buffer): readonly TreeEntry[] {
  return output
    .toString("utf8")
    .split("\0")
    .flatMap((line) => {
      const tab = line.indexOf("\t");
      const [mode = "", , blobId] = line.slice(0, Math.max(tab, 0)).split(" ");
      return blobId === undefined ? [] : [{ path: line.slice(tab + 1), blobId, mode }];
    });
}

function textOf(bytes: Buffer): string {
  const text = bytes.toString("utf8");
  return Buffer.byteLength(text) === bytes.length && Buffer.from(text).equals(bytes) ? text : "\0not UTF-8";
}
