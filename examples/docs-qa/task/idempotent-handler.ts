// The request handler that callers meet: the SDK's, with each message answered once.
// Invariants: a repeated messageId of a caller finds the first task, while it runs, when it is done and after
// a restart; a stream whose reader has gone is still run to its end; an error that is not the protocol's own
// is answered as "internal", without its text.
import {
  type Message,
  Message as MessageCodec,
  Role,
  type SendMessageRequest,
  type StreamResponse,
  type SubscribeToTaskRequest,
  type Task,
} from "@a2a-js/sdk";
import { A2AError, RequestMalformedError } from "@a2a-js/sdk/errors";
import type { A2ARequestHandler, ServerCallContext } from "@a2a-js/sdk/server";
import { MESSAGE_ID_IDEMPOTENCY } from "../../../src/cards/card-fields.ts";
import {
  callerMessages,
  type DurableTaskStore,
  isSettled,
  isSettledState,
  messageKey,
  scopeOf,
} from "./store.ts";

/** What a message turned out to be: the first of its kind, or a repeat. */
type Arrival =
  | { readonly task: Task }
  /** To be called when the message is taken in, or has failed. */
  | { readonly task: undefined; readonly done: () => void };

export class IdempotentHandler implements A2ARequestHandler {
  readonly #inner: A2ARequestHandler;
  readonly #store: DurableTaskStore;
  /** Messages on their way into the store. */
  readonly #arriving = new Map<string, PromiseWithResolvers<void>>();

  constructor(inner: A2ARequestHandler, store: DurableTaskStore) {
    this.#inner = inner;
    this.#store = store;
    store.onMessageStored((key) => this.#leave(key));
  }

  sendMessage(params: SendMessageRequest, context: ServerCallContext): Promise<Message | Task> {
    return this.#guard(async () => {
      const { request, message } = accept(params, context);
      const arrival = await this.#arrive(message, context);
      if (arrival.task === undefined) {
        try {
          return await this.#inner.sendMessage(request, context);
        } finally {
          arrival.done();
        }
      }
      const { id } = arrival.task;
      if (request.configuration?.returnImmediately !== true) await this.#store.whenSettled(id);
      const historyLength = request.configuration?.historyLength;
      return this.#inner.getTask(
        { id, tenant: request.tenant, ...(historyLength !== undefined && { historyLength }) },
        context,
      );
    });
  }

  async *sendMessageStream(
    params: SendMessageRequest,
    context: ServerCallContext,
  ): AsyncGenerator<StreamResponse, void, undefined> {
    const { request, message } = accept(params, context);
    const arrival = await this.#guard(() => this.#arrive(message, context));
    if (arrival.task === undefined) {
      yield* this.#guardStream(toTheEnd(this.#inner.sendMessageStream(request, context), arrival.done));
    } else if (isSettled(arrival.task)) {
      yield { payload: { $case: "task", value: arrival.task } };
    } else {
      yield* this.resubscribe({ id: arrival.task.id, tenant: request.tenant }, context);
    }
  }

  resubscribe: A2ARequestHandler["resubscribe"] = (params, context) =>
    this.#guardStream(this.#follow(params, context));
  getAgentCard: A2ARequestHandler["getAgentCard"] = () => this.#inner.getAgentCard();
  getTask: A2ARequestHandler["getTask"] = (params, context) =>
    this.#guard(() => this.#inner.getTask(params, context));
  listTasks: A2ARequestHandler["listTasks"] = (params, context) =>
    this.#guard(() => this.#inner.listTasks(params, context));
  cancelTask: A2ARequestHandler["cancelTask"] = (params, context) =>
    this.#guard(() => this.#inner.cancelTask(params, context));
  getAuthenticatedExtendedAgentCard: A2ARequestHandler["getAuthenticatedExtendedAgentCard"] = (
    params,
    context,
  ) => this.#guard(() => this.#inner.getAuthenticatedExtendedAgentCard(params, context));
  createTaskPushNotificationConfig: A2ARequestHandler["createTaskPushNotificationConfig"] = (
    params,
    context,
  ) => this.#guard(() => this.#inner.createTaskPushNotificationConfig(params, context));
  getTaskPushNotificationConfig: A2ARequestHandler["getTaskPushNotificationConfig"] = (params, context) =>
    this.#guard(() => this.#inner.getTaskPushNotificationConfig(params, context));
  listTaskPushNotificationConfigs: A2ARequestHandler["listTaskPushNotificationConfigs"] = (params, context) =>
    this.#guard(() => this.#inner.listTaskPushNotificationConfigs(params, context));
  deleteTaskPushNotificationConfig: A2ARequestHandler["deleteTaskPushNotificationConfig"] = (
    params,
    context,
  ) => this.#guard(() => this.#inner.deleteTaskPushNotificationConfig(params, context));

  /**
   * Finds the task that an earlier copy of this message made, or makes this one the first. Between looking
   * and marking nothing is awaited, so of two copies at once only one is the first.
   */
  async #arrive(message: Message, context: ServerCallContext): Promise<Arrival> {
    const scope = scopeOf(context);
    const key = messageKey(scope, message.messageId);
    for (;;) {
      const task = this.#store.findByMessage(scope, message.messageId);
      if (task !== undefined) {
        refuseOtherContent(task, message);
        return { task };
      }
      const earlier = this.#arriving.get(key);
      if (earlier === undefined) {
        this.#arriving.set(key, Promise.withResolvers());
        return { task: undefined, done: () => this.#leave(key) };
      }
      await earlier.promise;
    }
  }

  /**
   * A task's events to its end. The SDK's stream ends early when the work is done but not stored yet; what
   * is missing then is the final task.
   */
  async *#follow(
    params: SubscribeToTaskRequest,
    context: ServerCallContext,
  ): AsyncGenerator<StreamResponse, void, undefined> {
    let settled = false;
    for await (const event of this.#inner.resubscribe(params, context)) {
      const { payload } = event;
      if (payload?.$case === "task" || payload?.$case === "statusUpdate")
        settled = isSettledState(payload.value.status);
      // The SDK tells subscribers before it stores.
      if (settled) await this.#store.whenSettled(params.id);
      yield event;
    }
    if (settled) return;
    await this.#store.whenSettled(params.id);
    const task = await this.#inner.getTask({ id: params.id, tenant: params.tenant }, context);
    yield { payload: { $case: "task", value: task } };
  }

  #leave(key: string): void {
    this.#arriving.get(key)?.resolve();
    this.#arriving.delete(key);
  }

  async #guard<T>(run: () => Promise<T>): Promise<T> {
    try {
      return await run();
    } catch (error) {
      throw withoutText(error);
    }
  }

  async *#guardStream(
    events: AsyncGenerator<StreamResponse, void, undefined>,
  ): AsyncGenerator<StreamResponse, void, undefined> {
    try {
      yield* events;
    } catch (error) {
      throw withoutText(error);
    }
  }
}

/** Checks what the rest relies on, and drops references, which the SDK would log as they came. */
function accept(
  params: SendMessageRequest,
  context: ServerCallContext,
): { request: SendMessageRequest; message: Message } {
  const { message } = params;
  if (message === undefined) throw new RequestMalformedError("message is required");
  if (typeof message.messageId !== "string" || message.messageId === "") {
    throw new RequestMalformedError("message.messageId is required");
  }
  if (message.role !== Role.ROLE_USER) throw new RequestMalformedError("message.role must be ROLE_USER");
  if (message.parts.length === 0) throw new RequestMalformedError("message.parts is required");
  if (context.requestedExtensions?.includes(MESSAGE_ID_IDEMPOTENCY)) {
    context.addActivatedExtension(MESSAGE_ID_IDEMPOTENCY);
  }
  return { request: { ...params, message: { ...message, referenceTaskIds: [] } }, message };
}

/** What a message says, without what the SDK fills in. */
function contentOf(message: Message): string {
  return JSON.stringify(
    MessageCodec.toJSON({ ...message, messageId: "", contextId: "", taskId: "", referenceTaskIds: [] }),
  );
}

function refuseOtherContent(task: Task, message: Message): void {
  const first = callerMessages(task).find((candidate) => candidate.messageId === message.messageId);
  if (first !== undefined && contentOf(first) !== contentOf(message)) {
    throw new RequestMalformedError("messageId was used before for another message");
  }
}

/** The protocol's own errors speak of the request alone; any other is answered without its text. */
export function withoutText(error: unknown): A2AError {
  return error instanceof A2AError ? error : new A2AError({ message: "internal error" });
}

/** Passes events on; when the reader goes away it reads the rest itself, because reading is what stores. */
async function* toTheEnd(
  events: AsyncGenerator<StreamResponse, void, undefined>,
  done: () => void,
): AsyncGenerator<StreamResponse, void, undefined> {
  let ended = false;
  try {
    for (;;) {
      const next = await events.next();
      if (next.done) {
        ended = true;
        return;
      }
      yield next.value;
    }
  } catch (error) {
    ended = true;
    throw error;
  } finally {
    done();
    if (!ended) void drain(events);
  }
}

async function drain(events: AsyncGenerator<StreamResponse, void, undefined>): Promise<void> {
  try {
    while (!(await events.next()).done);
  } catch {
    // The task's own state says that it failed.
  }
}
