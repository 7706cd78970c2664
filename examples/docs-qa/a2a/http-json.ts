// The HTTP+JSON binding (A2A 1.0, section 11): the SDK's server for it needs another web framework, so
// the paths are matched here and the SDK's codecs and error mapping do the rest.
import {
  A2A_CONTENT_TYPE,
  ListTasksRequest,
  ListTasksResponse,
  SendMessageRequest,
  SendMessageResponse,
  StreamResponse,
  Task,
} from "@a2a-js/sdk";
import { RequestMalformedError, restStatusFor, toRestErrorBody } from "@a2a-js/sdk/errors";
import type { A2ARequestHandler, ServerCallContext } from "@a2a-js/sdk/server";
import type { Reply } from "./http.ts";

const ok = (body: unknown): Reply => ({ kind: "json", status: 200, mediaType: A2A_CONTENT_TYPE, body });

/** An error as this binding tells it. */
export function httpJsonFailure(error: unknown): Reply {
  const status = restStatusFor(error);
  return { kind: "json", status, mediaType: A2A_CONTENT_TYPE, body: toRestErrorBody(error, status) };
}

/** The reply to a body that is no JSON. */
export function httpJsonParseFailure(): Reply {
  return httpJsonFailure(new RequestMalformedError("Invalid JSON payload."));
}

interface Call {
  readonly handler: A2ARequestHandler;
  readonly context: ServerCallContext;
  readonly taskId: string;
  readonly query: URLSearchParams;
  readonly body: unknown;
}
type Operation = (call: Call) => Promise<Reply>;

function streamOf(source: AsyncGenerator<StreamResponse, void, undefined>): Reply {
  async function* events() {
    try {
      for await (const event of source) yield StreamResponse.toJSON(event);
    } finally {
      await source.return();
    }
  }
  return {
    kind: "stream",
    events: events(),
    failed: httpJsonFailure,
    errorEvent: (error) => toRestErrorBody(error, restStatusFor(error)),
  };
}

/** Query values as the codec takes them: numbers and flags are not strings there. */
function listRequest(query: URLSearchParams): ListTasksRequest {
  const number = (name: string) => {
    const text = query.get(name);
    if (text === null || text === "") return {};
    if (!/^[0-9]{1,6}$/.test(text)) throw new RequestMalformedError(`${name} must be a whole number`);
    return { [name]: Number(text) };
  };
  return ListTasksRequest.fromJSON({
    ...Object.fromEntries(query),
    ...number("pageSize"),
    ...number("historyLength"),
    includeArtifacts: query.get("includeArtifacts") === "true",
  });
}

function historyLength(query: URLSearchParams): { historyLength?: number } {
  const text = query.get("historyLength");
  if (text === null) return {};
  if (!/^[0-9]{1,6}$/.test(text)) throw new RequestMalformedError("historyLength must be a whole number");
  return { historyLength: Number(text) };
}

const send: Operation = async ({ handler, context, body }) => {
  const result = await handler.sendMessage(SendMessageRequest.fromJSON(body), context);
  const payload =
    "messageId" in result
      ? ({ $case: "message", value: result } as const)
      : ({ $case: "task", value: result } as const);
  return ok(SendMessageResponse.toJSON({ payload }));
};

const stream: Operation = async ({ handler, context, body }) =>
  streamOf(handler.sendMessageStream(SendMessageRequest.fromJSON(body), context));

const list: Operation = async ({ handler, context, query }) => {
  const response = await handler.listTasks(listRequest(query), context);
  // The codec leaves defaults out; these four are required (section 3.1.4).
  const body = ListTasksResponse.toJSON(response) as object;
  return ok({
    tasks: [],
    nextPageToken: "",
    pageSize: response.pageSize,
    totalSize: response.totalSize,
    ...body,
  });
};

const get: Operation = async ({ handler, context, taskId, query }) =>
  ok(Task.toJSON(await handler.getTask({ id: taskId, tenant: "", ...historyLength(query) }, context)));

const cancel: Operation = async ({ handler, context, taskId }) =>
  ok(Task.toJSON(await handler.cancelTask({ id: taskId, tenant: "", metadata: undefined }, context)));

const subscribe: Operation = async ({ handler, context, taskId }) =>
  streamOf(handler.resubscribe({ id: taskId, tenant: "" }, context));

const OPERATIONS: readonly (readonly [methods: string, path: RegExp, operation: Operation])[] = [
  ["POST", /^\/message:send$/, send],
  ["POST", /^\/message:stream$/, stream],
  ["GET", /^\/tasks$/, list],
  ["GET", /^\/tasks\/([A-Za-z0-9._~-]+)$/, get],
  ["POST", /^\/tasks\/([A-Za-z0-9._~-]+):cancel$/, cancel],
  ["GET POST", /^\/tasks\/([A-Za-z0-9._~-]+):subscribe$/, subscribe],
];

/** The operation that a request names; undefined when it is none of this binding. */
export function httpJsonOperation(
  method: string,
  url: URL,
): ((handler: A2ARequestHandler, context: ServerCallContext, body: unknown) => Promise<Reply>) | undefined {
  for (const [methods, path, operation] of OPERATIONS) {
    const match = methods.split(" ").includes(method) ? path.exec(url.pathname) : null;
    if (match === null) continue;
    const taskId = match[1] ?? "";
    return (handler, context, body) =>
      operation({ handler, context, taskId, query: url.searchParams, body: body ?? {} });
  }
  return undefined;
}
