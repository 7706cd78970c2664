// Reads what is appended to a file of lines from now on.
import { closeSync, openSync, readSync, statSync } from "node:fs";

/** Each call returns the whole lines that were appended since the last one. */
export function tailOf(file: string): () => string[] {
  let position = sizeOf(file);
  let rest = "";
  return () => {
    const size = sizeOf(file);
    if (size < position) {
      position = 0; // Replaced by a new file.
      rest = "";
    }
    if (size === position) return [];
    const chunk = Buffer.alloc(size - position);
    const descriptor = openSync(file, "r");
    try {
      position += readSync(descriptor, chunk, 0, chunk.length, position);
    } finally {
      closeSync(descriptor);
    }
    const lines = (rest + chunk.toString("utf8")).split("\n");
    rest = lines.pop() ?? "";
    return lines.filter((line) => line !== "");
  };
}

function sizeOf(file: string): number {
  try {
    return statSync(file).size;
  } catch {
    return 0;
  }
}
