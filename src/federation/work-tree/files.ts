// A work tree of the organisation's repository: its registry is read, its rendered files are compared and written.
// Invariants: no symbolic link is followed, so nothing outside the tree is read or written; a file is replaced whole;
// only the paths that the caller renders are written or removed.
import { lstatSync, readdirSync, rmSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";
import { readInput } from "../../runtime/read-input.ts";
import { PUBLIC, writeWhole } from "../../runtime/write-file.ts";
import { READMISSIONS } from "../registry/readmission-record.ts";

export interface RenderedChange {
  readonly change: "added" | "changed" | "removed";
  readonly path: string;
}

/** The registry of a work tree, by path in the repository. @throws DrawbridgeError `config_unreadable` */
export function readRegistryFolder(directory: string): ReadonlyMap<string, string> {
  const files = readFolder(directory, "registry");
  if (files.size > 0) return files;
  throw new DrawbridgeError("config_unreadable", `${directory} has no registry`, {
    hint: "Name the work tree of the organisation's repository: it holds registry/organisation.yaml.",
  });
}

export function readRenderedFiles(directory: string): ReadonlyMap<string, string> {
  return new Map([...readFolder(directory, "rendered"), ...readFolder(directory, "kubernetes")]);
}

export function readReadmissions(directory: string): ReadonlyMap<string, string> {
  return readFolder(directory, READMISSIONS);
}

export function compareRendered(
  found: ReadonlyMap<string, string>,
  rendered: ReadonlyMap<string, string>,
): readonly RenderedChange[] {
  return [...new Set([...found.keys(), ...rendered.keys()])].sort().flatMap((path): RenderedChange[] => {
    const [old, wanted] = [found.get(path), rendered.get(path)];
    if (old === wanted) return [];
    return [{ change: old === undefined ? "added" : wanted === undefined ? "removed" : "changed", path }];
  });
}

export function writeRendered(
  directory: string,
  rendered: ReadonlyMap<string, string>,
  changes: readonly RenderedChange[],
): void {
  for (const { path } of changes) {
    const text = rendered.get(path);
    if (text === undefined) rmSync(join(directory, path));
    else writeWhole(join(directory, path), text, PUBLIC);
  }
}

function readFolder(directory: string, folder: string): Map<string, string> {
  const root = join(directory, folder);
  const stat = lstatSync(root, { throwIfNoEntry: false });
  if (stat === undefined) return new Map();
  if (!stat.isDirectory()) throw unreadable(folder, "is no folder");
  const files = new Map<string, string>();
  for (const entry of readdirSync(root, { recursive: true, withFileTypes: true })) {
    const file = join(entry.parentPath, entry.name);
    const path = relative(directory, file).split(sep).join("/");
    if (entry.isFile()) files.set(path, readInput(file, HINT).toString("utf8"));
    else if (!entry.isDirectory()) throw unreadable(path, "is neither a file nor a folder");
  }
  return files;
}

const HINT = "Put a plain file or folder there that this user may read; links are not followed.";

function unreadable(path: string, what: string): DrawbridgeError {
  return new DrawbridgeError("config_unreadable", `${path} ${what}`, { hint: HINT });
}
