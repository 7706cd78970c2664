// Answers one question as an A2A task.
// Invariants: the first event is the task; every task that was begun ends in a final state; no text of an
// internal error reaches a caller.
import { type Artifact, type Message, type Part, type Task, TaskState, type TaskStatus } from "@a2a-js/sdk";
import {
  AgentEvent,
  type AgentExecutor,
  type ExecutionEventBus,
  type RequestContext,
} from "@a2a-js/sdk/server";
import type { Logger } from "pino";
import type { Clock } from "../../../src/domain/clock.ts";
import { ANSWER_MEDIA_TYPE } from "../search/answer.ts";
import { callerMessages } from "./store.ts";

/** Answers a question in Markdown. */
export type Answer = (question: string) => Promise<string>;

export interface AnsweringExecutorOptions {
  readonly answer: Answer;
  readonly clock: Clock;
  readonly log: Logger;
}

const ARTIFACT_ID = "answer";

function questionOf(messages: readonly Message[]): string {
  const parts = messages.at(-1)?.parts ?? [];
  return parts
    .map((part) => (part.content?.$case === "text" ? part.content.value : ""))
    .join("\n")
    .trim();
}

function answerArtifact(text: string): Artifact {
  const part: Part = {
    content: { $case: "text", value: text },
    mediaType: ANSWER_MEDIA_TYPE,
    filename: "",
    metadata: undefined,
  };
  return {
    artifactId: ARTIFACT_ID,
    name: ARTIFACT_ID,
    description: "",
    parts: [part],
    metadata: undefined,
    extensions: [],
  };
}

type Outcome =
  | { readonly state: TaskState.TASK_STATE_COMPLETED; readonly artifact: Artifact }
  | { readonly state: TaskState.TASK_STATE_REJECTED | TaskState.TASK_STATE_FAILED };

export class AnsweringExecutor implements AgentExecutor {
  readonly #answer: Answer;
  readonly #clock: Clock;
  readonly #log: Logger;
  /** Tasks being answered, and whether each was cancelled. */
  readonly #running = new Map<string, { readonly contextId: string; canceled: boolean }>();

  constructor({ answer, clock, log }: AnsweringExecutorOptions) {
    this.#answer = answer;
    this.#clock = clock;
    this.#log = log;
  }

  execute = async (context: RequestContext, bus: ExecutionEventBus): Promise<void> => {
    const { taskId, contextId, userMessage, task } = context;
    const run = { contextId, canceled: false };
    this.#running.set(taskId, run);
    bus.publish(
      AgentEvent.task({
        id: taskId,
        contextId,
        status: this.#status(TaskState.TASK_STATE_WORKING),
        artifacts: task?.artifacts ?? [],
        history: task?.history ?? [userMessage],
        metadata: undefined,
      }),
    );
    const outcome = await this.#outcome(taskId, questionOf([userMessage]));
    this.#running.delete(taskId);
    // Its cancellation has been published, and nothing may follow a final state.
    if (run.canceled) return;
    if (outcome.state === TaskState.TASK_STATE_COMPLETED) {
      bus.publish(
        AgentEvent.artifactUpdate({
          taskId,
          contextId,
          artifact: outcome.artifact,
          append: false,
          lastChunk: true,
          metadata: undefined,
        }),
      );
    }
    this.#publishState(bus, taskId, contextId, outcome.state);
  };

  cancelTask = async (taskId: string, bus: ExecutionEventBus): Promise<void> => {
    const run = this.#running.get(taskId);
    // Answered already: its final state is on its way.
    if (run === undefined || run.canceled) return;
    run.canceled = true;
    this.#publishState(bus, taskId, run.contextId, TaskState.TASK_STATE_CANCELED);
  };

  /** The final form of a task that a crash left unfinished: its question is answered again. */
  async finish(task: Task): Promise<Task> {
    const outcome = await this.#outcome(task.id, questionOf(callerMessages(task)));
    return {
      ...task,
      status: this.#status(outcome.state),
      artifacts: outcome.state === TaskState.TASK_STATE_COMPLETED ? [outcome.artifact] : [],
    };
  }

  async #outcome(taskId: string, question: string): Promise<Outcome> {
    if (question === "") return { state: TaskState.TASK_STATE_REJECTED };
    try {
      const text = await this.#answer(question);
      return { state: TaskState.TASK_STATE_COMPLETED, artifact: answerArtifact(text) };
    } catch (error) {
      this.#log.error({
        event: "task_failed",
        taskId,
        reason: error instanceof Error ? error.name : "unknown",
      });
      return { state: TaskState.TASK_STATE_FAILED };
    }
  }

  #publishState(bus: ExecutionEventBus, taskId: string, contextId: string, state: TaskState): void {
    const status = this.#status(state);
    bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status, metadata: undefined }));
  }

  #status(state: TaskState): TaskStatus {
    return { state, message: undefined, timestamp: new Date(this.#clock.now()).toISOString() };
  }
}
