// Reading the cards and key sets that an operator names on the command line.
import { readFileSync, statSync } from "node:fs";
import { importJwkSet, type PinnedKey } from "../../cards/pinned-keys.ts";
import { CARD_BYTES_MAX } from "../../cards/reject-reasons.ts";
import { readInput } from "../../runtime/read-input.ts";

/** A card's bytes, or undefined when it cannot be read. A file too large to be a card is cut behind the limit. */
export function readCardFile(path: string): Uint8Array | undefined {
  try {
    if (statSync(path).size > CARD_BYTES_MAX) return new Uint8Array(CARD_BYTES_MAX + 1);
    return readFileSync(path);
  } catch {
    return undefined;
  }
}

/** @throws DrawbridgeError `config_unreadable` or `config_invalid` */
export function readJwkSet(path: string): Promise<readonly PinnedKey[]> {
  return importJwkSet(readInput(path), path);
}
