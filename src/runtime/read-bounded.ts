// Reading an answer's body without holding more of it than a bound, however much the other side sends.

export type Body = AsyncIterable<Uint8Array> & { destroy(): unknown };

/** The body as text; undefined when it is longer than the bound. */
export async function readBounded(body: Body, bytesMax: number): Promise<string | undefined> {
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
  return Buffer.concat(chunks).toString("utf8");
}

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
