// ListTasks (A2A 1.0, section 3.1.4): filtering, newest first, pages by cursor.
import type { ListTasksRequest, ListTasksResponse, Task } from "@a2a-js/sdk";

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
