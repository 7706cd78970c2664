// The connections to agents and issuers: kept alive, never redirected, closed with the bridge.
// Invariant: a connection to an address that is not public is made, and used, only for a request that may go there.
import { lookup } from "node:dns";
import { Agent, request } from "undici";
import { assertPublicHost, publicLookup } from "../../../runtime/public-addresses.ts";

export interface AgentHttpInit {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  readonly signal: AbortSignal | null;
  /** Whether the host may be at a private, loopback or link-local address. */
  readonly mayBePrivate: boolean;
}

export interface AgentHttpResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly body: ReadableStream<Uint8Array> | null;
}

export interface AgentHttp {
  /** Makes one request. Rejects with the connection's error, whose `code` says what happened. */
  fetch(url: string, init: AgentHttpInit): Promise<AgentHttpResponse>;
  close(): Promise<void>;
}

const CONNECT_TIMEOUT_MS = 10_000;

/**
 * Real connections. Time limits on an exchange are its caller's, who knows what is streamed.
 * @param resolve how names are looked up
 */
export function createAgentHttp(resolve: typeof lookup = lookup): AgentHttp {
  const connect = { timeout: CONNECT_TIMEOUT_MS };
  const unlimited = { headersTimeout: 0, bodyTimeout: 0 };
  const anywhere = new Agent({ ...unlimited, connect });
  const publicOnly = new Agent({ ...unlimited, connect: { ...connect, lookup: publicLookup(resolve) } });
  return {
    async fetch(url, { method, headers, body, signal, mayBePrivate }) {
      if (!mayBePrivate) assertPublicHost(url);
      const dispatcher = mayBePrivate ? anywhere : publicOnly;
      const response = await request(url, { method, headers, body, signal, dispatcher });
      // A connection may break before the body is read; its reader gets the error, and no other listener is needed.
      response.body.on("error", () => undefined);
      return {
        status: response.statusCode,
        headers: headersOf(response.headers),
        body: ReadableStream.from<Uint8Array>(response.body),
      };
    },
    close: async () => {
      await Promise.all([anywhere.destroy(), publicOnly.destroy()]);
    },
  };
}

function headersOf(raw: Readonly<Record<string, string | string[] | undefined>>): Headers {
  const headers = new Headers();
  for (const [name, value] of Object.entries(raw)) {
    for (const each of Array.isArray(value) ? value : [value])
      if (each !== undefined) headers.append(name, each);
  }
  return headers;
}
