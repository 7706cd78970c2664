// What both bindings share of HTTP: reading a JSON body, the caller and the protocol version, writing a
// reply.
// Invariants: a body is bounded; the caller is who the gateway names in a header, since the gateway alone
// reaches the agent.
import type { IncomingMessage, ServerResponse } from "node:http";
import {
  A2A_VERSION_HEADER,
  type AgentCard,
  Extensions,
  formatSSEErrorEvent,
  formatSSEEvent,
  HTTP_EXTENSION_HEADER,
  SSE_HEADERS,
} from "@a2a-js/sdk";
import { ServerCallContext, type User, validateVersion } from "@a2a-js/sdk/server";

const MiB = 1024 * 1024;
const BODY_BYTES_MAX = 1 * MiB;

export type Body =
  | { readonly kind: "json"; readonly value: unknown }
  | { readonly kind: "not_json" }
  | { readonly kind: "too_large" };

/** Whether the body is declared as JSON, or as nothing at all. */
export function hasJsonMediaType(request: IncomingMessage, allowed: readonly string[]): boolean {
  const mediaType = request.headers["content-type"]?.split(";", 1)[0]?.trim().toLowerCase();
  return mediaType === undefined || allowed.includes(mediaType);
}

/** Reads to the end, or to the bound. An empty body is an empty object. */
export async function readBody(request: IncomingMessage): Promise<Body> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > BODY_BYTES_MAX) return { kind: "too_large" };
    chunks.push(chunk);
  }
  if (length === 0) return { kind: "json", value: {} };
  try {
    return { kind: "json", value: JSON.parse(Buffer.concat(chunks).toString("utf8")) };
  } catch {
    return { kind: "not_json" };
  }
}

const CALLER_HEADER = "x-azp";

class Caller implements User {
  readonly userName: string;

  constructor(userName: string) {
    this.userName = userName;
  }

  get isAuthenticated(): boolean {
    return this.userName !== "";
  }
}

function header(request: IncomingMessage, name: string): string {
  const value = request.headers[name.toLowerCase()];
  return (Array.isArray(value) ? value.join(",") : value) ?? "";
}

/**
 * The call's context. Without the gateway's header the caller is anonymous and sees no other caller's tasks.
 * @throws VersionNotSupportedError (A2A 1.0, section 3.6.2)
 */
export function callContext(
  request: IncomingMessage,
  card: AgentCard,
  binding: "JSONRPC" | "HTTP+JSON",
): ServerCallContext {
  const extensions = header(request, HTTP_EXTENSION_HEADER);
  const version = header(request, A2A_VERSION_HEADER);
  const context = new ServerCallContext({
    user: new Caller(header(request, CALLER_HEADER)),
    ...(extensions !== "" && { requestedExtensions: Extensions.parseServiceParameter(extensions) }),
    ...(version !== "" && { requestedVersion: version }),
  });
  validateVersion(context.requestedVersion, card, binding);
  return context;
}

export type Reply =
  | { readonly kind: "json"; readonly status: number; readonly mediaType: string; readonly body: unknown }
  | {
      readonly kind: "stream";
      readonly events: AsyncGenerator<unknown, void, undefined>;
      /** The reply when the stream fails before its first event. */
      readonly failed: (error: unknown) => Reply;
      /** The last event of a stream that fails later. */
      readonly errorEvent: (error: unknown) => unknown;
    };

export async function writeReply(
  response: ServerResponse,
  reply: Reply,
  context: ServerCallContext | undefined,
): Promise<void> {
  if (reply.kind === "json") {
    setExtensions(response, context);
    response.writeHead(reply.status, { "content-type": reply.mediaType }).end(JSON.stringify(reply.body));
    return;
  }
  const { events } = reply;
  let next: IteratorResult<unknown, void>;
  try {
    next = await events.next();
  } catch (error) {
    return writeReply(response, reply.failed(error), context);
  }
  setExtensions(response, context);
  response.writeHead(200, SSE_HEADERS);
  try {
    while (!next.done && !response.destroyed) {
      await write(response, formatSSEEvent(next.value));
      next = await events.next();
    }
  } catch (error) {
    await write(response, formatSSEErrorEvent(reply.errorEvent(error)));
  } finally {
    // The reader may have gone: the generator then finishes the task by itself.
    await events.return();
    response.end();
  }
}

function setExtensions(response: ServerResponse, context: ServerCallContext | undefined): void {
  const activated = context?.activatedExtensions;
  if (activated !== undefined) response.setHeader(HTTP_EXTENSION_HEADER, activated.join(", "));
}

/** Resolves when there is room for more, or the reader has gone. */
async function write(response: ServerResponse, text: string): Promise<void> {
  if (response.destroyed || response.write(text)) return;
  await new Promise<void>((resolve) => {
    const done = () => {
      response.off("drain", done).off("close", done);
      resolve();
    };
    response.once("drain", done).once("close", done);
  });
}
