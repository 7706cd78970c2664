// Where a private file may lie, and who may read it.
// Invariants: never below a folder that is under version control, on the path as written or as resolved; readable
// by its owner alone, in a folder that nobody else can put a file into; every problem is reported at once.
import { existsSync, lstatSync, realpathSync, type Stats, statSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import process from "node:process";

export interface LocationProblem {
  readonly rule: string;
  readonly message: string;
  readonly hint: string;
}

const CONTROL_FOLDERS = [".git", ".hg", ".svn", ".jj", ".bzr", "_darcs", ".pijul", ".fslckout", "CVS"];
const ELSEWHERE = "Keep the file outside every work tree, in a folder of its owner's alone.";
const misplaced = (rule: string, message: string): LocationProblem => ({ rule, message, hint: ELSEWHERE });

export function inspectLocation(path: string) {
  const file = realPath(resolve(path));
  const stats = statsOf(() => lstatSync(file));
  const problems = [
    ...versionControlProblems(path),
    ...(stats === undefined ? [] : fileProblems(stats)),
    ...folderProblems(dirname(file)),
  ];
  return { file, exists: stats !== undefined, problems };
}

/** Where the path, as written or as resolved, lies below a folder under version control: either may be committed. */
export function versionControlProblems(path: string): LocationProblem[] {
  const asked = resolve(path);
  const folders = new Set([...ancestors(asked), ...ancestors(realPath(asked))].map(realPath));
  return [...folders].flatMap((folder) => {
    const isThere = (name: string) => existsSync(join(folder, name));
    const control = CONTROL_FOLDERS.find(isThere);
    if (control !== undefined)
      return misplaced("in_work_tree", `lies in a work tree: ${folder} has ${control}`);
    const isBareRepository = ["HEAD", "objects", "refs"].every(isThere);
    return isBareRepository ? misplaced("in_repository", `lies in a repository: ${folder}`) : [];
  });
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(realPath(parent), basename(path));
  }
}

function ancestors(path: string): string[] {
  const folder = dirname(path);
  return folder === dirname(folder) ? [folder] : [folder, ...ancestors(folder)];
}

function fileProblems(stats: Stats): LocationProblem[] {
  const isFile = stats.isFile();
  const mode = stats.mode & 0o777;
  const user = process.getuid?.();
  const problems: LocationProblem[] = [];
  if (!isFile) problems.push(misplaced("not_a_file", "is no regular file"));
  if (isFile && (mode & 0o177) !== 0) {
    const message = `has mode 0${mode.toString(8)}, and 0600 is the widest allowed`;
    const hint = "chmod 600 the file; and ask who may have read it until now.";
    problems.push({ rule: "permissions", message, hint });
  }
  if (isFile && stats.nlink > 1)
    problems.push(misplaced("hard_link", "has another name elsewhere (a hard link)"));
  if (user !== undefined && stats.uid !== user) {
    const hint = "Run this as the user that the file belongs to.";
    problems.push({ rule: "owner", message: "belongs to another user", hint });
  }
  return problems;
}

/** Nobody else may put another file in the file's place, nor another folder in its folder's. */
function folderProblems(folder: string): LocationProblem[] {
  const found = [folder, ...ancestors(folder)].filter((one, index) => {
    const mode = statsOf(() => statSync(one))?.mode ?? 0;
    // In a folder above, the sticky bit (as of /tmp) keeps others from renaming what is not theirs.
    return (mode & 0o022) !== 0 && (index === 0 || (mode & 0o1000) === 0);
  });
  return [...new Set(found)].map((one) => ({
    rule: "folder_writable",
    message: `others may write to the folder ${one}`,
    hint: "Keep the file in a folder of mode 0700.",
  }));
}

function statsOf(read: () => Stats): Stats | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}
