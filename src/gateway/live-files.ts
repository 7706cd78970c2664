// Putting rendered files in place. Invariants: a file Envoy watches is replaced by a rename and never
// written in place, because any rename in that folder makes Envoy read all of them; a file whose content
// is unchanged is left alone, because a new listener drops the issuer's key set.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

/** Temporary files stand outside the watched folder, on the same file system. */
const STAGING = "staging";

/** Writes `content` to `directory/path` unless it stands there already; true when it was written. */
export function placeFile(directory: string, path: string, content: string): boolean {
  const target = join(directory, path);
  if (readIfPresent(target) === content) return false;
  const staged = join(directory, STAGING, path.replaceAll("/", "_"));
  mkdirSync(dirname(staged), { recursive: true });
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(staged, content, { mode: 0o644 });
  renameSync(staged, target);
  return true;
}

/**
 * Replaces a file in a folder that another program watches and reads whole: staged as a dot file, which such
 * programs pass over.
 */
export function placeWatched(file: string, content: string): void {
  if (readIfPresent(file) === content) return;
  const staged = join(dirname(file), `.${basename(file)}.new`);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(staged, content, { mode: 0o644 });
  renameSync(staged, file);
}

function readIfPresent(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
