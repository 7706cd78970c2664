// HTTP as every client and server here uses it: exchanges of JSON, bodies read within a bound, `Retry-After`, the end of a
// server. Invariant: no redirect is followed, so that a token goes to the address that it is meant for alone.
import { once } from "node:events";
import type { IncomingHttpHeaders, Server } from "node:http";
import { Agent, type Dispatcher, request } from "undici";
import type { Clock } from "../domain/clock.ts";
import { parseUntrustedJson } from "../domain/strict-json.ts";
import { lookupBy, resolveShared } from "./name-lookups.ts";

/**
 * Connections by HTTP/1.1. Over HTTP/2 undici sends a request that was refused once more by itself, and all further ones on
 * a connection that has died unnoticed.
 */
export const httpAgent = ({
  connect,
  ...options
}: Omit<Agent.Options, "connect"> & { connect?: object } = {}) =>
  new Agent({ ...options, connect: { lookup: lookupBy(resolveShared), ...connect }, allowH2: false });

/** For requests that need no connections of their own. */
export const SHARED_AGENT = httpAgent();

export type Body = AsyncIterable<Uint8Array> & { destroy(): unknown };

/** The body; undefined when it is longer than the bound. */
export async function readBoundedBytes(body: Body, bytesMax: number): Promise<Buffer | undefined> {
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
  return Buffer.concat(chunks);
}

export async function readBounded(body: Body, bytesMax: number): Promise<string | undefined> {
  return (await readBoundedBytes(body, bytesMax))?.toString("utf8");
}

const BODY_BYTES_MAX = 64 * 1024 * 1024;

export interface JsonRequest {
  readonly method?: "GET" | "PUT" | "POST" | "DELETE";
  readonly token?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Plain data, sent as JSON; or a text that `headers` names the type of. */
  readonly body?: unknown;
  /** For the whole exchange. */
  readonly timeoutMs: number;
  /** Whether a refusal stands by its status alone: the body of another status than 2xx is undefined where it cannot be read. */
  readonly isRefusedByStatus?: boolean;
  readonly bytesMax?: number;
  readonly dispatcher?: Dispatcher;
}

/** The body of a refusal that stands by its status is waited for this long. */
const REFUSAL_BODY_MS = 1_000;

/** `body` is undefined when it is longer than the bound, or no JSON, whatever the status. @throws what the network throws */
export async function requestJson(
  url: string,
  {
    method = "GET",
    token,
    headers,
    body,
    timeoutMs,
    isRefusedByStatus,
    bytesMax,
    dispatcher = SHARED_AGENT,
  }: JsonRequest,
): Promise<{ readonly status: number; readonly headers: IncomingHttpHeaders; readonly body: unknown }> {
  const response = await request(url, {
    method,
    headers: {
      accept: "application/json",
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { "content-type": "application/json" }),
      ...headers,
    },
    body: body === undefined ? null : typeof body === "string" ? body : JSON.stringify(body),
    signal: AbortSignal.timeout(timeoutMs),
    dispatcher,
  });
  const { statusCode: status, headers: answered, body: stream } = response;
  const reading = readBounded(stream, bytesMax ?? BODY_BYTES_MAX).then((text) =>
    parseUntrustedJson(text ?? ""),
  );
  if (isRefusedByStatus !== true || (status >= 200 && status <= 299))
    return { status, headers: answered, body: await reading };
  const timer = setTimeout(() => stream.destroy(), REFUSAL_BODY_MS);
  const explained = await reading.catch(() => undefined).finally(() => clearTimeout(timer));
  return { status, headers: answered, body: explained };
}

/** The `Authorization` of a client (RFC 6749, section 2.3.1: both parts are form-encoded before they are joined). */
export function basicAuthorization(clientId: string, secret: string): string {
  const encoded = [clientId, secret].map((part) => String(new URLSearchParams([["", part]])).slice(1));
  return `Basic ${Buffer.from(encoded.join(":")).toString("base64")}`;
}

/** Milliseconds that a `Retry-After` header asks for (RFC 9110, section 10.2.3): seconds or a date; of two the first. */
export function retryAfterMs(headers: string | string[] | undefined, now: number): number | undefined {
  const [header] = [headers].flat();
  if (header === undefined) return undefined;
  if (/^[0-9]{1,9}$/.test(header.trim())) return Number(header.trim()) * 1_000;
  const date = Date.parse(header);
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}

/** Resolves when the server listens. @throws what the system answers, such as that the port is taken */
export async function listening(server: Server, at: { host: string; port: number }): Promise<void> {
  server.listen(at.port, at.host);
  await once(server, "listening");
}

const GRACE_MS = 5_000;
/** A connection is idle only some time after its last answer, so idle connections are closed again and again. */
const CLOSE_INTERVAL_MS = 20;

/** Stops listening; resolves when every connection is closed: idle ones at once, those with requests after 5 s at most. */
export async function closeServer(server: Server, clock: Clock): Promise<void> {
  const closed = new Promise((resolve) => server.close(() => resolve("closed")));
  const deadline = clock.now() + GRACE_MS;
  do {
    if (clock.now() >= deadline) server.closeAllConnections();
    else server.closeIdleConnections();
  } while ((await Promise.race([closed, clock.sleep(CLOSE_INTERVAL_MS)])) !== "closed");
}
