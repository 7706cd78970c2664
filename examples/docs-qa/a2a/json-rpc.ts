// The JSON-RPC binding (A2A 1.0, section 9) over the SDK's transport handler.
import { A2A_ERROR_CODE } from "@a2a-js/sdk/errors";
import { type A2ARequestHandler, JsonRpcTransportHandler, type ServerCallContext } from "@a2a-js/sdk/server";
import type { Reply } from "./http.ts";

type RequestId = string | number | null;

function envelope(id: RequestId, error: unknown): Reply {
  return { kind: "json", status: 200, mediaType: "application/json", body: { jsonrpc: "2.0", id, error } };
}

function idOf(body: unknown): RequestId {
  if (typeof body !== "object" || body === null || !("id" in body)) return null;
  const { id } = body;
  return typeof id === "string" || typeof id === "number" ? id : null;
}

/** The reply to a body that is no JSON. */
export function parseFailure(): Reply {
  return envelope(null, { code: A2A_ERROR_CODE.PARSE_ERROR, message: "Invalid JSON payload." });
}

/** The reply to a request that failed before it reached a method. */
export function requestFailure(body: unknown, error: unknown): Reply {
  return envelope(idOf(body), JsonRpcTransportHandler.mapToJSONRPCError(error));
}

export class JsonRpcBinding {
  readonly #transport: JsonRpcTransportHandler;

  constructor(handler: A2ARequestHandler) {
    this.#transport = new JsonRpcTransportHandler(handler);
  }

  async handle(body: unknown, context: ServerCallContext): Promise<Reply> {
    if (typeof body !== "object" || body === null || Array.isArray(body)) {
      return envelope(null, { code: A2A_ERROR_CODE.INVALID_REQUEST, message: "Invalid JSON-RPC Request." });
    }
    const result = await this.#transport.handle(body as Record<string, unknown>, context);
    if (!(Symbol.asyncIterator in result)) {
      return { kind: "json", status: 200, mediaType: "application/json", body: result };
    }
    const id = idOf(body);
    return {
      kind: "stream",
      events: result,
      failed: (error) => requestFailure(body, error),
      errorEvent: (error) => ({
        jsonrpc: "2.0",
        id,
        error: JsonRpcTransportHandler.mapToJSONRPCError(error),
      }),
    };
  }
}
