// The agent's tasks: in memory to read, on disk to survive. Implements the SDK's TaskStore.
// Invariants: a caller sees only its own tasks; a final task never changes again, whoever writes last; a
// message ID leads to the one task it made.
import {
  type ListTasksRequest,
  type ListTasksResponse,
  type Message,
  Role,
  type Task,
  TaskState,
  type TaskStatus,
} from "@a2a-js/sdk";
import type { ServerCallContext, TaskStore } from "@a2a-js/sdk/server";
import type { Clock } from "../../../src/domain/clock.ts";
import type { StoredTask, TaskFiles, TaskScope } from "./task-files.ts";

const TERMINAL: ReadonlySet<TaskState> = new Set([
  TaskState.TASK_STATE_COMPLETED,
  TaskState.TASK_STATE_FAILED,
  TaskState.TASK_STATE_CANCELED,
  TaskState.TASK_STATE_REJECTED,
]);

export function isFinal(status: TaskStatus | undefined): boolean {
  return status !== undefined && TERMINAL.has(status.state);
}

/** Whether a task in this state changes only by its caller's next message, if at all. */
export function isSettledState(status: TaskStatus | undefined): boolean {
  return isFinal(status) || status?.state === TaskState.TASK_STATE_INPUT_REQUIRED;
}

/** Whether nothing works on the task: it is final, or its agent's question is the last word. */
export function isSettled(task: Task): boolean {
  return (
    isFinal(task.status) || (isSettledState(task.status) && task.history.at(-1)?.role === Role.ROLE_AGENT)
  );
}

const PAGE_SIZE_DEFAULT = 50;

const changedAt = (task: Task): string => task.status?.timestamp ?? "";

/** Newest change first; the ID decides between two of the same instant. */
function newestFirst(one: Task, other: Task): number {
  return changedAt(other).localeCompare(changedAt(one)) || other.id.localeCompare(one.id);
}

function tokenOf(task: Task): string {
  return Buffer.from(`${changedAt(task)} ${task.id}`).toString("base64url");
}

function isAfter(task: Task, pageToken: string): boolean {
  const [at = "", id = ""] = Buffer.from(pageToken, "base64url").toString().split(" ");
  return changedAt(task) < at || (changedAt(task) === at && task.id < id);
}

/** One page of a caller's tasks. `request.status` 0 means any. */
export function listTasks(tasks: Iterable<Task>, request: ListTasksRequest): ListTasksResponse {
  const { contextId, status, pageToken, statusTimestampAfter } = request;
  const pageSize = request.pageSize ?? PAGE_SIZE_DEFAULT;
  const after = statusTimestampAfter ? Date.parse(statusTimestampAfter) : undefined;
  const matching = [...tasks]
    .filter((task) => !contextId || task.contextId === contextId)
    .filter((task) => !status || task.status?.state === status)
    .filter((task) => after === undefined || Date.parse(changedAt(task)) > after)
    .sort(newestFirst);
  const rest = pageToken ? matching.filter((task) => isAfter(task, pageToken)) : matching;
  const page = rest.slice(0, pageSize);
  const last = page.at(-1);
  return {
    tasks: page.map((task) => {
      const copy = structuredClone(task);
      return request.includeArtifacts ? copy : { ...copy, artifacts: [] };
    }),
    nextPageToken: last !== undefined && rest.length > page.length ? tokenOf(last) : "",
    pageSize,
    totalSize: matching.length,
  };
}

/** Beyond it the oldest settled tasks are forgotten, whatever their age. */
const TASKS_MAX = 10_000;

export function scopeOf(context: ServerCallContext): TaskScope {
  return { caller: context.user?.userName ?? "", tenant: context.tenant ?? "" };
}

const keyOf = (scope: TaskScope): string => JSON.stringify([scope.caller, scope.tenant]);

/** A message of one caller: message IDs are the callers' own, so two callers may use the same. */
export function messageKey(scope: TaskScope, messageId: string): string {
  return JSON.stringify([scope.caller, scope.tenant, messageId]);
}

/** The messages a caller sent in a task: what a repeat is recognized by. */
export function callerMessages(task: Task): readonly Message[] {
  return task.history.filter((message) => message.role === Role.ROLE_USER);
}

export interface DurableTaskStoreOptions {
  readonly files: TaskFiles;
  readonly clock: Clock;
  /** Milliseconds a settled task is kept. */
  readonly retentionMs: number;
}

export class DurableTaskStore implements TaskStore {
  readonly #files: TaskFiles;
  readonly #clock: Clock;
  readonly #retentionMs: number;
  /** In the order they were made. */
  readonly #tasks = new Map<string, StoredTask>();
  readonly #taskByMessage = new Map<string, string>();
  readonly #watchers = new Map<string, Set<() => void>>();
  #onMessageStored: (key: string) => void = () => undefined;
  /** Writes of one task follow each other; the last settled promise of each. */
  readonly #writes = new Map<string, Promise<void>>();

  constructor({ files, clock, retentionMs }: DurableTaskStoreOptions) {
    this.#files = files;
    this.#clock = clock;
    this.#retentionMs = retentionMs;
    const stored = files.readAll();
    const madeAt = ({ task }: StoredTask) => task.status?.timestamp ?? "";
    stored.sort((one, other) => madeAt(one).localeCompare(madeAt(other)));
    for (const entry of stored) this.#remember(entry);
  }

  /** Tasks that a crash left unfinished. */
  unfinished(): StoredTask[] {
    return [...this.#tasks.values()]
      .filter(({ task }) => !isSettled(task))
      .map((entry) => structuredClone(entry));
  }

  async load(taskId: string, context: ServerCallContext): Promise<Task | undefined> {
    const entry = this.#tasks.get(taskId);
    return entry && keyOf(entry.scope) === keyOf(scopeOf(context)) ? structuredClone(entry.task) : undefined;
  }

  async save(task: Task, context: ServerCallContext): Promise<void> {
    await this.saveFor(scopeOf(context), task);
  }

  /** Saves in a scope; a task that is final already stays as it is. */
  async saveFor(scope: TaskScope, task: Task): Promise<void> {
    const entry: StoredTask = { scope, task: structuredClone(task) };
    const before = this.#writes.get(task.id) ?? Promise.resolve();
    const write = before
      .catch(() => undefined)
      .then(async () => {
        const present = this.#tasks.get(task.id);
        if (present !== undefined && isFinal(present.task.status)) return;
        await this.#files.write(entry);
        this.#remember(entry);
      });
    this.#writes.set(task.id, write);
    try {
      await write;
    } finally {
      if (this.#writes.get(task.id) === write) this.#writes.delete(task.id);
    }
    await this.#forgetOld();
  }

  /** Resolves when everything saved so far is on disk. */
  async flush(): Promise<void> {
    await Promise.allSettled(this.#writes.values());
  }

  async list(request: ListTasksRequest, context: ServerCallContext): Promise<ListTasksResponse> {
    const key = keyOf(scopeOf(context));
    const own = [...this.#tasks.values()].filter((entry) => keyOf(entry.scope) === key);
    return listTasks(
      own.map((entry) => entry.task),
      request,
    );
  }

  /** The task that a caller's message made; undefined when it made none that is still kept. */
  findByMessage(scope: TaskScope, messageId: string): Task | undefined {
    const taskId = this.#taskByMessage.get(messageKey(scope, messageId));
    const entry = taskId === undefined ? undefined : this.#tasks.get(taskId);
    return entry && structuredClone(entry.task);
  }

  /** Calls `listener` with the key of each caller's message as soon as its task is on disk. */
  onMessageStored(listener: (key: string) => void): void {
    this.#onMessageStored = listener;
  }

  /** Resolves when the task is settled, or is not there (any more). */
  async whenSettled(taskId: string): Promise<void> {
    for (;;) {
      const entry = this.#tasks.get(taskId);
      if (entry === undefined || isSettled(entry.task)) return;
      await new Promise<void>((resolve) => {
        const watchers = this.#watchers.get(taskId) ?? new Set();
        this.#watchers.set(taskId, watchers.add(resolve));
      });
    }
  }

  #remember(entry: StoredTask): void {
    const { scope, task } = entry;
    this.#tasks.set(task.id, entry);
    for (const { messageId } of callerMessages(task)) {
      const key = messageKey(scope, messageId);
      this.#taskByMessage.set(key, task.id);
      this.#onMessageStored(key);
    }
    this.#notify(task.id);
  }

  #notify(taskId: string): void {
    const watchers = this.#watchers.get(taskId);
    this.#watchers.delete(taskId);
    for (const watcher of watchers ?? []) watcher();
  }

  /** The oldest come first, so it stops at the first task that is kept. */
  async #forgetOld(): Promise<void> {
    const keptSince = new Date(this.#clock.now() - this.#retentionMs).toISOString();
    for (const { scope, task } of this.#tasks.values()) {
      const tooMany = this.#tasks.size > TASKS_MAX;
      const tooOld = (task.status?.timestamp ?? "") < keptSince;
      if (!isSettled(task) || !(tooMany || tooOld)) return;
      this.#tasks.delete(task.id);
      for (const { messageId } of callerMessages(task))
        this.#taskByMessage.delete(messageKey(scope, messageId));
      this.#notify(task.id);
      await this.#files.remove(task.id);
    }
  }
}
