// A question of the agent: posted in the room, and waited for while the delegation is released.
// Invariants: the question's events are stored with their transaction IDs before the first is sent; while the answer is
// waited for the policy (recheck-policy.ts) is applied anew at least every half minute, and nothing is sent to the agent once it
// refuses; the wait has an end, and so has the number of questions. The answer is handed over by dispatch.ts.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { PendingSend } from "../ledger/replies.ts";
import { questionParts } from "../matrix/agent-question-event.ts";
import { A2aFailure } from "./a2a/classify-failure.ts";
import type { ContentPart } from "./a2a/protocol.ts";
import { optionsOf } from "./agent-question-options.ts";
import { AnswerAssembly, answerOf } from "./answer-text.ts";
import { cancelTask } from "./cancel-task.ts";
import { recheck, stoppedFollowing } from "./recheck-policy.ts";
import type { Flow } from "./running-delegation.ts";
import { answer, refused, unsent } from "./send-reply.ts";
import { canceled, endOfPhase, FOLLOW_VERDICTS, failed, finish, type Verdict } from "./verdicts.ts";

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
  const asks = answerOf(rest, deps.limits.answerBytes);
  const parts = await questionParts(asks, options, source, deps.clock);
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
  return post(flow, asked.taskId, sends);
}

/** Goes on with a delegation whose task awaits input. */
export async function awaitInput(flow: Flow): Promise<Verdict> {
  const { claimed, deps } = flow;
  const { a2aTaskId: taskId, inputUntil: until } = claimed;
  // The ledger keeps a task for every delegation in this state.
  if (taskId === undefined) return finish(failed("follow", "outcome_unknown"));
  if (until === undefined) return unanswered(flow, taskId);
  const { inputWait, replyDeadline } = deps.limits;
  // Nobody has seen a question that is not posted: it may take as long as an answer may.
  const deadline = until - inputWait + Math.max(inputWait, replyDeadline);
  const sends = await unsent(flow, "question", deadline);
  if (sends === undefined || sends.length > 0) {
    if (sends !== undefined && flow.now < deadline) return post(flow, taskId, sends);
    await cancelTask(flow, taskId);
    return finish(failed("reply", "reply_deadline_exceeded"));
  }
  // An answer that was sent while the bridge was away has yet to come: then the wait begins anew.
  const end = Math.max(until, flow.host.upSince + inputWait);
  if (flow.now < end) return look(flow, taskId, end);
  const ended = await flow.persist(() => deps.ledger.endWait(claimed.lease));
  return ended ? unanswered(flow, taskId) : wait(flow.now + LOOK_MS);
}

/** The wait was ended, so that no answer can be recorded any more. */
async function unanswered(flow: Flow, taskId: string): Promise<Verdict> {
  await cancelTask(flow, taskId);
  return finish(failed("follow", "input_wait_elapsed"));
}

async function post(flow: Flow, taskId: string, sends: readonly PendingSend[]): Promise<Verdict> {
  const { claimed, deps } = flow;
  for (const [index, send] of sends.entries()) {
    // While the event before was sent, another process may have taken the delegation over.
    if (index > 0 && !flow.isFresh) {
      throw new DrawbridgeError("lease_lost", `the lease on ${claimed.lease.delegationId} may have run out`);
    }
    const result = await flow.send(send);
    if (result.kind === "retry") return wait(flow.now + Math.max(result.afterMs, flow.backoff()));
    if (result.kind === "refused") {
      await cancelTask(flow, taskId);
      return finish(refused(result.reason));
    }
    const { now } = flow;
    const times = { now, until: now + deps.limits.inputWait };
    await flow.persist(() => deps.ledger.recordAsked(claimed.lease, send.sendId, result.eventId, times));
  }
  return wait(flow.now + Math.min(LOOK_MS, deps.limits.inputWait));
}

/** The agent may end its task without an answer, or lose its trust. */
async function look(flow: Flow, taskId: string, until: number): Promise<Verdict> {
  const check = await recheck(flow.deps, flow.claimed);
  if (check.kind === "stopped") return finish(stoppedFollowing(check));
  const later = () => wait(Math.min(flow.now + LOOK_MS, until));
  if (check.kind === "unknown") return later();
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
  return later();
}

/** Releases the delegation; an answer makes it due at once. */
function wait(wakeAt: number): Verdict {
  return { kind: "defer", wakeAt, reason: "input_open", undelivered: false };
}
