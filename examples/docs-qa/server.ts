// The agent's HTTP server: its card, JSON-RPC at the root, HTTP+JSON below it when configured.
// Invariants: a body is bounded; nothing a caller sent is logged; a defect answers 500 without text.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { A2A_CONTENT_TYPE, AGENT_CARD_PATH, type AgentCard } from "@a2a-js/sdk";
import { ContentTypeNotSupportedError } from "@a2a-js/sdk/errors";
import type { A2ARequestHandler, ServerCallContext } from "@a2a-js/sdk/server";
import type { Logger } from "pino";
import { type Body, callContext, hasJsonMediaType, type Reply, readBody, writeReply } from "./a2a/http.ts";
import { httpJsonFailure, httpJsonOperation, httpJsonParseFailure } from "./a2a/http-json.ts";
import { JsonRpcBinding, parseFailure, requestFailure } from "./a2a/json-rpc.ts";
import type { StoredCard } from "./card.ts";
import { withoutText } from "./task/idempotent-handler.ts";

const JSON_TYPE = "application/json";
const CARD_MAX_AGE_SECONDS = 300;
/** Longer than the gateway keeps an idle connection, so that the gateway is the one that closes. */
const KEEP_ALIVE_MS = 65_000;

export interface AgentServerOptions {
  readonly card: AgentCard;
  readonly storedCard: StoredCard;
  readonly handler: A2ARequestHandler;
  readonly httpJson: boolean;
  readonly log: Logger;
}

/** One way in: how a failure and a good body are answered in its own form. */
interface Binding {
  readonly name: "JSONRPC" | "HTTP+JSON";
  readonly mediaTypes: readonly string[];
  readonly notJson: () => Reply;
  readonly failed: (body: unknown, error: unknown) => Reply;
  readonly handle: (body: unknown, context: ServerCallContext) => Promise<Reply>;
}

export function createAgentServer(options: AgentServerOptions): Server {
  const { handler, log } = options;
  const rpc = new JsonRpcBinding(handler);
  const jsonRpc: Binding = {
    name: "JSONRPC",
    mediaTypes: [JSON_TYPE],
    notJson: parseFailure,
    failed: requestFailure,
    handle: (body, context) => rpc.handle(body, context),
  };
  const bindingFor = (method: string, url: URL): Binding | undefined => {
    if (url.pathname === "/") return method === "POST" ? jsonRpc : undefined;
    const operation = options.httpJson ? httpJsonOperation(method, url) : undefined;
    return (
      operation && {
        name: "HTTP+JSON",
        mediaTypes: [JSON_TYPE, A2A_CONTENT_TYPE],
        notJson: httpJsonParseFailure,
        failed: (_body, error) => httpJsonFailure(error),
        handle: (body, context) => operation(handler, context, body),
      }
    );
  };

  const server = createServer((request, response) => {
    const url = URL.parse(request.url ?? "", "http://agent.invalid");
    const method = request.method ?? "";
    if (url?.pathname === `/${AGENT_CARD_PATH}` && (method === "GET" || method === "HEAD")) {
      serveCard(request, response, options.storedCard);
      return;
    }
    const binding = url === null ? undefined : bindingFor(method, url);
    if (binding === undefined) {
      request.resume();
      response.writeHead(404).end();
      return;
    }
    serveCall(request, response, binding, options.card).catch((error: unknown) => {
      log.error({ event: "request_failed", reason: error instanceof Error ? error.name : "unknown" });
      if (response.headersSent) response.destroy();
      else response.writeHead(500).end();
    });
  });
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  return server;
}

function serveCard(request: IncomingMessage, response: ServerResponse, { bytes, etag }: StoredCard): void {
  request.resume();
  response.setHeader("cache-control", `public, max-age=${CARD_MAX_AGE_SECONDS}`);
  response.setHeader("etag", etag);
  if (request.headers["if-none-match"]?.split(",").some((tag) => tag.trim().replace(/^W\//, "") === etag)) {
    response.writeHead(304).end();
    return;
  }
  response.writeHead(200, { "content-type": JSON_TYPE, "content-length": bytes.length });
  response.end(request.method === "HEAD" ? undefined : bytes);
}

async function serveCall(
  request: IncomingMessage,
  response: ServerResponse,
  binding: Binding,
  card: AgentCard,
): Promise<void> {
  const body: Body = await readBody(request);
  if (body.kind === "too_large") {
    // The rest of the body is not read: the connection ends with the answer.
    response.writeHead(413, { connection: "close" }).end();
    return;
  }
  if (body.kind === "not_json") return writeReply(response, binding.notJson(), undefined);
  let context: ServerCallContext | undefined;
  let reply: Reply;
  try {
    if (!hasJsonMediaType(request, binding.mediaTypes)) {
      throw new ContentTypeNotSupportedError("the body must be JSON");
    }
    context = callContext(request, card, binding.name);
    reply = await binding.handle(body.value, context);
  } catch (error) {
    reply = binding.failed(body.value, withoutText(error));
  }
  await writeReply(response, reply, context);
}
