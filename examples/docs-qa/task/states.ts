// Which task states are final (A2A 1.0, section 4.1.3).
import { type Task, TaskState, type TaskStatus } from "@a2a-js/sdk";

const TERMINAL: ReadonlySet<TaskState> = new Set([
  TaskState.TASK_STATE_COMPLETED,
  TaskState.TASK_STATE_FAILED,
  TaskState.TASK_STATE_CANCELED,
  TaskState.TASK_STATE_REJECTED,
]);

export function isFinal(status: TaskStatus | undefined): boolean {
  return status !== undefined && TERMINAL.has(status.state);
}

export function isTerminal(task: Task): boolean {
  return isFinal(task.status);
}
