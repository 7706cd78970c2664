// Hands a claimed question, or the answer to one of the agent, over to the agent. Invariants: mapping, trust, sender, token
// of the issuer, event, attachment (and all of these again), limiter and call come in this order; one limiter token is spent, before
// the first call; no remote request is made between that write and the call; a call of unknown outcome is never simply repeated.
import { DrawbridgeError } from "../../domain/errors.ts";
import { serverOf, type UserId } from "../../domain/identifiers.ts";
import type { DelegationOutcome, LimiterBucket, LimiterRefusal } from "../ledger/delegation-transitions.ts";
import { UNANSWERED_MS } from "../ledger/leases.ts";
import type { TerminalReason } from "../ledger/states.ts";
import type { AgentClient } from "./a2a/agent-client.ts";
import { A2aFailure } from "./a2a/classify-failure.ts";
import { type LiveStream, liveStream } from "./a2a/live-stream.ts";
import { type AgentUpdate, type FilePart, isAnswered, type Question } from "./a2a/protocol.ts";
import { ask } from "./agent-question.ts";
import { AnswerAssembly, answerOf } from "./assemble-answer.ts";
import { cancelTask } from "./cancel-task.ts";
import type { DelegationLimits } from "./dependencies.ts";
import { loadAttachment, refusalOf } from "./fetch-attachment.ts";
import { follow } from "./follow-task.ts";
import {
  ANSWER_NOT_ACCEPTED,
  canceled,
  type DelegationVerdict,
  endOfPhase,
  failed,
  finish,
  NOT_ACCEPTED,
  type Reach,
  rateLimited,
  refused,
  UNKNOWN,
} from "./outcomes.ts";
import { type ClearedTarget, mayBeNew, recheck, stoppedFollowing } from "./recheck-policy.ts";
import { dispatchDeadline, givenUp, retryOrGiveUp, SEND_VERDICTS } from "./retry-or-give-up.ts";
import type { RunningDelegation } from "./running-delegation.ts";
import { recordAndSend } from "./send-reply.ts";
import { settleEarlier } from "./unanswered-request.ts";

/** A late delegation that may have been dispatched, and keeps failing unexpectedly, ends after so many tries. */
const LATE_ATTEMPTS_MAX = 50;

type Gate =
  | { readonly kind: "open"; readonly cleared: ClearedTarget; readonly client: AgentClient }
  | { readonly kind: "closed"; readonly verdict: DelegationVerdict };

export async function dispatch(running: RunningDelegation): Promise<DelegationVerdict> {
  const verdict = await handOver(running);
  const { a2aTaskId } = running.claimed;
  if (a2aTaskId !== undefined && verdict.kind === "finish" && isAbandoned(verdict.outcome)) {
    await cancelTask(running, a2aTaskId);
  }
  return verdict;
}

/** Whether the agent's task may go on though nobody waits for it. */
const isAbandoned = ({ state, stage, reason }: DelegationOutcome) =>
  state !== "completed" && stage === "dispatch" && reason !== "agent_failed" && reason !== "agent_rejected";

async function handOver(running: RunningDelegation): Promise<DelegationVerdict> {
  const { claimed, deps } = running;
  const isAnswer = claimed.a2aTaskId !== undefined;
  const isLate = running.now >= dispatchDeadline(running);
  // An earlier request may have reached the agent; only the agent's list of tasks can rule it out.
  let reach: Reach = claimed.a2aUnsettled ? "may_have" : "surely_absent";
  if (isLate && !claimed.a2aUnsettled)
    return finish(givenUp(claimed.retryReason ?? "dispatch_deadline_exceeded"));
  if (isLate && claimed.attempts >= LATE_ATTEMPTS_MAX) return finish(UNKNOWN);
  let gate = await pass(running, reach);
  if (gate.kind === "closed") return gate.verdict;

  if (reach === "may_have") {
    const { cleared, client } = gate;
    const earlier = await settleEarlier(running, client);
    if (earlier.kind === "decided") return earlier.verdict;
    // A listed task comes without its artifacts, so it is followed whatever its phase.
    if (earlier.kind === "task") {
      return accepted(running, cleared, { ...earlier.task, phase: "open", artifacts: [] }, undefined);
    }
    if (earlier.kind === "absent") reach = "surely_absent";
    gate = await pass(running, reach);
    if (gate.kind === "closed") return gate.verdict;
  }
  // What a user of the ghost's own server says was accepted before it was stored.
  if (reach === "surely_absent" && serverOf(claimed.sender) !== serverOf(claimed.ghost)) {
    const { ghost, roomId, saidIn: event, sender } = claimed;
    const accepted = await deps.isAccepted(ghost, roomId, { event, sender }, running.signal);
    running.signal.throwIfAborted();
    if (accepted.kind !== "ok") {
      const afterMs = accepted.kind === "retry" ? accepted.afterMs : 0;
      return retryOrGiveUp(running, "room_unreachable", reach, afterMs);
    }
    if (!accepted.value) return finish(isAnswer ? ANSWER_NOT_ACCEPTED : NOT_ACCEPTED);
    gate = await pass(running, reach);
    if (gate.kind === "closed") return gate.verdict;
  }
  const { prompt } = claimed;
  if (prompt === undefined) throw new DrawbridgeError("internal", "a question to dispatch has no prompt");
  let file: FilePart | undefined;
  if (prompt.attachment !== undefined) {
    const without = (reason: TerminalReason) =>
      finish(refused(failed("dispatch", reason), isAnswer ? "may_have" : reach));
    const loaded = await loadAttachment(running, gate.cleared, prompt.attachment);
    if (loaded.kind === "refused") return without(loaded.reason);
    if (loaded.kind === "unavailable") {
      return retryOrGiveUp(running, "attachment_unavailable", reach, loaded.retryAfterMs);
    }
    gate = await pass(running, reach);
    if (gate.kind === "closed") return gate.verdict;
    file = loaded.file;
    const refusal = refusalOf(gate.cleared, file);
    if (refusal !== undefined) return without(refusal);
  }

  const { perMinute, burst } = gate.cleared.target.entry.rate;
  const bucket = { key: `agent:${claimed.agentId}`, ratePerMinute: perMinute, burst };
  const further = sharesOf(claimed.sender, deps.limits);
  const begun = await running.persist(() =>
    deps.ledger.beginDispatch(claimed.lease, bucket, running.now, further),
  );
  if (begun === "canceled") return finish(canceled("dispatch"));
  if (begun !== "begun") {
    // An answer can wait for a token, because its question was asked.
    return isAnswer ? retryOrGiveUp(running, begun, reach) : finish(rateLimited(begun));
  }
  return call(running, gate, { text: prompt.text, file }, reach);
}

/** The buckets of the sender and of the sender's server, where the configuration limits them. */
function sharesOf(sender: UserId, { senderRate, serverRate }: DelegationLimits): LimiterBucket[] {
  const share = (key: string, rate: typeof senderRate, refusal: LimiterRefusal) =>
    rate === undefined ? [] : [{ key, ratePerMinute: rate.perMinute, burst: rate.burst, refusal }];
  return [
    ...share(`sender:${sender}`, senderRate, "sender_rate_limited"),
    ...share(`server:${serverOf(sender)}`, serverRate, "server_rate_limited"),
  ];
}

/** The checks before a call, made anew after whatever takes time, and its token. */
async function pass(running: RunningDelegation, reach: Reach): Promise<Gate> {
  const { a2aTaskId } = running.claimed;
  const closed = (verdict: DelegationVerdict): Gate => ({ kind: "closed", verdict });
  for (let asked = false; ; asked = true) {
    const check = await recheck(running.deps, running.claimed);
    if (check.kind === "stopped" && mayBeNew(check, running.claimed)) {
      return closed(retryOrGiveUp(running, "agent_removed", reach));
    }
    if (check.kind === "stopped") {
      return closed(
        finish(a2aTaskId === undefined ? refused(check.outcome, reach) : stoppedFollowing(check)),
      );
    }
    if (check.kind === "unknown") {
      return closed(retryOrGiveUp(running, "agent_unavailable", reach, check.retryAfterMs));
    }
    try {
      const client = running.connect(check);
      const fetched = await client.prepare();
      // A request to the issuer took time, so every check is repeated.
      if (!fetched || asked) return { kind: "open", cleared: check, client };
    } catch (error) {
      if (!(error instanceof A2aFailure)) throw error;
      logFailure(running, error);
      if (error.kind !== "unauthenticated") return closed(finish(failed("dispatch", "agent_protocol_error")));
      return closed(retryOrGiveUp(running, "token_refused", reach, error.retryAfterMs));
    }
  }
}

/** The reason of a delegation says less: a wrong path and an agent that is away are both `agent_unavailable`. */
function logFailure({ deps, claimed }: RunningDelegation, { kind }: A2aFailure): void {
  const { lease, agentId: agent } = claimed;
  deps.log.info({ event: "agent_call_failed", delegation: lease.delegationId, agent, failure: kind });
}

async function call(
  running: RunningDelegation,
  { cleared, client }: Extract<Gate, { kind: "open" }>,
  said: Pick<Question, "text" | "file">,
  reach: Reach,
): Promise<DelegationVerdict> {
  const { claimed, deps } = running;
  // After a slow write another process may hold the row, and its call must be the only one.
  if (!running.mayCall) return retryOrGiveUp(running, "agent_unavailable", reach);
  const question = {
    messageId: claimed.a2aMessageId,
    ...said,
    taskId: claimed.a2aTaskId,
    contextId: claimed.a2aContextId,
  };
  const onSent = () => deps.metrics.dispatchOverhead(running.now - running.claimedAt);
  let live: LiveStream | undefined;
  const begin = async (): Promise<AgentUpdate> => {
    if (!client.streams) return await client.send(question, running.signal, onSent);
    live = liveStream(deps.clock, running.signal, (signal) => client.stream(question, signal, onSent));
    const update = await live.next();
    if (typeof update === "string") throw new A2aFailure("ambiguous");
    return update;
  };
  try {
    const update = await running.naming(begin);
    if (update.kind !== "message") running.taskId = update.taskId;
    running.signal.throwIfAborted();
    return await accepted(running, cleared, update, live);
  } catch (error) {
    if (!(error instanceof A2aFailure)) throw error;
    logFailure(running, error);
    const verdict = SEND_VERDICTS[error.kind];
    if (verdict.kind === "end") return finish(failed(running.stage, verdict.reason));
    const waitMs = Math.max(verdict.reach === "may_have" ? UNANSWERED_MS : 0, error.retryAfterMs ?? 0);
    // An earlier request may have been delivered even where this one was not.
    return retryOrGiveUp(running, verdict.reason, reach === "may_have" ? reach : verdict.reach, waitMs);
  } finally {
    live?.close();
  }
}

/** The agent has answered the call: with its whole answer, or with a task. */
async function accepted(
  running: RunningDelegation,
  cleared: ClearedTarget,
  update: AgentUpdate,
  live: LiveStream | undefined,
): Promise<DelegationVerdict> {
  const { claimed, deps } = running;
  const { agentVersion } = cleared;
  if (update.kind === "message") {
    const found = answerOf(update.parts, deps.limits.answerBytes);
    return recordAndSend(running, found, agentVersion, update.contextId);
  }

  const { taskId, contextId } = update;
  // The answer to a question belongs to the task that asked it.
  if (claimed.a2aTaskId !== undefined && claimed.a2aTaskId !== taskId) {
    return finish(failed("dispatch", "agent_protocol_error"));
  }
  const assembly = new AnswerAssembly(deps.limits.answerBytes);
  const taken = assembly.take(update, cleared.card.capabilities.streaming === true);
  const phase = update.kind !== "artifact" && isAnswered(update, claimed.questionKey) ? "open" : taken;
  running.taskId = taskId;
  if (phase === "completed") return recordAndSend(running, assembly.answer(), agentVersion, contextId);
  const ended = endOfPhase(phase, "dispatch");
  if (ended !== undefined) {
    if (phase === "auth_required") await cancelTask(running, taskId);
    return finish(ended);
  }
  if (phase === "input_required" && update.kind !== "artifact") return ask(running, update, agentVersion);
  await running.persist(() =>
    deps.ledger.recordAccepted(claimed.lease, { taskId, contextId, agentVersion }, running.now),
  );
  running.host.wake();
  return follow(running, { taskId, acceptedAt: running.now, assembly, live });
}
