// Reading a request's JSON body, bounded.
import type { IncomingMessage } from "node:http";

const MiB = 1024 * 1024;
const BODY_BYTES_MAX = 1 * MiB;

export type Body =
  | { readonly kind: "json"; readonly value: unknown }
  | { readonly kind: "not_json" }
  | { readonly kind: "too_large" };

/** Whether the body is declared as JSON, or as nothing at all. */
export function hasJsonMediaType(request: IncomingMessage, allowed: readonly string[]): boolean {
  const mediaType = request.headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase();
  return mediaType === undefined || allowed.includes(mediaType);
}

/** Reads to the end, or to the bound. An empty body is an empty object. */
export async function readBody(request: IncomingMessage): Promise<Body> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > BODY_BYTES_MAX) return { kind: "too_large" };
    chunks.push(chunk);
  }
  if (length === 0) return { kind: "json", value: {} };
  try {
    return { kind: "json", value: JSON.parse(Buffer.concat(chunks).toString("utf8")) };
  } catch {
    return { kind: "not_json" };
  }
}
