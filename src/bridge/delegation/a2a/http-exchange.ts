// The connections to agents and issuers, and one HTTP request to an agent for the SDK's transports, with its result.
// Invariants: the token goes to the chosen interface only (no redirect is followed); bodies are bounded; a refusal by the
// gateway is recognised by its status before anything reads its body; an exchange serves one request; a connection to an
// address that is not public is made, and used, only for a request that may go there.
import { request } from "undici";
import { httpAgent } from "../../../runtime/http.ts";
import { type Resolve, resolveShared } from "../../../runtime/name-lookups.ts";
import { assertPublicHost, publicLookup } from "../../../runtime/public-addresses.ts";
import { type BodyFault, boundedBody, boundedEvents } from "./body-guard.ts";

/** Statuses that are the gateway's or the connection's own: their bodies say nothing in A2A. */
const NOT_THE_AGENTS = new Set([401, 403, 408, 429, 502, 503, 504]);

export interface ExchangeOptions {
  readonly http: AgentHttp;
  readonly headers: Readonly<Record<string, string>>;
  readonly mayBePrivate: boolean;
  readonly bytesMax: number;
  readonly isSoundEvent: (data: unknown) => boolean;
  /** Called as the request is handed to the connection. */
  readonly onSent?: (() => void) | undefined;
  readonly onRead?: ((bytes: number) => void) | undefined;
}

export class Exchange {
  status: number | undefined;
  retryAfter: string | undefined;
  fault: BodyFault | undefined;
  /** What the connection failed with before a response, such as `ECONNREFUSED`. */
  networkCode: string | undefined;
  readonly #options: ExchangeOptions;

  constructor(options: ExchangeOptions) {
    this.#options = options;
  }

  readonly fetch: typeof fetch = async (input, init) => {
    this.#options.onSent?.();
    const request = {
      method: init?.method ?? "GET",
      headers: { ...Object.fromEntries(new Headers(init?.headers)), ...this.#options.headers },
      body: typeof init?.body === "string" ? init.body : null,
      signal: init?.signal ?? null,
      mayBePrivate: this.#options.mayBePrivate,
    };
    const response = await this.#options.http.fetch(String(input), request).catch((error: unknown) => {
      this.networkCode = networkCodeOf(error);
      throw error;
    });
    const { status, headers } = response;
    this.status = status;
    // A header that is sent twice is an array, whatever its type says.
    const [after, type] = [headers["retry-after"], String(headers["content-type"] ?? "")];
    this.retryAfter = after && String(after);
    if (NOT_THE_AGENTS.has(status) || (status >= 300 && status < 400)) {
      await response.body.cancel().catch(() => undefined);
      throw new Error(`refused with status ${status}`);
    }
    if (Number(headers["content-length"] ?? 0) > this.#options.bytesMax) {
      this.fault = "too_large";
      await response.body.cancel().catch(() => undefined);
      throw new Error("the response is too large");
    }
    return new Response(this.#guard(response, type), { status, headers: { "content-type": type } });
  };

  #guard({ status, body }: Awaited<ReturnType<AgentHttp["fetch"]>>, type: string) {
    if (status === 204) return null;
    const onFault = (fault: BodyFault) => {
      this.fault = fault;
    };
    const { bytesMax, isSoundEvent, onRead } = this.#options;
    return type.startsWith("text/event-stream")
      ? boundedEvents(body, bytesMax, isSoundEvent, onFault, onRead)
      : boundedBody(body, bytesMax, onFault, onRead);
  }
}

/** The code at the bottom of a chain of causes: `ECONNREFUSED`, `UND_ERR_CONNECT_TIMEOUT`, `CERT_…`. */
function networkCodeOf(error: unknown): string | undefined {
  let code: string | undefined;
  for (let depth = 0, at: unknown = error; depth < 5 && at instanceof Error; depth++) {
    const own = (at as NodeJS.ErrnoException).code;
    if (typeof own === "string") code = own;
    at = at instanceof AggregateError ? (at.errors[0] ?? at.cause) : at.cause;
  }
  return code;
}

interface AgentHttpInit {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  readonly signal: AbortSignal | null;
  /** Whether the host may be at a private, loopback or link-local address. */
  readonly mayBePrivate: boolean;
}

export type AgentHttp = ReturnType<typeof createAgentHttp>;

const CONNECT_TIMEOUT_MS = 10_000;

/** Real connections. Time limits on an exchange are its caller's. @param resolve how names are looked up */
export function createAgentHttp(resolve: Resolve = resolveShared) {
  const connect = { timeout: CONNECT_TIMEOUT_MS };
  const unlimited = { headersTimeout: 0, bodyTimeout: 0 };
  const anywhere = httpAgent({ ...unlimited, connect });
  const publicOnly = httpAgent({ ...unlimited, connect: { ...connect, lookup: publicLookup(resolve) } });
  return {
    /** Makes one request. Rejects with the connection's error, whose `code` says what happened. */
    async fetch(url: string, { mayBePrivate, ...asked }: AgentHttpInit) {
      if (!mayBePrivate) assertPublicHost(url);
      const dispatcher = mayBePrivate ? anywhere : publicOnly;
      const { statusCode: status, headers, body } = await request(url, { ...asked, dispatcher });
      // A connection may break before the body is read; its reader gets the error, and no other listener is needed.
      body.on("error", () => undefined);
      return { status, headers, body: ReadableStream.from<Uint8Array>(body) };
    },
    close: async () => {
      await Promise.all([anywhere.destroy(), publicOnly.destroy()]);
    },
  };
}
