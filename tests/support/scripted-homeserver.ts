// A local HTTP server that answers as the test says: for what a real homeserver does only when it is ill.
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly authorization: string | undefined;
  readonly body: unknown;
}

export interface ScriptedAnswer {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** A JSON value, or text that is sent as it is. */
  readonly body?: unknown;
}

/** What to answer; `hang` never answers, `reset` closes the connection without a word. */
export type Script = (request: SeenRequest) => ScriptedAnswer | "hang" | "reset";

export interface ScriptedHomeserver {
  readonly url: string;
  readonly seen: readonly SeenRequest[];
  script: Script;
  /** Closes all connections, requests that hang included, as the end of its process does. */
  dropConnections(): void;
}

/** Answers every setting-up request of a ghost, so that a script need only name what it is about. */
export const WELL: Script = ({ path }) =>
  path.includes("/send/") ? { body: { event_id: "$sent" } } : { body: {} };

export async function scriptedHomeserver(t: TestContext, script: Script = WELL): Promise<ScriptedHomeserver> {
  const seen: SeenRequest[] = [];
  const made = { url: "", seen, script, dropConnections: () => server.closeAllConnections() };
  const server = createServer((request, response) => {
    void answer(request, response).catch(() => response.destroy());
  });
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const url = new URL(request.url ?? "/", "http://homeserver");
    const text = Buffer.concat(chunks).toString();
    const one: SeenRequest = {
      method: request.method ?? "",
      path: decodeURIComponent(url.pathname),
      query: url.searchParams,
      authorization: request.headers.authorization,
      body: text === "" ? undefined : JSON.parse(text),
    };
    seen.push(one);
    const scripted = made.script(one);
    if (scripted === "hang") return;
    if (scripted === "reset") {
      request.socket.destroy();
      return;
    }
    response.writeHead(scripted.status ?? 200, { "content-type": "application/json", ...scripted.headers });
    response.end(typeof scripted.body === "string" ? scripted.body : JSON.stringify(scripted.body ?? {}));
  };
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  made.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  t.after(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, "close");
  });
  return made;
}
