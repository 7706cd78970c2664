// The connections to agents and issuers: kept alive, never redirected, closed with the bridge.
import { Agent, fetch as undiciFetch } from "undici";

export interface AgentHttpInit {
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
  readonly signal: AbortSignal | null;
}

export interface AgentHttpResponse {
  readonly status: number;
  readonly headers: Headers;
  readonly body: ReadableStream<Uint8Array> | null;
}

export interface AgentHttp {
  fetch(url: string, init: AgentHttpInit): Promise<AgentHttpResponse>;
  /** Drops every connection. */
  close(): Promise<void>;
}

const CONNECT_TIMEOUT_MS = 10_000;

/** Real connections. Time limits on an exchange are its caller's, who knows what is streamed. */
export function createAgentHttp(): AgentHttp {
  const dispatcher = new Agent({
    connect: { timeout: CONNECT_TIMEOUT_MS },
    headersTimeout: 0,
    bodyTimeout: 0,
  });
  return {
    async fetch(url, init) {
      const response = await undiciFetch(url, { ...init, redirect: "manual", dispatcher });
      // The package and the platform declare the same web types separately.
      return response as unknown as AgentHttpResponse;
    },
    close: () => dispatcher.destroy(),
  };
}
