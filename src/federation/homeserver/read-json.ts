// Reads the JSON body of a homeserver's answer without trusting its length or its form.
import { type Body, readBounded } from "../../runtime/read-bounded.ts";

const BODY_BYTES_MAX = 64 * 1024 * 1024;

/** The body if it is a JSON object within the bound, else an empty one. */
export async function readBoundedJson(
  body: Body,
  bytesMax = BODY_BYTES_MAX,
): Promise<Readonly<Record<string, unknown>>> {
  const value = await readBoundedValue(body, bytesMax);
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : {};
}

/** The body as parsed JSON; undefined when it is longer than the bound, or no JSON. */
export async function readBoundedValue(body: Body, bytesMax = BODY_BYTES_MAX): Promise<unknown> {
  const text = await readBounded(body, bytesMax);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
