// What the commands on cards share: how the file of a card is read, and how a fault in it is printed.
import { statSync } from "node:fs";
import { CARD_BYTES_MAX } from "../../cards/reject-reasons.ts";
import { readInput } from "../../runtime/read-input.ts";

/** A card's bytes, or undefined when it cannot be read. A file too large to be a card is cut behind the limit. */
export function readCardFile(path: string): Uint8Array | undefined {
  try {
    if (statSync(path).size > CARD_BYTES_MAX) return new Uint8Array(CARD_BYTES_MAX + 1);
    return readInput(path);
  } catch {
    return undefined;
  }
}

export function findingLine(
  card: string,
  { at, rule, message }: Record<"at" | "rule" | "message", string>,
): string {
  return `${card}: ${at || "/"}: ${rule}: ${message}`;
}
