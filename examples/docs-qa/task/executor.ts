// Runs a skill as an A2A task.
// Invariants: the first event is the task; every task that was begun ends in a final state or waits for its
// caller; no text of an internal error reaches a caller.
import {
  type Artifact,
  type Message,
  type Part,
  Role,
  type Task,
  TaskState,
  type TaskStatus,
} from "@a2a-js/sdk";
import {
  AgentEvent,
  type AgentExecutor,
  type ExecutionEventBus,
  type RequestContext,
} from "@a2a-js/sdk/server";
import type { Logger } from "pino";
import type { Clock, Random } from "../../../src/domain/clock.ts";
import { optionsPart, type Skill, type Step, type TextFile, textPart } from "../skills/skill.ts";
import { callerMessages, isFinal } from "./store.ts";

export interface SkillExecutorOptions {
  readonly skill: Skill;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
}

function textOf({ parts }: Message): string {
  return parts
    .map((part) => (part.content?.$case === "text" ? part.content.value : ""))
    .join("\n")
    .trim();
}

const TEXT_TYPES: ReadonlySet<string> = new Set(["text/plain", "text/markdown"]);

function textFilesOf({ parts }: Message): TextFile[] {
  return parts.flatMap(({ content, mediaType, filename }) =>
    content?.$case === "raw" && TEXT_TYPES.has(mediaType)
      ? [{ name: filename, text: Buffer.from(content.value).toString("utf8") }]
      : [],
  );
}

function artifactOf({ name, part }: Step & { kind: "artifact" }): Artifact {
  return {
    artifactId: name,
    name: part.filename === "" ? name : part.filename,
    description: "",
    parts: [part],
    metadata: undefined,
    extensions: [],
  };
}

interface TaskName {
  readonly taskId: string;
  readonly contextId: string;
}

/** What a task becomes: its artifacts, and its state with what the agent says. */
type Change =
  | { readonly kind: "artifact"; readonly artifact: Artifact }
  | { readonly kind: "status"; readonly status: TaskStatus };

export class SkillExecutor implements AgentExecutor {
  readonly #skill: Skill;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #log: Logger;
  /** Tasks that are worked on or wait for their caller. */
  readonly #open = new Map<string, { readonly contextId: string; readonly canceling: AbortController }>();

  constructor({ skill, clock, random, log }: SkillExecutorOptions) {
    this.#skill = skill;
    this.#clock = clock;
    this.#random = random;
    this.#log = log;
  }

  execute = async (context: RequestContext, bus: ExecutionEventBus): Promise<void> => {
    const { taskId, contextId, userMessage, task } = context;
    const run = { contextId, canceling: new AbortController() };
    this.#open.set(taskId, run);
    const begun: Task = {
      id: taskId,
      contextId,
      status: this.#status({ taskId, contextId }, TaskState.TASK_STATE_WORKING),
      artifacts: task?.artifacts ?? [],
      history: task?.history ?? [userMessage],
      metadata: undefined,
    };
    bus.publish(AgentEvent.task(begun));
    const { signal } = run.canceling;
    for await (const change of this.#changes(begun, signal)) {
      // Its cancellation has been published, and nothing may follow a final state.
      if (signal.aborted) break;
      if (change.kind === "status" && isFinal(change.status)) this.#open.delete(taskId);
      publish(bus, { taskId, contextId }, change);
    }
  };

  cancelTask = async (taskId: string, bus: ExecutionEventBus): Promise<void> => {
    const run = this.#open.get(taskId);
    // Answered already: its final state is on its way.
    if (run === undefined) return;
    this.#open.delete(taskId);
    run.canceling.abort();
    const name = { taskId, contextId: run.contextId };
    publish(bus, name, { kind: "status", status: this.#status(name, TaskState.TASK_STATE_CANCELED) });
  };

  /** The task that a crash left unfinished, after its skill has run again. */
  async finish(task: Task): Promise<Task> {
    const finished: Task = { ...task, artifacts: [] };
    for await (const change of this.#changes(task, new AbortController().signal)) {
      if (change.kind === "artifact") finished.artifacts.push(change.artifact);
      else finished.status = change.status;
    }
    const said = finished.status?.message;
    return said === undefined ? finished : { ...finished, history: [...task.history, said] };
  }

  async *#changes(task: Task, signal: AbortSignal): AsyncGenerator<Change, void, undefined> {
    const name = { taskId: task.id, contextId: task.contextId };
    const status = (state: TaskState, parts?: Part[]) =>
      ({ kind: "status", status: this.#status(name, state, parts) }) as const;
    const said = callerMessages(task);
    const messages = said.map(textOf);
    const files = said.flatMap(textFilesOf);
    if (messages.at(-1) === "" && files.length === 0) {
      yield status(TaskState.TASK_STATE_REJECTED);
      return;
    }
    try {
      for await (const step of this.#skill(messages, signal, files)) {
        if (step.kind === "artifact") yield { kind: "artifact", artifact: artifactOf(step) };
        else if (step.kind === "progress") yield status(TaskState.TASK_STATE_WORKING, [textPart(step.text)]);
        else {
          const parts = [textPart(step.text), optionsPart(step.options)];
          yield status(TaskState.TASK_STATE_INPUT_REQUIRED, parts);
          return;
        }
      }
      yield status(TaskState.TASK_STATE_COMPLETED);
    } catch (error) {
      const reason = error instanceof Error ? error.name : "unknown";
      if (!signal.aborted) this.#log.error({ event: "task_failed", taskId: task.id, reason });
      yield status(TaskState.TASK_STATE_FAILED);
    }
  }

  #status({ taskId, contextId }: TaskName, state: TaskState, parts?: Part[]): TaskStatus {
    const message: Message | undefined = parts && {
      messageId: this.#random.bytes(16).toString("hex"),
      contextId,
      taskId,
      role: Role.ROLE_AGENT,
      parts,
      metadata: undefined,
      extensions: [],
      referenceTaskIds: [],
    };
    return { state, message, timestamp: new Date(this.#clock.now()).toISOString() };
  }
}

function publish(bus: ExecutionEventBus, name: TaskName, change: Change): void {
  if (change.kind === "status") {
    bus.publish(AgentEvent.statusUpdate({ ...name, status: change.status, metadata: undefined }));
    return;
  }
  const { artifact } = change;
  bus.publish(
    AgentEvent.artifactUpdate({ ...name, artifact, append: false, lastChunk: true, metadata: undefined }),
  );
}
