// A question as the SDK sends it, a task as the SDK reads it (A2A 1.0, sections 3 and 4.1).
// Invariants: a task's identifiers are bounded and printable, so that the ledger can hold them; an update has a bounded
// number of parts, empty ones included; states that the bridge does not know count as still open.
import {
  type Message,
  type Part,
  Role,
  type SendMessageRequest,
  type StreamResponse,
  type Task,
  TaskState,
  type TaskStatus,
} from "@a2a-js/sdk";
import type { AnswerFile } from "../../matrix/files.ts";
import { A2aFailure } from "./classify-failure.ts";

/** What is handed to an agent: a question, or the answer to one of its own. */
export interface Question {
  /** Stable: a repeated request carries the same one. */
  readonly messageId: string;
  readonly text: string;
  readonly file?: FilePart | undefined;
  /** The task that asked; undefined for a new one. */
  readonly taskId: string | undefined;
  readonly contextId: string | undefined;
}

const ACCEPTED_OUTPUT_MODES = ["text/markdown", "text/plain", "application/json"];

function partsToSend({ text, file }: Question): Part[] {
  const part = (content: Part["content"], filename: string, mediaType: string): Part => {
    return { content, metadata: undefined, filename, mediaType };
  };
  const said = part({ $case: "text", value: text }, "", "text/plain");
  if (file === undefined) return [said];
  const sent = part({ $case: "raw", value: Buffer.from(file.content) }, file.name, file.mediaType);
  return text === "" ? [sent] : [said, sent];
}

/** SendMessage or SendStreamingMessage: returns as soon as a task stands, with no history in it. */
export function sendRequest(question: Question): SendMessageRequest {
  const { messageId, contextId = "", taskId = "" } = question;
  const message: Message = {
    ...{ messageId, contextId, taskId, role: Role.ROLE_USER, parts: partsToSend(question) },
    ...{ metadata: undefined, extensions: [], referenceTaskIds: [] },
  };
  return {
    tenant: "",
    message,
    configuration: {
      acceptedOutputModes: ACCEPTED_OUTPUT_MODES,
      taskPushNotificationConfig: undefined,
      historyLength: 0,
      returnImmediately: true,
    },
    metadata: undefined,
  };
}

export type ContentPart =
  | { readonly kind: "text"; readonly text: string; readonly mediaType: string }
  | { readonly kind: "data"; readonly json: string }
  | { readonly kind: "link"; readonly name: string; readonly mediaType: string; readonly url: string }
  | ({ readonly kind: "file" } & FilePart);

export type FilePart = AnswerFile;

export type ArtifactView = { readonly artifactId: string; readonly parts: readonly ContentPart[] };

/** Where a task stands, and what the agent says with that. */
export interface StatusView {
  readonly taskId: string;
  readonly contextId: string | undefined;
  readonly phase: Phase;
  readonly parts: readonly ContentPart[];
  /** What names this status among the task's others: its message, else its time. */
  readonly statusKey: string | undefined;
}

/** Whether a task still shows the question that was answered. @param orUnnamed one without a key counts, though it may be another */
export function isAnswered({ phase, statusKey }: StatusView, key?: string, orUnnamed = false): boolean {
  return phase === "input_required" && statusKey === key && (key !== undefined || orUnnamed);
}

export interface TaskView extends StatusView {
  readonly kind: "task";
  readonly artifacts: readonly ArtifactView[];
  /** Of what the agent was sent, as far as the task's history shows it: an agent may keep its own messages only. */
  readonly messageIds: readonly string[];
  /** Milliseconds since the Unix epoch, by the agent's clock; undefined when it names none. */
  readonly updatedAt: number | undefined;
}

export type TaskUpdate =
  | TaskView
  | ({ readonly kind: "status" } & StatusView)
  | ({ readonly kind: "artifact"; readonly artifact: ArtifactView; readonly append: boolean } & Pick<
      StatusView,
      "taskId" | "contextId"
    >);

export type AgentUpdate =
  | TaskUpdate
  | ({ readonly kind: "message" } & Pick<StatusView, "contextId" | "parts">);

const ENDS = [
  [TaskState.TASK_STATE_COMPLETED, "completed"],
  [TaskState.TASK_STATE_FAILED, "failed"],
  [TaskState.TASK_STATE_REJECTED, "rejected"],
  [TaskState.TASK_STATE_CANCELED, "canceled"],
  [TaskState.TASK_STATE_INPUT_REQUIRED, "input_required"],
  [TaskState.TASK_STATE_AUTH_REQUIRED, "auth_required"],
] as const;
const PHASES: ReadonlyMap<TaskState | undefined, Phase> = new Map(ENDS);

/** Where a task stands. `open` is everything that may still change without anybody's help. */
export type Phase = "open" | (typeof ENDS)[number][1];

const IDENTIFIER = /^[\x21-\x7e]{1,512}$/;

/** The SDK passes on what a 0.3 peer sent, whatever its type; a RegExp tests anything as if it were a string. */
const isIdentifier = (value: unknown): value is string => typeof value === "string" && IDENTIFIER.test(value);

function taskIdOf(value: unknown): string {
  if (!isIdentifier(value)) throw new A2aFailure("protocol");
  return value;
}

const contextIdOf = (value: unknown): string | undefined => (isIdentifier(value) ? value : undefined);

/** A text of an answer, which may be any. @throws A2aFailure `protocol` for a value that is no text */
function textIn(value: unknown): string {
  if (typeof value !== "string") throw new A2aFailure("protocol");
  return value;
}

/** Parts and artifacts of one update together. */
const PARTS_MAX = 4_096;
/** Data nested deeper is written in one line: its indentation could be many times as long as the data itself. */
const INDENTED_LEVELS_MAX = 16;

/** @throws A2aFailure `too_large` */
function assertCountable(parts: number): void {
  if (parts > PARTS_MAX) throw new A2aFailure("too_large");
}

function isShallow(value: unknown, levels = INDENTED_LEVELS_MAX): boolean {
  if (typeof value !== "object" || value === null) return true;
  return levels > 0 && Object.values(value).every((inner) => isShallow(inner, levels - 1));
}

function partOf(part: Part): ContentPart | undefined {
  const content = part.content;
  const named = { name: textIn(part.filename), mediaType: textIn(part.mediaType) };
  switch (content?.$case) {
    case "text":
      return { kind: "text", text: textIn(content.value), mediaType: named.mediaType };
    case "data":
      return {
        kind: "data",
        json: JSON.stringify(content.value, null, isShallow(content.value) ? 2 : 0) ?? "null",
      };
    case "url":
      return { kind: "link", ...named, url: textIn(content.value) };
    case "raw":
      return { kind: "file", ...named, content: content.value };
    default:
      return undefined;
  }
}

function partsOf(parts: readonly Part[] | undefined): ContentPart[] {
  assertCountable(parts?.length ?? 0);
  return (parts ?? []).map(partOf).filter((part) => part !== undefined);
}

function statusView(taskId: unknown, contextId: unknown, status: TaskStatus | undefined): StatusView {
  return {
    taskId: taskIdOf(taskId),
    contextId: contextIdOf(contextId),
    phase: PHASES.get(status?.state) ?? "open",
    parts: partsOf(status?.message?.parts),
    statusKey: [status?.message?.messageId, status?.timestamp].find(isIdentifier),
  };
}

/** @throws A2aFailure `protocol`, or `too_large` for too many parts */
export function taskView(task: Task): TaskView {
  assertCountable(task.artifacts.reduce((sum, { parts }) => sum + 1 + parts.length, 0));
  const updatedAt = Date.parse(task.status?.timestamp ?? "");
  return {
    kind: "task",
    ...statusView(task.id, task.contextId, task.status),
    artifacts: task.artifacts.map(({ artifactId, parts }) => ({
      artifactId: textIn(artifactId),
      parts: partsOf(parts),
    })),
    messageIds: task.history.filter(({ role }) => role !== Role.ROLE_AGENT).map(({ messageId }) => messageId),
    updatedAt: Number.isNaN(updatedAt) ? undefined : updatedAt,
  };
}

/** The result of SendMessage: a task, or a message that is the whole answer. */
export function sendResult(result: Task | Message): AgentUpdate {
  return "messageId" in result
    ? { kind: "message", contextId: contextIdOf(result.contextId), parts: partsOf(result.parts) }
    : taskView(result);
}

/** One event of a stream; undefined for kinds that the bridge does not know. */
export function streamUpdate(event: StreamResponse): AgentUpdate | undefined {
  const payload = event.payload;
  switch (payload?.$case) {
    case "task":
    case "message":
      return sendResult(payload.value);
    case "statusUpdate": {
      const { taskId, contextId, status } = payload.value;
      return { kind: "status", ...statusView(taskId, contextId, status) };
    }
    case "artifactUpdate": {
      const { taskId, contextId, artifact, append } = payload.value;
      return {
        kind: "artifact",
        taskId: taskIdOf(taskId),
        contextId: contextIdOf(contextId),
        artifact: { artifactId: textIn(artifact?.artifactId ?? ""), parts: partsOf(artifact?.parts) },
        append,
      };
    }
    default:
      return undefined;
  }
}
