// One HTTP request to an agent, made for the SDK's transports, and its result.
// Invariants: the token goes to the chosen interface only (no redirect is followed); bodies are bounded; a
// refusal by the gateway is recognised by its status before anything reads its body. One exchange serves
// one request, so nothing is shared between calls.

import { type BodyFault, boundedBody, boundedEvents } from "./body-guard.ts";
import type { AgentHttp } from "./connections.ts";

/** Statuses that are the gateway's or the connection's own: their bodies say nothing in A2A. */
const NOT_THE_AGENTS = new Set([401, 403, 408, 429, 502, 503, 504]);

export interface ExchangeOptions {
  readonly http: AgentHttp;
  readonly headers: Readonly<Record<string, string>>;
  /** Whether the agent may be at a private, loopback or link-local address. */
  readonly mayBePrivate: boolean;
  readonly bytesMax: number;
  readonly isSoundEvent: (data: unknown) => boolean;
  /** Called as the request is handed to the connection. */
  readonly onSent?: (() => void) | undefined;
}

export class Exchange {
  /** The response's status; undefined while there is none. */
  status: number | undefined;
  /** The `Retry-After` header as it came. */
  retryAfter: string | undefined;
  /** Why the body ended early, if it did. */
  fault: BodyFault | undefined;
  /** What the connection failed with before a response, such as `ECONNREFUSED`. */
  networkCode: string | undefined;
  readonly #options: ExchangeOptions;

  constructor(options: ExchangeOptions) {
    this.#options = options;
  }

  readonly fetch: typeof fetch = async (input, init) => {
    const headers: Record<string, string> = {};
    new Headers(init?.headers).forEach((value, name) => {
      headers[name] = value;
    });
    this.#options.onSent?.();
    const response = await this.#request(String(input), {
      method: init?.method ?? "GET",
      headers: { ...headers, ...this.#options.headers },
      body: typeof init?.body === "string" ? init.body : null,
      signal: init?.signal ?? null,
      mayBePrivate: this.#options.mayBePrivate,
    });
    this.status = response.status;
    this.retryAfter = response.headers.get("retry-after") ?? undefined;
    if (NOT_THE_AGENTS.has(response.status) || (response.status >= 300 && response.status < 400)) {
      await response.body?.cancel().catch(() => undefined);
      throw new Error(`refused with status ${response.status}`);
    }
    const announced = Number(response.headers.get("content-length") ?? 0);
    if (announced > this.#options.bytesMax) {
      this.fault = "too_large";
      await response.body?.cancel().catch(() => undefined);
      throw new Error("the response is too large");
    }
    return new Response(this.#guard(response), {
      status: response.status,
      headers: { "content-type": response.headers.get("content-type") ?? "" },
    });
  };

  async #request(url: string, init: Parameters<AgentHttp["fetch"]>[1]) {
    try {
      return await this.#options.http.fetch(url, init);
    } catch (error) {
      this.networkCode = networkCodeOf(error);
      throw error;
    }
  }

  #guard(response: { status: number; headers: Headers; body: ReadableStream<Uint8Array> | null }) {
    if (response.body === null || response.status === 204) return null;
    const onFault = (fault: BodyFault) => {
      this.fault = fault;
    };
    const { bytesMax, isSoundEvent } = this.#options;
    return response.headers.get("content-type")?.startsWith("text/event-stream")
      ? boundedEvents(response.body, bytesMax, isSoundEvent, onFault)
      : boundedBody(response.body, bytesMax, onFault);
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
