// The request handler of the fault agent: the SDK's own, which can be made to dedupe or not to list.
import {
  AgentCard,
  type Message,
  type SendMessageRequest,
  type StreamResponse,
  type Task,
} from "@a2a-js/sdk";
import { UnsupportedOperationError } from "@a2a-js/sdk/errors";
import {
  type AgentExecutor,
  DefaultRequestHandler,
  type ServerCallContext,
  type TaskStore,
} from "@a2a-js/sdk/server";

/** The card that the SDK's server checks its requests against; the bridge is given its own. */
export function sdkCard(streaming: boolean): AgentCard {
  return AgentCard.fromJSON({
    name: "fault agent",
    description: "misbehaves",
    version: "1.0.0",
    capabilities: { streaming },
    supportedInterfaces: [
      { url: "http://agent/rpc", protocolBinding: "JSONRPC", protocolVersion: "1.0" },
      { url: "http://agent/rpc03", protocolBinding: "JSONRPC", protocolVersion: "0.3" },
      { url: "http://agent/rest", protocolBinding: "HTTP+JSON", protocolVersion: "1.0" },
    ],
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: [],
  });
}

export class DedupingHandler extends DefaultRequestHandler {
  readonly #dedupe: boolean;
  readonly #lists: boolean;

  constructor(card: AgentCard, store: TaskStore, executor: AgentExecutor, dedupe: boolean, lists: boolean) {
    super(card, store, executor);
    this.#dedupe = dedupe;
    this.#lists = lists;
  }

  override async sendMessage(
    params: SendMessageRequest,
    context: ServerCallContext,
  ): Promise<Message | Task> {
    return (await this.#earlier(params, context)) ?? super.sendMessage(params, context);
  }

  override async *sendMessageStream(
    params: SendMessageRequest,
    context: ServerCallContext,
  ): AsyncGenerator<StreamResponse, void, undefined> {
    const task = await this.#earlier(params, context);
    if (task === undefined) yield* super.sendMessageStream(params, context);
    else yield { payload: { $case: "task", value: task } };
  }

  override async listTasks(...[params, context]: Parameters<DefaultRequestHandler["listTasks"]>) {
    if (!this.#lists) throw new UnsupportedOperationError();
    return super.listTasks(params, context);
  }

  async #earlier(params: SendMessageRequest, context: ServerCallContext): Promise<Task | undefined> {
    if (!this.#dedupe) return undefined;
    const { tasks } = await super.listTasks(
      {
        tenant: "",
        contextId: "",
        status: 0,
        pageSize: 100,
        pageToken: "",
        statusTimestampAfter: undefined,
        includeArtifacts: true,
      },
      context,
    );
    return tasks.find((task) =>
      task.history.some(({ messageId }) => messageId === params.message?.messageId),
    );
  }
}
