// What the card commands share: reading cards and key sets that an operator names, and showing text that a
// stranger wrote.
import { readFileSync, statSync } from "node:fs";
import { importJwkSet, type PinnedKey } from "../../cards/pinned-keys.ts";
import { CARD_BYTES_MAX } from "../../cards/read-json.ts";
import { DrawbridgeError } from "../../domain/errors.ts";

/** A file's bytes, or undefined when it cannot be read. A file too large to be a card is cut behind the limit. */
export function readCardFile(path: string): Uint8Array | undefined {
  try {
    if (statSync(path).size > CARD_BYTES_MAX) return new Uint8Array(CARD_BYTES_MAX + 1);
    return readFileSync(path);
  } catch {
    return undefined;
  }
}

/**
 * A file's bytes.
 * @throws DrawbridgeError `config_unreadable`
 */
export function requireFile(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    throw new DrawbridgeError("config_unreadable", `cannot read ${path}: ${code}`, {
      hint: "Check the path and that this user may read the file.",
      cause,
    });
  }
}

/** @throws DrawbridgeError `config_unreadable` or `config_invalid` */
export async function readJwkSet(path: string): Promise<readonly PinnedKey[]> {
  return await importJwkSet(requireFile(path), path);
}

// Controls (C1, DEL), and the marks that reorder or hide text on a terminal.
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** A stranger's text as a quoted string that is safe on a terminal, in JSON and in YAML. */
export function quoted(text: string): string {
  return JSON.stringify(text).replace(UNPRINTABLE, (mark) =>
    [...Array(mark.length).keys()]
      .map((index) => `\\u${mark.charCodeAt(index).toString(16).padStart(4, "0")}`)
      .join(""),
  );
}
