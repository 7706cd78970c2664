// Requests of the probes. Invariants: no redirect is followed, an answer is read up to a bound, and what a
// request needs (tokens, secrets) is held in memory alone.
import { request } from "undici";
import type { Answer } from "./answers.ts";

const TIMEOUT_MS = 20_000;
const BODY_BYTES_MAX = 64 * 1024;

interface RequestOptions {
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** One request; any status is an answer. @throws whatever the network throws */
export async function ask(
  url: string,
  method: "GET" | "POST" | "PUT",
  options: RequestOptions = {},
): Promise<Answer> {
  const response = await request(url, {
    method,
    headers: { ...options.headers },
    body: options.body ?? null,
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  const contentType = response.headers["content-type"];
  return {
    status: response.statusCode,
    contentType: typeof contentType === "string" ? contentType : "",
    text: await headOf(response.body),
  };
}

/** The beginning of a body; what is longer is not waited for. */
async function headOf(body: AsyncIterable<Uint8Array> & { destroy(): unknown }): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of body) {
    chunks.push(chunk);
    length += chunk.length;
    if (length < BODY_BYTES_MAX) continue;
    body.destroy();
    break;
  }
  return Buffer.concat(chunks).subarray(0, BODY_BYTES_MAX).toString("utf8");
}
