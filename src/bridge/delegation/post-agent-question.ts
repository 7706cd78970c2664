// A question of the agent: posted in the room, and waited for while the delegation is released.
// Invariants: the question's events are stored with their transaction IDs before the first is sent; while the answer is
// waited for the policy (recheck.ts) is applied anew at least every half minute, and nothing is sent to the agent once it
// refuses; the wait has an end, and so has the number of questions. The answer is handed over by dispatch.ts.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { PendingSend } from "../ledger/replies.ts";
import { questionParts } from "../matrix/agent-question.ts";
import { A2aFailure } from "./a2a/failure.ts";
import type { ContentPart } from "./a2a/protocol.ts";
import { optionsOf } from "./agent-question-options.ts";
import { AnswerAssembly, answerOf } from "./answer-text.ts";
import { cancelTask } from "./cancel-task.ts";
import { canceled, endOfPhase, FOLLOW_VERDICTS, failed, finish, type Verdict } from "./outcome.ts";
import { recheck, stoppedFollowing } from "./recheck-policy.ts";
import { abortable, answer, refused } from "./reply.ts";
import type { Flow } from "./running-delegation.ts";

/** How often the policy and the task are looked at while an answer is waited for. */
const LOOK_MS = 30_000;
/** Events of questions in one delegation. */
const QUESTION_EVENTS_MAX = 64;

export interface AskedBack {
  readonly taskId: string;
  readonly contextId: string | undefined;
  readonly statusKey: string | undefined;
  readonly parts: readonly ContentPart[];
  readonly agentVersion: string | undefined;
}

/** Persists a question of the agent and posts it. */
export async function ask(flow: Flow, asked: AskedBack): Promise<Verdict> {
  const { claimed, deps } = flow;
  flow.taskId = asked.taskId;
  const { options, rest } = optionsOf(asked.parts);
  const source = {
    eventId: claimed.sourceEventId,
    threadRoot: claimed.threadRoot,
    sender: claimed.sender,
    roomId: claimed.roomId,
    texts: deps.textsOf(claimed.roomId),
  };
  const parts = await questionParts(answerOf(rest), options, source, deps.clock);
  if (claimed.asked + parts.length > QUESTION_EVENTS_MAX) {
    await cancelTask(flow, asked.taskId);
    return finish(failed(flow.stage, "questions_exceeded"));
  }
  const question = {
    parts,
    options,
    key: asked.statusKey,
    taskId: asked.taskId,
    contextId: asked.contextId,
    agentVersion: asked.agentVersion,
    asked: claimed.asked,
    until: flow.now + deps.limits.inputWait,
  };
  const sends = await flow.persist(() => deps.ledger.recordQuestion(claimed.lease, question, flow.now));
  if (sends === "canceled") {
    await cancelTask(flow, asked.taskId);
    return finish(canceled(flow.stage));
  }
  flow.stage = "follow";
  flow.host.wake();
  return post(flow, asked.taskId, sends, question.until);
}

/** Goes on with a delegation whose task awaits input. */
export async function awaitInput(flow: Flow): Promise<Verdict> {
  const { claimed, deps } = flow;
  const { a2aTaskId: taskId, inputUntil: until } = claimed;
  // The ledger keeps both for every delegation in this state.
  if (taskId === undefined || until === undefined) return finish(failed("follow", "outcome_unknown"));
  const unsent = await flow.persist(() => deps.ledger.pendingSends(claimed.lease, "question"));
  // Nobody has seen a question that is not posted: it may take as long as an answer may.
  const isPosted = unsent.length === 0;
  const { inputWait, replyDeadline } = deps.limits;
  if (flow.now >= (isPosted ? until : until - inputWait + Math.max(inputWait, replyDeadline))) {
    await cancelTask(flow, taskId);
    return finish(
      isPosted ? failed("follow", "input_wait_elapsed") : failed("reply", "reply_deadline_exceeded"),
    );
  }
  if (unsent.length > 0) return post(flow, taskId, unsent, until);
  return look(flow, taskId, until);
}

async function post(
  flow: Flow,
  taskId: string,
  sends: readonly PendingSend[],
  recordedUntil: number,
): Promise<Verdict> {
  const { claimed, deps } = flow;
  let until = recordedUntil;
  for (const [index, send] of sends.entries()) {
    // While the event before was sent, another process may have taken the delegation over.
    if (index > 0 && !flow.isFresh) {
      throw new DrawbridgeError("lease_lost", `the lease on ${claimed.lease.delegationId} may have run out`);
    }
    const result = await abortable(deps.sender.send(send), flow.signal);
    if (result.kind === "retry") return wait(flow, until, Math.max(result.afterMs, flow.backoff()));
    if (result.kind === "refused") {
      await cancelTask(flow, taskId);
      return finish(refused(result.reason));
    }
    until = flow.now + deps.limits.inputWait;
    await flow.persist(() => deps.ledger.recordAsked(claimed.lease, send.sendId, result.eventId, until));
  }
  return wait(flow, until, LOOK_MS);
}

/** The agent may end its task without an answer, or lose its trust. */
async function look(flow: Flow, taskId: string, until: number): Promise<Verdict> {
  const check = await recheck(flow.deps, flow.claimed);
  if (check.kind === "stopped") return finish(stoppedFollowing(check));
  if (check.kind === "unknown") return wait(flow, until, LOOK_MS);
  try {
    const task = await flow.connect(check).getTask(taskId, flow.signal);
    const assembly = new AnswerAssembly(flow.deps.limits.answerBytes);
    const phase = assembly.take({ kind: "task", task }, check.card.capabilities.streaming === true) ?? "open";
    if (phase === "completed") return answer(flow, assembly.answer(), check.agentVersion);
    const ended = endOfPhase(phase, "follow");
    if (ended !== undefined) return finish(ended);
  } catch (error) {
    if (!(error instanceof A2aFailure)) throw error;
    const verdict = FOLLOW_VERDICTS[error.kind];
    if (verdict.kind === "end" && error.kind !== "protocol") return finish(failed("follow", verdict.reason));
  }
  return wait(flow, until, LOOK_MS);
}

/** Releases the delegation; an answer makes it due at once. */
function wait(flow: Flow, until: number, ms: number): Verdict {
  const wakeAt = Math.min(flow.now + ms, until);
  return { kind: "defer", wakeAt, reason: "input_open", undelivered: false };
}
