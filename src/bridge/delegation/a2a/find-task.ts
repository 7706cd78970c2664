// The search for the task of an earlier request, after a crash or an answer that never came (A2A 1.0, section 3.1.4,
// ListTasks: newest first). Invariants: the result is `absent` only when the agent's whole list back to the question's time
// was read and its tasks carry their history; anything less is `unusable`, and the caller does not send again.
import type { AgentClient } from "./agent-client.ts";
import { A2aFailure, type A2aFailureKind } from "./classify-failure.ts";
import type { TaskView } from "./protocol.ts";

const PAGE_SIZE = 50;
const PAGES_MAX = 20;
/** How far the agent's clock may run behind the bridge's. */
const CLOCK_SKEW_MS = 60 * 60 * 1_000;

export type FindResult =
  | { readonly kind: "found"; readonly task: TaskView }
  | { readonly kind: "absent" }
  | { readonly kind: "unusable" };

/** Failures which mean that the agent cannot list its tasks, not only at this moment. */
const CANNOT_LIST: ReadonlySet<A2aFailureKind> = new Set([
  "unsupported",
  "not_a2a",
  "protocol",
  "too_large",
  "agent_error",
  "task_not_found",
]);

/** @param askedAt when the question was admitted, epoch milliseconds. @throws A2aFailure when the agent is away just now */
export async function findTask(
  client: Pick<AgentClient, "listTasks">,
  messageId: string,
  askedAt: number,
  signal: AbortSignal,
): Promise<FindResult> {
  const pageTokens = new Set<string>();
  let [token, size] = ["", PAGE_SIZE];
  for (let page = 0; page < PAGES_MAX; page++) {
    let listed: Awaited<ReturnType<AgentClient["listTasks"]>>;
    try {
      listed = await client.listTasks({ token, size }, signal);
    } catch (error) {
      if (!(error instanceof A2aFailure && CANNOT_LIST.has(error.kind))) throw error;
      if (error.kind !== "too_large" || size === 1) return { kind: "unusable" };
      // Files of questions are in the tasks' history: fewer tasks may fit.
      size = Math.ceil(size / 10);
      continue;
    }
    const task = listed.tasks.find((candidate) => candidate.messageIds.includes(messageId));
    if (task !== undefined) return { kind: "found", task };

    const recent = listed.tasks.filter(
      ({ updatedAt = Number.POSITIVE_INFINITY }) => updatedAt >= askedAt - CLOCK_SKEW_MS,
    );
    // A task without history may be ours as well as another's.
    if (recent.some((candidate) => candidate.messageIds.length === 0)) return { kind: "unusable" };
    if (listed.next === "" || (listed.tasks.length > 0 && recent.length === 0)) return { kind: "absent" };
    if (pageTokens.has(listed.next)) return { kind: "unusable" };
    pageTokens.add(listed.next);
    token = listed.next;
  }
  return { kind: "unusable" };
}
