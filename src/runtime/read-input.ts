// Reading a file that an operator names.
import { closeSync, fstatSync, openSync, readFileSync } from "node:fs";
import { isatty } from "node:tty";
import { DrawbridgeError, type ErrorCode } from "../domain/errors.ts";

/** A file's bytes. @throws DrawbridgeError `config_unreadable`, or with another code, when it cannot be read */
export function readInput(
  file: string,
  hint = "Check the path and that this user may read the file.",
  code: ErrorCode = "config_unreadable",
): Buffer {
  let handle: number | undefined;
  try {
    handle = openSync(file, "r");
    // Some devices, such as /dev/zero, never come to an end; a person at a terminal does.
    if (!fstatSync(handle).isCharacterDevice() || isatty(handle)) return readFileSync(handle);
  } catch (cause) {
    const reason = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    throw new DrawbridgeError(code, `cannot read ${file}: ${reason}`, { hint, cause });
  } finally {
    if (handle !== undefined) closeSync(handle);
  }
  throw new DrawbridgeError(code, `cannot read ${file}: it is a device`, { hint });
}
