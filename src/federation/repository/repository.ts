// The organisation's repository: one branch of it declares what is to be in force.
// Invariants: a revision is read as a whole and never from a work tree; the branch moves only from the commit
// that a change was built on to the commit that holds it (compare and swap). What an ID names never changes,
// so what was read of it is cached, within bounds; where a branch points is read each time.
import { isUtf8 } from "node:buffer";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { LRUCache } from "lru-cache";
import { DrawbridgeError } from "../../domain/errors.ts";
import { CLOCK_SKEW_MS } from "../../records/format/fields.ts";
import { type GitCall, git, gitFailure, gitLine, gitOk } from "./git.ts";

declare const brand: unique symbol;
export type Revision = string & { readonly [brand]: "Revision" };

/** Texts that are kept, in UTF-16 code units; each ID counts as that much more. */
const KEPT_TEXTS = 8 << 20;
const KEPT_LISTINGS = 16;
/** Ten thousand partners take 2 MB. A few folders that name one another are files without end. */
const LISTING_BYTES_MAX = 1 << 26;

const OBJECT_ID = /^(?:[0-9a-f]{40}|[0-9a-f]{64})$/;

export const parseRevision = (value: unknown): Revision | undefined =>
  typeof value === "string" && OBJECT_ID.test(value) ? (value as Revision) : undefined;

/** The ID that a text's blob (or tree) has beside another ID: SHA-1 or SHA-256, as the repository's format is. */
export function blobIdOf(text: string, beside: string, type: "blob" | "tree" = "blob"): string {
  const bytes = Buffer.from(text, "utf8");
  const digest = createHash(beside.length === 64 ? "sha256" : "sha1");
  return digest.update(`${type} ${bytes.length}\0`).update(bytes).digest("hex");
}

export interface TreeEntry {
  readonly path: string;
  /** Of a submodule the ID of a commit of another repository. */
  readonly blobId: string;
  readonly mode: string;
}

export const isSubmodule = ({ mode }: TreeEntry): boolean => mode === "160000";

/** Whether it is a file, executable or not: no link and no submodule. */
export const isFile = ({ mode }: Pick<TreeEntry, "mode">): boolean => mode === "100644" || mode === "100755";

export class Repository {
  readonly path: string;
  readonly branch: string;
  readonly #texts = new LRUCache<string, string>({
    maxSize: KEPT_TEXTS,
    sizeCalculation: (text, id) => text.length + id.length,
  });
  readonly #listings = new LRUCache<string, readonly TreeEntry[]>({ max: KEPT_LISTINGS });

  private constructor(path: string, branch: string) {
    this.path = path;
    this.branch = branch;
  }

  /** @throws DrawbridgeError `repository_unusable` unless it is bare: a work tree would not follow commits made here */
  static async open(path: string, branch: string): Promise<Repository> {
    const hint =
      "Name a bare repository without linked work trees (git clone --bare), and edit in clones of it.";
    const refused = (what: string, cause?: unknown) =>
      new DrawbridgeError("repository_unusable", what, { hint, cause });
    let real: string;
    try {
      real = realpathSync(path);
    } catch (cause) {
      throw refused(`there is no repository at ${path}`, cause);
    }
    // Without the ceiling, git would take a folder inside another repository for that repository.
    const call = { cwd: real, env: { GIT_CEILING_DIRECTORIES: dirname(real) } };
    const answer = await git(["rev-parse", "--is-bare-repository"], call);
    if (answer.stdout.toString("utf8") !== "true\n" || existsSync(join(real, "worktrees"))) {
      throw refused(`${path} is no bare git repository, or has work trees`);
    }
    return new Repository(real, branch);
  }

  get ref(): string {
    return `refs/heads/${this.branch}`;
  }

  call(more: Omit<GitCall, "cwd"> = {}): GitCall {
    return { cwd: this.path, ...more, env: { ...more.env, GIT_DIR: this.path } };
  }

  async head(): Promise<Revision | undefined> {
    const loose = this.#looseHead();
    if (loose !== undefined) return loose;
    const answer = await git(["rev-parse", "--verify", "--quiet", `${this.ref}^{commit}`], this.call());
    return parseRevision(answer.stdout.toString("utf8").trim());
  }

  /** The branch as git's file has it, since starting git takes far longer; undefined where git keeps it elsewhere. */
  #looseHead(): Revision | undefined {
    try {
      return parseRevision(readFileSync(join(this.path, this.ref), "latin1").trimEnd());
    } catch {
      return undefined;
    }
  }

  async requireHead(): Promise<Revision> {
    const head = await this.head();
    if (head !== undefined) return head;
    const hint = "Correct `repository.branch`, or commit the registry to it first.";
    throw new DrawbridgeError("repository_unusable", `${this.path} has no branch ${this.branch}`, { hint });
  }

  /** Whether `ancestor` is `descendant` or one of its ancestors; false also when it is unknown here. */
  async isAncestor(ancestor: Revision, descendant: Revision): Promise<boolean> {
    if (ancestor === descendant) return true;
    return (await git(["merge-base", "--is-ancestor", ancestor, descendant], this.call())).code === 0;
  }

  async history(revision: Revision, limit: number): Promise<readonly Revision[]> {
    const args = ["rev-list", "--first-parent", `--max-count=${limit}`, revision];
    return (await gitLine(args, this.call())).split("\n").flatMap((line) => parseRevision(line) ?? []);
  }

  /** The commits since another one, or ever, with what each wrote of the registry. @param along also those that merges bring */
  async changesSince(
    since: Revision | undefined,
    revision: Revision,
    along: "mainline" | "merged" = "mainline",
  ): Promise<ReadonlyMap<Revision, readonly Omit<TreeEntry, "mode">[]>> {
    const range = since === undefined ? [revision] : [revision, `^${since}`];
    const format = ["--format=%H", "--raw", "--no-abbrev", "--no-renames", "--diff-merges=first-parent"];
    // Without the full history, git leaves out whatever side a merge has set aside.
    const parents = along === "mainline" ? "--first-parent" : "--full-history";
    const args = ["log", parents, "--ignore-missing", ...format, ...range, "--", "registry"];
    const changes = new Map<Revision, Omit<TreeEntry, "mode">[]>();
    let files: Omit<TreeEntry, "mode">[] = [];
    for (const line of (await gitLine(args, this.call({ settings: ["log.showRoot=true"] }))).split("\n")) {
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

  async list(revision: Revision, folders: readonly string[]): Promise<readonly TreeEntry[]> {
    const args = ["ls-tree", "-r", "-z", "--full-tree", revision, "--", ...folders];
    const request = args.join("\0");
    const kept = this.#listings.get(request);
    if (kept !== undefined) return kept;
    const listed = await gitOk(args, this.call({ bytesMax: LISTING_BYTES_MAX }));
    const lines = listed.toString("utf8").split("\0");
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
      if (found !== id || size === undefined) {
        const hint = "Run git fsck in it, and restore what is missing from a clone.";
        throw new DrawbridgeError("repository_unusable", `the repository lacks the object ${id}`, { hint });
      }
      const bytes = output.subarray(lineEnd + 1, lineEnd + 1 + Number(size));
      // A tree may call a folder a file.
      const text = type !== "blob" ? "\0no file" : isUtf8(bytes) ? bytes.toString() : "\0not UTF-8";
      texts.set(id, text);
      this.#texts.set(id, text);
      at = lineEnd + 1 + Number(size) + 1;
    }
    return texts;
  }

  async read(revision: Revision, folders: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const entries = (await this.list(revision, folders)).filter((entry) => !isSubmodule(entry));
    const texts = await this.blobs(entries.map(({ blobId }) => blobId));
    return new Map(entries.map(({ path, blobId }) => [path, texts.get(blobId) ?? ""]));
  }

  /** The oldest commit of the branch whose message has all these words. */
  async committedAs(...words: readonly string[]): Promise<Revision | undefined> {
    const all = ["--fixed-strings", "--all-match", ...words.map((some) => `--grep=${some}`)];
    const listed = await gitLine(["log", "--format=%H", ...all, this.ref, "--"], this.call());
    return parseRevision(listed.split("\n").at(-1));
  }

  /** Moves the branch; false when it is not, or no longer, at `from`. */
  async advance(from: Revision, to: Revision, reason: string): Promise<boolean> {
    const args = ["update-ref", "-m", reason, this.ref, to, from];
    const answer = await git(args, this.call());
    if (answer.code === 0) return true;
    if ((await this.head()) !== from) return false;
    throw gitFailure(args, answer.stderr.trim());
  }
}

// Commits are made without a work tree: blobs, trees, a commit object. Nothing in force changes here; a
// commit that no branch was moved to is garbage that git collects.

export type Changes = ReadonlyMap<string, string | null>;
export interface NewCommit {
  /** The first one's tree is what the changes are made to; none: the first commit of a repository. */
  readonly parents: readonly Revision[];
  readonly changes: Changes;
  readonly message: string;
  readonly author: { readonly name: string; readonly email: string };
  /** Milliseconds since the Unix epoch; the youngest parent's date where that is a little later. */
  readonly at: number;
  readonly signingKeyFile?: string | undefined;
}

/** Writes the objects of a commit. @throws DrawbridgeError `repository_unusable`, also for an unusable signing key */
export async function writeCommit(repository: Repository, commit: NewCommit): Promise<Revision> {
  const folder = mkdtempSync(join(tmpdir(), "drawbridge-commit-"));
  try {
    const tree = await writeTree(repository, commit, folder);
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
    return (await gitLine(["commit-tree", ...sign, ...parents, tree], call)) as Revision;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Whether a commit's date, in seconds, is in the future; such a date says nothing of when others were made. */
export const isDatedInFuture = (at: number, nowMs: number): boolean => at > (nowMs + CLOCK_SKEW_MS) / 1_000;

/** The youngest parent's date, before which no commit may be dated; a date in the future is not taken over. */
async function lastDate(repository: Repository, { parents, at }: NewCommit): Promise<number> {
  if (parents.length === 0) return 0;
  const printed = await gitLine(["log", "--no-walk", "--format=%ct", ...parents], repository.call());
  const past = printed.split("\n").map(Number);
  return Math.max(0, ...past.filter((date) => !isDatedInFuture(date, at)));
}

async function writeTree(repository: Repository, commit: NewCommit, folder: string): Promise<string> {
  const { changes, parents } = commit;
  const [base] = parents;
  if (base !== undefined && changes.size === 0) return `${base}^{tree}`;
  const written = [...changes].flatMap(([path, text], index) =>
    text === null ? [] : [{ path, text, file: join(folder, `${index}`) }],
  );
  for (const { file, text } of written) writeFileSync(file, text, { mode: 0o600 });
  const args = ["hash-object", "-w", "--no-filters", "--stdin-paths"];
  const call = repository.call({ input: written.map(({ file }) => `${file}\n`).join("") });
  const ids = written.length === 0 ? [] : (await gitLine(args, call)).split("\n");
  const blobs = new Map<string, string | null>([...changes].map(([path]) => [path, null]));
  for (const [index, { path }] of written.entries()) blobs.set(path, ids[index] ?? "");
  return treeWith(repository, base === undefined ? [] : [base], blobs);
}

/**
 * A tree with files put in, or taken out (null). What is beside them is copied as it is and never entered: git refuses to read
 * some trees into an index, or to write what it has listed of others, and some have no end; nobody's commit may keep a
 * partner from being contained. Names are compared as they are read. @param trees all that one name stands for, as git lists it
 */
async function treeWith(repository: Repository, trees: readonly string[], files: Changes): Promise<string> {
  let entries: TreeItem[] = [];
  for (const tree of trees) {
    const raw = (await gitOk(["cat-file", "tree", tree], repository.call())).toString("latin1");
    const items = raw.matchAll(new RegExp(`(\\d+) ([^\\0]*)\\0([^]{${tree.length / 2}})`, "gy"));
    for (const [, mode = "", bytes = "", id = ""] of items) {
      entries.push({ mode, bytes, id, name: Buffer.from(bytes, "latin1").toString("utf8") });
    }
  }
  const below = new Map<string, Map<string, string | null>>();
  const put = (name: string, mode: string, id: string | null) => {
    entries = entries.filter((entry) => entry.name !== name);
    if (id === null) return;
    const bytes = Buffer.from(name, "utf8").toString("latin1");
    const item = { mode, name, bytes, id: Buffer.from(id, "hex").toString("latin1") };
    const after = entries.findIndex((entry) => sortedAs(entry) > sortedAs(item));
    entries.splice(after < 0 ? entries.length : after, 0, item);
  };
  for (const [path, blob] of files) {
    const [name = "", ...rest] = path.split("/");
    // A tree may also have a whole path for a name.
    put(path, "100644", rest.length === 0 ? blob : null);
    if (rest.length === 0) continue;
    below.set(name, (below.get(name) ?? new Map()).set(rest.join("/"), blob));
  }
  for (const [name, inner] of below) {
    const folders = entries.filter((entry) => entry.name === name && isFolder(entry));
    // A file in the place of the folder has none of what is to be taken out.
    if (folders.length === 0 && [...inner.values()].every((blob) => blob === null)) continue;
    const ids = folders.map(({ id }) => Buffer.from(id, "latin1").toString("hex"));
    const made = await treeWith(repository, ids, inner);
    // Git keeps no folder without files.
    put(name, "40000", made === blobIdOf("", made, "tree") ? null : made);
  }
  const raw = entries.map(({ mode, bytes, id }) => `${mode} ${bytes}\0${id}`).join("");
  const input = Buffer.from(raw, "latin1");
  return gitLine(["hash-object", "-t", "tree", "-w", "--literally", "--stdin"], repository.call({ input }));
}

/** `bytes`, its name, and `id` are bytes (latin1). */
type TreeItem = Readonly<Record<"mode" | "name" | "bytes" | "id", string>>;
const isFolder = ({ mode }: TreeItem): boolean => /^0?40000$/.test(mode);
const sortedAs = (item: TreeItem): string => (isFolder(item) ? `${item.bytes}/` : item.bytes);
