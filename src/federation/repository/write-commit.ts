// Commits are made without a work tree: blobs, a temporary index, a tree, a commit object.
// Invariants: nothing in force changes here; a commit that no branch was moved to is garbage that git collects.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";
import { gitLine, gitOk } from "./git.ts";
import { parseRevision, type Repository, type Revision } from "./repository.ts";
import { isDatedInFuture } from "./signatures.ts";

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
    const id = await gitLine(["commit-tree", ...sign, ...parents, tree], call);
    const revision = parseRevision(id);
    if (revision === undefined) throw new DrawbridgeError("internal", "git commit-tree printed no commit");
    return revision;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The youngest parent's date, before which no commit may be dated; a date in the future is not taken over. */
async function lastDate(repository: Repository, { parents, at }: NewCommit): Promise<number> {
  if (parents.length === 0) return 0;
  const past = await repository.datesOf(parents);
  return Math.max(0, ...past.filter((date) => !isDatedInFuture(date, at)));
}

async function writeTree(repository: Repository, commit: NewCommit, folder: string): Promise<string> {
  const written = [...commit.changes].flatMap(([path, text], index) =>
    text === null ? [] : [{ path, text, file: join(folder, `${index}`) }],
  );
  for (const { file, text } of written) writeFileSync(file, text, { mode: 0o600 });
  const hashed =
    written.length === 0
      ? ""
      : gitLine(
          ["hash-object", "-w", "--no-filters", "--stdin-paths"],
          repository.call({ input: written.map(({ file }) => `${file}\n`).join("") }),
        );
  const call = { env: { GIT_INDEX_FILE: join(folder, "index") } };
  const [base] = commit.parents;
  const readBase = gitOk(["read-tree", base ?? "--empty"], repository.call(call));
  const [idLines] = await Promise.all([hashed, readBase]);
  const ids = idLines.split("\n");
  const nothing = "0".repeat(base?.length ?? 0);
  const lines = [
    ...written.map(({ path }, index) => `100644 ${ids[index]}\t${path}\0`),
    ...[...commit.changes].flatMap(([path, text]) => (text === null ? [`0 ${nothing}\t${path}\0`] : [])),
  ];
  await gitOk(["update-index", "-z", "--index-info"], repository.call({ ...call, input: lines.join("") }));
  return gitLine(["write-tree"], repository.call(call));
}
