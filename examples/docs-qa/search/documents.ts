// Reading the folder of documents. Invariants: only Markdown below the folder is read, links that lead
// out of it are not followed, and what is read is bounded.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative, sep } from "node:path";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import { type Section, splitSections } from "./sections.ts";

const MiB = 1024 * 1024;
const FILES_MAX = 5_000;
const FILE_BYTES_MAX = 4 * MiB;

function markdownFiles(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && /\.(?:md|markdown)$/i.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name))
    .filter(
      (path) =>
        !relative(folder, path)
          .split(sep)
          .some((part) => part.startsWith(".") || part === "node_modules"),
    )
    .sort();
}

/**
 * All sections of all Markdown files below a folder, in the order of their paths.
 * @throws DrawbridgeError `config_unreadable` when the folder cannot be read
 */
export function readDocuments(folder: string): Section[] {
  let files: string[];
  try {
    files = markdownFiles(folder);
  } catch (cause) {
    throw new DrawbridgeError("config_unreadable", `cannot read the folder of documents ${folder}`, {
      hint: "Check `documents` in the configuration, and that this user may read the folder.",
      cause,
    });
  }
  return files
    .slice(0, FILES_MAX)
    .filter((path) => statSync(path).size <= FILE_BYTES_MAX)
    .flatMap((path) =>
      splitSections(relative(folder, path).split(sep).join("/"), readFileSync(path, "utf8")),
    );
}
