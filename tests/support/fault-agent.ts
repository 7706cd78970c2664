// A real agent on the A2A SDK's server, over real HTTP, that can be told to misbehave.
// It speaks JSON-RPC 1.0 at /rpc, JSON-RPC 0.3 at /rpc03 and HTTP+JSON at /rest.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { TestContext } from "node:test";
import {
  ListTasksResponse,
  SendMessageRequest,
  SendMessageResponse,
  StreamResponse,
  Task,
} from "@a2a-js/sdk";
import { LegacyJsonRpcTransportHandler } from "@a2a-js/sdk/compat/v0_3/server";
import { restStatusFor, toRestErrorBody } from "@a2a-js/sdk/errors";
import {
  type AgentExecutor,
  InMemoryTaskStore,
  JsonRpcTransportHandler,
  ServerCallContext,
} from "@a2a-js/sdk/server";
import { Behaviour, DedupingHandler, LastTasks, sdkCard } from "./fault-agent-behaviour.ts";

/** What happens to one request instead of, or around, its proper answer. */
export type Fault =
  | { readonly kind: "status"; readonly status: number; readonly headers?: Record<string, string> }
  /** Never answers. */
  | { readonly kind: "hang" }
  /** 200 with a page of HTML, or whatever `body` says. */
  | { readonly kind: "garbage"; readonly body?: string; readonly type?: string }
  /** Begins a stream with this text, and says nothing more. */
  | { readonly kind: "stall"; readonly body: string }
  /** Bytes without end; counts how many were taken. */
  | { readonly kind: "huge" }
  /** Closes the connection before anything is done. */
  | { readonly kind: "reset" }
  /** Does the work, then closes the connection without an answer. */
  | { readonly kind: "accept_then_drop" }
  /** Closes the connection after this many events of a stream. */
  | { readonly kind: "cut"; readonly afterEvents: number }
  /** Leaves out the first event of a stream; `before` runs before the request is served. */
  | { readonly kind: "skip"; readonly before: () => void };

export type Operation = "send" | "stream" | "get" | "list" | "cancel" | "subscribe";

export interface ReceivedRequest {
  readonly operation: Operation;
  readonly messageId: string | undefined;
  readonly authorization: string | undefined;
  readonly version: string | undefined;
  readonly traceparent: string | undefined;
}

const OPERATIONS: Readonly<Record<string, Operation>> = {
  SendMessage: "send",
  SendStreamingMessage: "stream",
  GetTask: "get",
  ListTasks: "list",
  CancelTask: "cancel",
  SubscribeToTask: "subscribe",
  "message/send": "send",
  "message/stream": "stream",
  "tasks/get": "get",
  "tasks/cancel": "cancel",
  "tasks/resubscribe": "subscribe",
};

export interface FaultAgentOptions {
  readonly streaming?: boolean;
  /** Makes one task of repeated messageIds. */
  readonly dedupe?: boolean;
  /** Answers ListTasks; agents need not. */
  readonly lists?: boolean;
  /** How many tasks it keeps; all when absent. */
  readonly keeps?: number;
}

export interface FaultAgent {
  readonly url: string;
  readonly behaviour: Behaviour;
  readonly requests: ReceivedRequest[];
  /** The messages that were sent to it, as they came, without what names the request. */
  readonly bodies: unknown[];
  /** Bearer tokens that are taken; undefined: none is asked for. */
  tokens: Set<string> | undefined;
  /** Bytes written by `huge`. */
  hugeBytes: number;
  /** The next request of this operation meets the fault; `times` of them do. */
  fault(operation: Operation, fault: Fault, times?: number): void;
  clearFaults(): void;
  requestsOf(operation: Operation): ReceivedRequest[];
  /** Tasks made for a messageId. */
  tasksOf(messageId: string): number;
  close(): Promise<void>;
}

export async function startFaultAgent(
  t: Pick<TestContext, "after">,
  options: FaultAgentOptions = {},
): Promise<FaultAgent> {
  const behaviour = new Behaviour();
  const executor: AgentExecutor = {
    execute: (context, bus) => behaviour.execute(context, bus),
    cancelTask: (taskId, bus) => behaviour.cancel(taskId, bus),
  };
  const { streaming = false, dedupe = false, lists = true, keeps } = options;
  const store = keeps === undefined ? new InMemoryTaskStore() : new LastTasks(keeps);
  const handler = new DedupingHandler(sdkCard(streaming), store, executor, dedupe, lists);
  const rpc = new JsonRpcTransportHandler(handler);
  const legacy = new LegacyJsonRpcTransportHandler(handler);
  const faults: { operation: Operation; fault: Fault; times: number }[] = [];

  const serve = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const text = await readAll(request);
    const url = new URL(request.url ?? "/", "http://agent");
    const body = (text === "" ? {} : JSON.parse(text)) as {
      method?: string;
      params?: { message?: { messageId?: string } };
      message?: { messageId?: string };
    };
    const isRest = url.pathname.startsWith("/rest");
    const operation = isRest
      ? restOperation(request.method ?? "GET", url.pathname)
      : OPERATIONS[body.method ?? ""];
    if (operation === undefined) return end(response, 404);
    const authorization = request.headers.authorization;
    agent.requests.push({
      operation,
      messageId: body.params?.message?.messageId ?? body.message?.messageId,
      authorization,
      version: request.headers["a2a-version"] as string | undefined,
      traceparent: request.headers["traceparent"] as string | undefined,
    });
    const { message } = body.params ?? body;
    if (message !== undefined) agent.bodies.push(message);
    if (agent.tokens !== undefined && !agent.tokens.has(authorization?.replace("Bearer ", "") ?? "")) {
      return end(response, 401);
    }
    const planned = faults.find((each) => each.operation === operation && each.times > 0);
    if (planned !== undefined) planned.times -= 1;
    const fault = planned?.fault;
    if (fault !== undefined && !(await applyFault(agent, fault, response))) return;

    const sink = new EventSink(response, fault, isRest);
    const context = new ServerCallContext({ requestedVersion: url.pathname === "/rpc03" ? "0.3" : "1.0" });
    if (isRest) return serveRest(handler, url, operation, text, context, sink);
    const answer = await (url.pathname === "/rpc03" ? legacy : rpc).handle(text, context);
    if (Symbol.asyncIterator in answer) await sink.stream(answer);
    else sink.json(200, answer);
  };

  const server = createServer((request, response) => {
    serve(request, response).catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const agent: FaultAgent = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    behaviour,
    requests: [],
    bodies: [],
    tokens: undefined,
    hugeBytes: 0,
    fault: (operation, fault, times = 1) => faults.push({ operation, fault, times }),
    clearFaults: () => faults.splice(0),
    requestsOf: (operation) => agent.requests.filter((each) => each.operation === operation),
    tasksOf: (messageId) => behaviour.started.filter((each) => each === messageId).length,
    close: () =>
      new Promise((resolve) => {
        behaviour.releaseAll();
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  t.after(() => agent.close());
  return agent;
}

/** Applies a fault that replaces the answer; true when the request is to be served all the same. */
async function applyFault(agent: FaultAgent, fault: Fault, response: ServerResponse): Promise<boolean> {
  switch (fault.kind) {
    case "status":
      end(response, fault.status, fault.headers);
      return false;
    case "hang":
      return false;
    case "garbage":
      end(
        response,
        200,
        { "content-type": fault.type ?? "text/html" },
        fault.body ?? "<html>no agent here</html>",
      );
      return false;
    case "stall":
      response.writeHead(200, { "content-type": "text/event-stream" }).write(fault.body);
      return false;
    case "reset":
      response.socket?.destroy();
      return false;
    case "huge":
      response.writeHead(200, { "content-type": "application/json" });
      await pipeline(Readable.from(spaces(agent)), response).catch(() => undefined);
      return false;
    case "skip":
      fault.before();
      return true;
    case "accept_then_drop":
    case "cut":
      return true;
  }
}

/** 50 MB of white space, made as it is taken. */
function* spaces(agent: FaultAgent): Generator<Buffer> {
  const chunk = Buffer.alloc(64 * 1024, " ");
  for (; agent.hugeBytes < 50 * 1024 * 1024; agent.hugeBytes += chunk.length) yield chunk;
}

/** Writes a proper answer, or what a fault leaves of it. */
class EventSink {
  readonly #response: ServerResponse;
  readonly #fault: Fault | undefined;
  readonly #isRest: boolean;

  constructor(response: ServerResponse, fault: Fault | undefined, isRest: boolean) {
    this.#response = response;
    this.#fault = fault;
    this.#isRest = isRest;
  }

  json(status: number, value: unknown): void {
    if (this.#fault?.kind === "accept_then_drop") this.#response.socket?.destroy();
    else end(this.#response, status, { "content-type": "application/json" }, JSON.stringify(value));
  }

  /** Takes every event, written or not: the SDK's server stores what is taken from it. */
  async stream(events: AsyncIterable<unknown>): Promise<void> {
    const fault = this.#fault;
    const eventsMax =
      fault?.kind === "accept_then_drop"
        ? 0
        : fault?.kind === "cut"
          ? fault.afterEvents
          : Number.POSITIVE_INFINITY;
    let sent = 0;
    let toSkip = fault?.kind === "skip" ? 1 : 0;
    for await (const event of events) {
      if (toSkip-- > 0) continue;
      if (sent >= eventsMax) {
        this.#response.socket?.destroy();
        continue;
      }
      if (!this.#response.headersSent) this.#response.writeHead(200, { "content-type": "text/event-stream" });
      const data = this.#isRest ? StreamResponse.toJSON(event as StreamResponse) : event;
      this.#response.write(`data: ${JSON.stringify(data)}\n\n`);
      sent += 1;
    }
    this.#response.end();
  }
}

async function serveRest(
  handler: DedupingHandler,
  url: URL,
  operation: Operation,
  text: string,
  context: ServerCallContext,
  sink: EventSink,
): Promise<void> {
  const id = /^\/rest\/tasks\/([^:/]+)/.exec(url.pathname)?.[1] ?? "";
  try {
    switch (operation) {
      case "send": {
        const result = await handler.sendMessage(SendMessageRequest.fromJSON(JSON.parse(text)), context);
        const payload =
          "messageId" in result
            ? { $case: "message" as const, value: result }
            : { $case: "task" as const, value: result };
        return sink.json(200, SendMessageResponse.toJSON({ payload }));
      }
      case "stream":
        return await sink.stream(
          handler.sendMessageStream(SendMessageRequest.fromJSON(JSON.parse(text)), context),
        );
      case "get":
        return sink.json(
          200,
          Task.toJSON(await handler.getTask({ tenant: "", id, historyLength: 0 }, context)),
        );
      case "list": {
        const page = {
          tenant: "",
          contextId: "",
          status: 0,
          pageToken: url.searchParams.get("pageToken") ?? "",
          statusTimestampAfter: undefined,
        };
        return sink.json(200, ListTasksResponse.toJSON(await handler.listTasks(page, context)));
      }
      case "cancel":
        return sink.json(
          200,
          Task.toJSON(await handler.cancelTask({ tenant: "", id, metadata: undefined }, context)),
        );
      case "subscribe":
        return await sink.stream(handler.resubscribe({ tenant: "", id }, context));
    }
  } catch (error) {
    const status = restStatusFor(error);
    sink.json(status, toRestErrorBody(error, status));
  }
}

function restOperation(method: string, path: string): Operation | undefined {
  if (path === "/rest/message:send") return "send";
  if (path === "/rest/message:stream") return "stream";
  if (path === "/rest/tasks") return "list";
  if (path.endsWith(":cancel")) return "cancel";
  if (path.endsWith(":subscribe")) return "subscribe";
  return method === "GET" && path.startsWith("/rest/tasks/") ? "get" : undefined;
}

function end(
  response: ServerResponse,
  status: number,
  headers: Record<string, string> = {},
  body = "",
): void {
  response.writeHead(status, headers);
  response.end(body);
}

async function readAll(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}
