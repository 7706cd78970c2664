// Where a private record may lie, and who may read it.
// Invariants: never inside anything that is under version control, whichever way one gets there; readable by
// its owner alone, in a folder that nobody else can put a file into; all that is wrong is told at once.
import { existsSync, lstatSync, realpathSync, type Stats, statSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import process from "node:process";
import type { RecordProblem } from "./problems.ts";

export interface RecordPlace {
  /** The file itself, symbolic links resolved. */
  readonly file: string;
  readonly exists: boolean;
}

/** What makes a folder the top of something under version control. */
const CONTROL_FOLDERS = [".git", ".hg", ".svn", ".jj", ".bzr", "_darcs", ".pijul", ".fslckout", "CVS"];

/** Where the file lies, and all that is wrong with that place. */
export function inspectPlace(path: string): {
  readonly place: RecordPlace;
  readonly problems: readonly RecordProblem[];
} {
  const asked = resolve(path);
  const file = realPath(asked);
  const stats = statOf(file);
  const problems = [
    ...versionControlled(asked, file),
    ...(stats === undefined ? [] : fileProblems(stats)),
    ...folderProblems(dirname(file)),
  ];
  return { place: { file, exists: stats !== undefined }, problems };
}

/** The path with every symbolic link resolved, as far as it exists. */
function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = dirname(path);
    return parent === path ? path : join(realPath(parent), basename(path));
  }
}

function statOf(file: string): Stats | undefined {
  try {
    return lstatSync(file);
  } catch {
    return undefined;
  }
}

/** Both the path that was written and the one it leads to: either may be committed. */
function versionControlled(asked: string, file: string): RecordProblem[] {
  const folders = new Set([...ancestors(asked), ...ancestors(file)].map(realPath));
  const problems: RecordProblem[] = [];
  for (const folder of folders) {
    const control = CONTROL_FOLDERS.find((name) => existsSync(join(folder, name)));
    if (control !== undefined) {
      problems.push(placeProblem("record.in_work_tree", `lies in a work tree: ${folder} has ${control}`));
    } else if (isBareRepository(folder)) {
      problems.push(placeProblem("record.in_repository", `lies in a repository: ${folder}`));
    }
  }
  return problems;
}

function isBareRepository(folder: string): boolean {
  return ["HEAD", "objects", "refs"].every((name) => existsSync(join(folder, name)));
}

function ancestors(path: string): string[] {
  const found: string[] = [];
  for (let folder = dirname(path); ; folder = dirname(folder)) {
    found.push(folder);
    if (dirname(folder) === folder) return found;
  }
}

function fileProblems(stats: Stats): RecordProblem[] {
  const problems: RecordProblem[] = [];
  if (!stats.isFile()) problems.push(placeProblem("record.not_a_file", "is no regular file"));
  const mode = stats.mode & 0o777;
  if (stats.isFile() && (mode & 0o177) !== 0) {
    problems.push({
      ...placeProblem("record.permissions", `has mode 0${mode.toString(8)}, and 0600 is the widest allowed`),
      hint: "chmod 600 the file; and ask who may have read it until now.",
    });
  }
  if (stats.isFile() && stats.nlink > 1) {
    problems.push(placeProblem("record.hard_link", "has another name elsewhere (a hard link)"));
  }
  const user = process.getuid?.();
  if (user !== undefined && stats.uid !== user) {
    problems.push({
      ...placeProblem("record.owner", "belongs to another user"),
      hint: "Run this as the user that the record belongs to.",
    });
  }
  return problems;
}

/** Nobody else may put another file in the record's place, nor another folder in its folder's. */
function folderProblems(folder: string): RecordProblem[] {
  const found = [folder, ...ancestors(folder)].filter((one, index) => {
    let mode: number;
    try {
      mode = statSync(one).mode;
    } catch {
      return false;
    }
    // In a folder above, the sticky bit (as of /tmp) keeps others from renaming what is not theirs.
    return (mode & 0o022) !== 0 && (index === 0 || (mode & 0o1000) === 0);
  });
  return [...new Set(found)].map((one) => ({
    ...placeProblem("record.folder_writable", `others may write to the folder ${one}`),
    hint: "Keep the record in a folder of mode 0700.",
  }));
}

function placeProblem(rule: string, message: string): RecordProblem {
  return {
    ...{ rule, field: "", line: 0, message },
    hint: "Keep the record outside every work tree, in a folder of its owner's alone.",
  };
}
