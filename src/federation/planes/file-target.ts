// A rendered file at the place where a real part reads it: put there, and compared with what was put there.
// Invariants: the file is whole at every instant; one that says the right thing already is not touched, so
// that nobody who watches it reloads for nothing; a difference is reported by digest, never by text; a pipe or a
// device in its place is replaced and never waited for.
import { chmodSync, statSync } from "node:fs";
import { sha256Tagged } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { readIfPresent, writeWhole } from "../../runtime/write-file.ts";

/**
 * Brings a file to a text and a mode.
 * @returns whether its text changed
 * @throws DrawbridgeError `config_invalid` when a folder is in the way
 */
export function applyFile(target: string, text: string, mode: number): boolean {
  if (kindOf(target) === "folder") {
    throw new DrawbridgeError("config_invalid", `${target} is a folder, where a file is to be`, {
      hint: "Move the folder away, or correct the path in federation.yaml.",
    });
  }
  if (standingText(target) !== text) {
    writeWhole(target, text, mode);
    return true;
  }
  if ((statSync(target).mode & 0o777) !== mode) chmodSync(target, mode);
  return false;
}

/** The kind of file at a path, links followed. */
function kindOf(path: string): "file" | "folder" | "other" | undefined {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return undefined;
  return stat.isFile() ? "file" : stat.isDirectory() ? "folder" : "other";
}

/** The text at a target; empty for anything but a file, undefined when there is nothing. */
export function standingText(target: string): string | undefined {
  const kind = kindOf(target);
  return kind === "folder" || kind === "other" ? "" : readIfPresent(target);
}

/** How a target differs from the text that was written there; spread into a plane's `Drift`. */
export interface FileDrift {
  /** The target's path. */
  readonly subject: string;
  readonly kind: "edited" | "missing";
  /** SHA-256, tagged, of the target's text; null when there is no file. */
  readonly found: string | null;
  /** The reconciler keeps a copy of this file before it is overwritten; absent for anything but a file. */
  readonly file?: string;
}

/** Compares a target with the text that should stand there. */
export function fileDrift(target: string, desiredText: string): FileDrift | undefined {
  const kind = kindOf(target);
  if (kind === "folder" || kind === "other") return { subject: target, kind: "edited", found: null };
  const text = readIfPresent(target);
  if (text === undefined) return { subject: target, kind: "missing", found: null, file: target };
  if (text === desiredText) return undefined;
  return { subject: target, kind: "edited", found: sha256Tagged(text), file: target };
}
