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
