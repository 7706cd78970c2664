// The organisation's repository: one branch of it declares what is to be in force.
// Invariants: a revision is read as a whole and never from a work tree; the branch moves only from the commit
// that a change was built on to the commit that holds it (compare and swap). What an ID names never changes,
// so what was read of it is cached, within bounds; where a branch points is read each time.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";
import { LRUCache } from "lru-cache";
import { DrawbridgeError } from "../../domain/errors.ts";
import { type GitCall, git, gitFailure, gitLine, gitOk } from "./git.ts";

declare const brand: unique symbol;
/** The ID of a commit: 40 or 64 hexadecimal digits. */
export type Revision = string & { readonly [brand]: "Revision" };

/** Texts that are kept, in UTF-16 code units; each ID counts as that much more. */
const KEPT_TEXTS = 8 << 20;
/** Listings of revisions that are kept. */
const KEPT_LISTINGS = 16;
const KEPT_COMMITS = 10_000;

const OBJECT_ID = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/;

export function parseRevision(value: unknown): Revision | undefined {
  return typeof value === "string" && OBJECT_ID.test(value) ? (value as Revision) : undefined;
}

/** The ID that a text's blob has beside a revision: SHA-1 or SHA-256, as the repository's format is. */
export function blobIdOf(text: string, beside: Revision): string {
  const bytes = Buffer.from(text, "utf8");
  const digest = createHash(beside.length === 64 ? "sha256" : "sha1");
  return digest.update(`blob ${bytes.length}\0`).update(bytes).digest("hex");
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
export interface CommitFacts {
  /** When it was committed, by its committer's clock: seconds since the Unix epoch. */
  readonly at: number;
  readonly parents: readonly Revision[];
}

export class Repository {
  /** As configured. */
  readonly path: string;
  readonly branch: string;
  readonly #gitDirectory: string;
  readonly #texts = new LRUCache<string, string>({
    maxSize: KEPT_TEXTS,
    sizeCalculation: (text, id) => text.length + id.length,
  });
  readonly #listings = new LRUCache<string, readonly TreeEntry[]>({ max: KEPT_LISTINGS });
  readonly #commits = new LRUCache<Revision, CommitFacts>({ max: KEPT_COMMITS });

  private constructor(path: string, branch: string, gitDirectory: string) {
    this.path = path;
    this.branch = branch;
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
    const request = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--is-bare-repository"];
    const answer = await git(request, call);
    if (answer.code !== 0) {
      throw new DrawbridgeError("repository_unusable", `${path} is not the top of a git repository`, {
        hint: "Correct `repository.path`: a bare repository, or the folder that holds .git.",
      });
    }
    const [, gitDirectory = "", isBare] =
      /^(.*)\n(true|false)\n$/s.exec(answer.stdout.toString("utf8")) ?? [];
    const repository = new Repository(real, branch, gitDirectory);
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
    if (ancestor === descendant) return true;
    if (this.#commits.get(descendant)?.parents.includes(ancestor) === true) return true;
    const answer = await git(["merge-base", "--is-ancestor", ancestor, descendant], this.call());
    return answer.code === 0;
  }

  /** Keeps what is known of a commit that was written here, since that is asked for next. */
  keep(revision: Revision, facts: CommitFacts): void {
    this.#commits.set(revision, facts);
  }

  /** When commits were made, in seconds since the Unix epoch and in any order, by one call of git at most. */
  async datesOf(revisions: readonly Revision[]): Promise<readonly number[]> {
    const kept = revisions.map((revision) => this.#commits.get(revision)?.at);
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
  ): Promise<ReadonlyMap<Revision, readonly Omit<TreeEntry, "mode">[]>> {
    const range = since === undefined ? [revision] : [revision, `^${since}`];
    const format = ["--format=%H", "--raw", "--no-abbrev", "--no-renames", "--diff-merges=first-parent"];
    // Without the full history, git leaves out whatever side a merge has set aside.
    const parents = along === "mainline" ? "--first-parent" : "--full-history";
    const args = ["log", parents, "--ignore-missing", ...format, ...range, "--", folder];
    const listed = await gitLine(args, this.call({ settings: ["log.showRoot=true"] }));
    const changes = new Map<Revision, Omit<TreeEntry, "mode">[]>();
    let files: Omit<TreeEntry, "mode">[] = [];
    for (const line of listed.split("\n")) {
      const commit = parseRevision(line);
      if (commit !== undefined) {
        files = [];
        changes.set(commit, files);
      }
      const [, mode = "", blobId, path] = /^:\d+ (\d+) \w+ (\w+) \w+\t(.*)$/.exec(line) ?? [];
      if (isFile({ mode }) && blobId !== undefined && path !== undefined) files.push({ path, blobId });
    }
    return changes;
  }

  /** Everything that a revision has at or below the given paths, submodules included. */
  async list(revision: Revision, folders: readonly string[]): Promise<readonly TreeEntry[]> {
    const args = ["ls-tree", "-r", "-z", "--full-tree", revision, "--", ...folders];
    const request = args.join("\0");
    const kept = this.#listings.get(request);
    if (kept !== undefined) return kept;
    const lines = (await gitOk(args, this.call())).toString("utf8").split("\0");
    const entries = lines.flatMap((line) => {
      const tab = line.indexOf("\t");
      const [mode = "", , blobId] = line.slice(0, Math.max(tab, 0)).split(" ");
      return blobId === undefined ? [] : [{ path: line.slice(tab + 1), blobId, mode }];
    });
    this.#listings.set(request, entries);
    return entries;
  }

  /** The text of blobs, by ID, in one call of git at most. What is not UTF-8 is given as a text no parser takes. */
  async blobs(ids: Iterable<string>): Promise<ReadonlyMap<string, string>> {
    const texts = new Map<string, string>();
    const wanted: string[] = [];
    for (const id of new Set(ids)) {
      const kept = this.#texts.get(id);
      if (kept === undefined) wanted.push(id);
      else texts.set(id, kept);
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
      const bytes = output.subarray(lineEnd + 1, lineEnd + 1 + Number(size));
      const text = textOf(bytes);
      texts.set(id, text);
      this.#texts.set(id, text);
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

function textOf(bytes: Buffer): string {
  const text = bytes.toString("utf8");
  return Buffer.byteLength(text) === bytes.length && Buffer.from(text).equals(bytes) ? text : "\0not UTF-8";
}
