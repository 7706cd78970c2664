// Real git repositories for tests, and the keys that sign in them.
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { type Changes, writeCommit } from "../../src/federation/repository/commit.ts";
import { Repository, type Revision } from "../../src/federation/repository/repository.ts";
import { writeFile } from "./temporary.ts";

export const AUTHOR = { name: "An Operator", email: "operator@a.test" } as const;
export const AT = Date.UTC(2026, 0, 2, 3, 4, 5);

const IDENTITY = {
  GIT_AUTHOR_NAME: AUTHOR.name,
  GIT_AUTHOR_EMAIL: AUTHOR.email,
  GIT_COMMITTER_NAME: AUTHOR.name,
  GIT_COMMITTER_EMAIL: AUTHOR.email,
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_CONFIG_NOSYSTEM: "1",
};

/** git as an operator runs it; returns what it printed. */
export function operatorGit(folder: string, ...args: readonly string[]): string {
  return execFileSync("git", ["-c", "safe.directory=*", ...args], {
    cwd: folder,
    env: { ...process.env, ...IDENTITY },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  }).trim();
}

/** A clone to edit in: `main` is checked out and holds the given files in one commit. */
export function workTree(folder: string, files: Readonly<Record<string, string>>): void {
  mkdirSync(folder, { recursive: true });
  operatorGit(folder, "init", "--quiet", "--initial-branch=main");
  for (const [path, text] of Object.entries(files)) writeFile(join(folder, path), text);
  operatorGit(folder, "add", "--all");
  const date = `@${AT / 1_000} +0000`;
  execFileSync("git", ["-c", "safe.directory=*", "commit", "--quiet", "--allow-empty", "--message=Begin"], {
    cwd: folder,
    env: { ...process.env, ...IDENTITY, GIT_AUTHOR_DATE: date, GIT_COMMITTER_DATE: date },
  });
}

/** Bare repositories by the files in their one commit: each is made by git once, and copied from then on. */
const bareTemplates = new Map<string, string>();
process.once("exit", () => {
  for (const folder of bareTemplates.values()) rmSync(folder, { recursive: true, force: true });
});

function bareTemplate(files: Readonly<Record<string, string>>): string {
  const key = JSON.stringify(files);
  let folder = bareTemplates.get(key);
  if (folder === undefined) {
    folder = mkdtempSync(join(tmpdir(), "drawbridge repository "));
    bareTemplates.set(key, folder);
    workTree(join(folder, "seed"), files);
    operatorGit(folder, "init", "--quiet", "--bare", "--initial-branch=main", "bare");
    operatorGit(join(folder, "seed"), "push", "--quiet", "../bare", "main");
  }
  return join(folder, "bare");
}

/** A bare repository whose branch `main` holds the given files in one commit. */
export async function bareRepository(
  folder: string,
  files: Readonly<Record<string, string>>,
): Promise<Repository> {
  cpSync(bareTemplate(files), folder, { recursive: true });
  return Repository.open(folder, "main");
}

/** Paths that differ between two revisions. */
export function changedPaths(repository: Repository, from: string, to: string): readonly string[] {
  const args = ["diff-tree", "-r", "-z", "--no-renames", "--name-only", from, to];
  return operatorGit(repository.path, ...args)
    .split("\0")
    .filter((path) => path !== "");
}

/** Commits changes on top of the branch, as an operator's push would. */
export async function commitOnTop(
  repository: Repository,
  changes: Changes,
  options: { readonly message?: string; readonly signingKeyFile?: string } = {},
): Promise<Revision> {
  const head = await repository.requireHead();
  const revision = await writeCommit(repository, {
    parents: [head],
    changes,
    message: options.message ?? "Change",
    author: AUTHOR,
    at: AT,
    signingKeyFile: options.signingKeyFile,
  });
  await repository.advance(head, revision, "test");
  return revision;
}

/** An SSH key pair; returns the private key's file and the line for an allowed signers file. */
export function signingKey(folder: string, name: string): { file: string; allowed: string } {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, name);
  execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file]);
  const [type, key] = readFileSync(`${file}.pub`, "utf8").split(" ");
  return { file, allowed: `${name}@a.test namespaces="git" ${type} ${key}\n` };
}

export function allowedSigners(file: string, ...lines: readonly string[]): string {
  writeFileSync(file, lines.join(""));
  return file;
}
