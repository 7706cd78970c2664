// What the fault agent does with a question, and its request handler: the SDK's own, which can be made to dedupe, or
// not to list.
import {
  AgentCard,
  type Message,
  type Part,
  Role,
  type SendMessageRequest,
  TaskState as States,
  type StreamResponse,
  type Task,
  type TaskState,
} from "@a2a-js/sdk";
import { UnsupportedOperationError } from "@a2a-js/sdk/errors";
import {
  AgentEvent,
  type AgentExecutor,
  DefaultRequestHandler,
  type ExecutionEventBus,
  InMemoryTaskStore,
  type RequestContext,
  type ServerCallContext,
  type TaskStore,
} from "@a2a-js/sdk/server";

export type Plan =
  /** Completes with these artifacts, each a list of chunks. */
  | { readonly kind: "complete"; readonly artifacts: readonly (readonly string[])[] }
  /** Answers with a task that is complete already. */
  | { readonly kind: "at_once"; readonly text: string }
  /** Answers with a message and makes no task. */
  | { readonly kind: "message"; readonly text: string }
  /** Says something with its last status and has no artifact. */
  | { readonly kind: "status"; readonly state: TaskState; readonly text?: string }
  /** Asks these questions one after another, then completes with what it was answered. `options`: of each question. */
  | {
      readonly kind: "input_required";
      readonly questions: readonly string[];
      readonly options?: readonly unknown[];
    }
  /** Works until released, then completes. */
  | { readonly kind: "slow"; readonly text: string };

export const completes = (...chunks: string[]): Plan => ({ kind: "complete", artifacts: [chunks] });

const textPart = (text: string): Part => ({
  content: { $case: "text", value: text },
  metadata: undefined,
  filename: "",
  mediaType: "",
});

const dataPart = (value: unknown): Part => ({
  content: { $case: "data", value },
  metadata: undefined,
  filename: "",
  mediaType: "",
});

export class Behaviour {
  plan: Plan = completes("the answer");
  /** messageIds of executions, in order. */
  readonly started: string[] = [];
  readonly canceled: string[] = [];
  readonly prompts: string[] = [];
  /** The files of each message, as text. */
  readonly files: { readonly name: string; readonly mediaType: string; readonly text: string }[] = [];
  /** Task and context of each execution, as its message named them. */
  readonly addressed: { readonly taskId: string; readonly contextId: string }[] = [];
  readonly #answers = new Map<string, string[]>();
  /** Sends a piece of a slow task's answer ahead. */
  sendAhead: (text: string) => void = () => {};
  readonly #waiting = new Set<() => void>();

  releaseAll(): void {
    for (const release of this.#waiting) release();
    this.#waiting.clear();
  }

  async execute(
    { taskId, contextId, userMessage, task }: RequestContext,
    bus: ExecutionEventBus,
  ): Promise<void> {
    const plan = this.plan;
    this.started.push(userMessage.messageId);
    this.addressed.push({ taskId: userMessage.taskId, contextId: userMessage.contextId });
    const [first] = userMessage.parts;
    if (first?.content?.$case === "text") this.prompts.push(first.content.value);
    for (const { content, filename, mediaType } of userMessage.parts) {
      if (content?.$case !== "raw") continue;
      this.files.push({ name: filename, mediaType, text: Buffer.from(content.value).toString() });
    }
    const say = (text: string): Message => ({
      messageId: `answer-${this.started.length}`,
      contextId,
      taskId: plan.kind === "message" ? "" : taskId,
      role: Role.ROLE_AGENT,
      parts: [textPart(text)],
      metadata: undefined,
      extensions: [],
      referenceTaskIds: [],
    });
    if (plan.kind === "message") {
      bus.publish(AgentEvent.message(say(plan.text)));
      bus.finished();
      return;
    }
    const status = (state: TaskState, message?: Message) => ({
      state,
      message,
      timestamp: new Date().toISOString(),
    });
    const update = (state: TaskState, message?: Message) =>
      bus.publish(
        AgentEvent.statusUpdate({ taskId, contextId, status: status(state, message), metadata: undefined }),
      );
    const artifactOf = (artifactId: string, text: string) => ({
      artifactId,
      name: "",
      description: "",
      parts: [textPart(text)],
      metadata: undefined,
      extensions: [],
    });
    const begun = task === undefined ? States.TASK_STATE_SUBMITTED : States.TASK_STATE_WORKING;
    bus.publish(
      AgentEvent.task({
        id: taskId,
        contextId,
        status: status(plan.kind === "at_once" ? States.TASK_STATE_COMPLETED : begun),
        artifacts: plan.kind === "at_once" ? [artifactOf("a", plan.text)] : [],
        history: task?.history ?? [userMessage],
        metadata: undefined,
      }),
    );
    const artifact = (artifactId: string, text: string, append: boolean) =>
      bus.publish(
        AgentEvent.artifactUpdate({
          taskId,
          contextId,
          artifact: artifactOf(artifactId, text),
          append,
          lastChunk: false,
          metadata: undefined,
        }),
      );
    if (plan.kind === "input_required") {
      const answers = this.#answers.get(taskId) ?? [];
      if (task !== undefined) answers.push(first?.content?.$case === "text" ? first.content.value : "");
      this.#answers.set(taskId, answers);
      const next = plan.questions[answers.length];
      if (next === undefined) {
        artifact("a", answers.join(" and "), false);
        update(States.TASK_STATE_COMPLETED);
      } else {
        const options = plan.options === undefined ? [] : [dataPart({ options: plan.options })];
        const message = say(next);
        update(States.TASK_STATE_INPUT_REQUIRED, { ...message, parts: [...message.parts, ...options] });
      }
    } else if (plan.kind === "status") {
      update(plan.state, plan.text === undefined ? undefined : say(plan.text));
    } else if (plan.kind !== "at_once") {
      if (plan.kind === "slow") {
        update(States.TASK_STATE_WORKING);
        let isAhead = false;
        this.sendAhead = (text) => {
          artifact("ahead", text, isAhead);
          isAhead = true;
        };
        await new Promise<void>((resolve) => this.#waiting.add(resolve));
      }
      const artifacts = plan.kind === "slow" ? [[plan.text]] : plan.artifacts;
      artifacts.forEach((chunks, index) => {
        chunks.forEach((chunk, position) => {
          artifact(`a${index}`, chunk, position > 0);
        });
      });
      update(States.TASK_STATE_COMPLETED);
    }
    bus.finished();
  }

  async cancel(taskId: string, bus: ExecutionEventBus): Promise<void> {
    this.canceled.push(taskId);
    bus.publish(
      AgentEvent.statusUpdate({
        taskId,
        contextId: "",
        status: { state: States.TASK_STATE_CANCELED, message: undefined, timestamp: undefined },
        metadata: undefined,
      }),
    );
    this.releaseAll();
  }
}

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

/** The last tasks, as an agent keeps them that is asked for a long time. */
export class LastTasks implements TaskStore {
  readonly #most: number;
  readonly #tasks = new Map<string, Task>();

  constructor(most: number) {
    this.#most = most;
  }

  async load(id: string): Promise<Task | undefined> {
    return structuredClone(this.#tasks.get(id));
  }

  async save(task: Task): Promise<void> {
    this.#tasks.set(task.id, structuredClone(task));
    const [oldest] = this.#tasks.keys();
    if (this.#tasks.size > this.#most && oldest !== undefined) this.#tasks.delete(oldest);
  }

  async list(...[params, context]: Parameters<TaskStore["list"]>) {
    const all = new InMemoryTaskStore();
    for (const task of this.#tasks.values()) await all.save(task, context);
    return all.list(params, context);
  }
}
