// The JSON Canonicalization Scheme, RFC 8785: the bytes that signatures and digests are over.
// ECMAScript's own serialization of strings and numbers is the one the RFC prescribes (3.2.2); what is
// left to do is the order of members (3.2.3, by UTF-16 code units, which is what sort() compares).
import type { Json } from "./json.ts";

/**
 * The canonical text of a value; its canonical bytes are this text in UTF-8.
 * @throws RangeError for what has no canonical form: a number that is not finite, a lone surrogate
 */
export function canonicalize(value: Json): string {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new RangeError("a JSON number is finite");
    return JSON.stringify(value);
  }
  if (typeof value === "string") {
    if (!value.isWellFormed()) throw new RangeError("a JSON string has no lone surrogate");
    return JSON.stringify(value);
  }
  if (isArray(value)) return `[${value.map(canonicalize).join(",")}]`;
  const members = Object.keys(value)
    .sort()
    .map((name) => `${canonicalize(name)}:${canonicalize(value[name] ?? null)}`);
  return `{${members.join(",")}}`;
}

function isArray(value: Json): value is readonly Json[] {
  return Array.isArray(value);
}
