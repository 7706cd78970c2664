// Canonical JSON, the bytes that signatures and digests are over: RFC 8785 for what Drawbridge signs, and the Matrix
// specification's own form for what homeservers sign.
import { isList, type Json } from "./json.ts";

/** Characters that stand for themselves: most strings of what is signed have no other ones. */
const PLAIN = /^[ !#-[\]-~]*$/;

/**
 * The canonical text (RFC 8785). ECMAScript serializes strings and numbers as 3.2.2 prescribes; members are ordered by
 * UTF-16 code units (3.2.3), as sort() compares. @throws RangeError for a number that is not finite, a lone surrogate
 */
export function canonicalize(value: Json): string {
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw new RangeError("a JSON number is finite");
    return JSON.stringify(value);
  }
  if (typeof value === "string") {
    if (PLAIN.test(value)) return `"${value}"`;
    if (!value.isWellFormed()) throw new RangeError("a JSON string has no lone surrogate");
    return JSON.stringify(value);
  }
  if (isList(value)) return `[${value.map(canonicalize).join(",")}]`;
  let members = "";
  for (const name of Object.keys(value).sort()) {
    members += `${members === "" ? "" : ","}${canonicalize(name)}:${canonicalize(value[name] ?? null)}`;
  }
  return `{${members}}`;
}

/** Canonical JSON as the Matrix specification (appendices) has it, of objects, arrays, strings and integers. */
export function matrixCanonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(matrixCanonicalJson).join(",")}]`;
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, member]) => `${JSON.stringify(key)}:${matrixCanonicalJson(member)}`);
    return `{${members.join(",")}}`;
  }
  return JSON.stringify(value);
}
