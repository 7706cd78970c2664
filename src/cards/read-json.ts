// JSON as cards, their signatures' headers and key sets are read: strictly, within a bound.
import type { Json } from "../domain/json.ts";
import { JsonFault, parseStrictJson } from "../domain/strict-json.ts";
import { CardFault } from "./reasons.ts";

export const CARD_BYTES_MAX = 256 * 1024;

/** @throws CardFault for the first thing that strict JSON does not allow */
export function readCardJson(bytes: Uint8Array, bytesMax: number = CARD_BYTES_MAX): Json {
  try {
    return parseStrictJson(bytes, bytesMax);
  } catch (fault) {
    if (fault instanceof JsonFault) throw new CardFault(fault.reason, fault.at);
    throw fault;
  }
}
