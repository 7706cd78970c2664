// Reading a file that an operator names.
import { readFileSync } from "node:fs";
import { DrawbridgeError, type ErrorCode } from "../domain/errors.ts";

/** A file's bytes. @throws DrawbridgeError `config_unreadable`, or with another code, when it cannot be read */
export function readInput(
  file: string,
  hint = "Check the path and that this user may read the file.",
  code: ErrorCode = "config_unreadable",
): Buffer {
  try {
    return readFileSync(file);
  } catch (cause) {
    const reason = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    throw new DrawbridgeError(code, `cannot read ${file}: ${reason}`, { hint, cause });
  }
}
