// Reads the JSON body of a homeserver's answer without trusting its length or its form.

const BODY_BYTES_MAX = 64 * 1024 * 1024;

/** The body if it is a JSON object within the bound, else an empty one. */
export async function readBoundedJson(
  body: AsyncIterable<Uint8Array> & { destroy(): unknown },
  bytesMax = BODY_BYTES_MAX,
): Promise<Readonly<Record<string, unknown>>> {
  const value = await readBoundedValue(body, bytesMax);
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Record<string, unknown>)
    : {};
}

/** The body as parsed JSON; undefined when it is longer than the bound, or no JSON. */
export async function readBoundedValue(
  body: AsyncIterable<Uint8Array> & { destroy(): unknown },
  bytesMax = BODY_BYTES_MAX,
): Promise<unknown> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    length += chunk.length;
    if (length > bytesMax) {
      body.destroy();
      return undefined;
    }
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString("utf8"));
  } catch {
    return undefined;
  }
}
