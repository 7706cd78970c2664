// Following a task that an agent has accepted: by polls, between which the delegation is released, or by a stream, where there
// is a slot for one. Invariants: before every call, and at least every five seconds on a stream, the policy is applied anew; a
// broken stream costs nothing but a poll; an agent that is away is called with a back-off; the wait for an answer has an end.
import type { AgentClient } from "./a2a/agent-client.ts";
import { A2aFailure } from "./a2a/classify-failure.ts";
import { type LiveStream, liveStream } from "./a2a/live-stream.ts";
import { type AgentUpdate, type ContentPart, isAnswered, type TaskUpdate } from "./a2a/protocol.ts";
import { ask } from "./agent-question.ts";
import { AnswerAssembly } from "./assemble-answer.ts";
import { cancelAndFinish, cancelTask } from "./cancel-task.ts";
import { type DelegationVerdict, endOfPhase, failed, finish } from "./outcomes.ts";
import { type ClearedTarget, mayBeNew, recheck, stoppedFollowing } from "./recheck-policy.ts";
import { FOLLOW_VERDICTS, grantedWait } from "./retry-or-give-up.ts";
import type { RunningDelegation } from "./running-delegation.ts";
import { recordAndSend } from "./send-reply.ts";

const RECHECK_MS = 5_000;
/** After so long without an event the task is polled: the stream's connection may be dead. */
const SILENCE_MS = 30_000;
const STREAM_TRIES = 3;
const REPORT_MS = 2_000;
const REPORT_LENGTH_MAX = 2_000;
/** An agent that breaks the rules of A2A in so many polls in a row is given up. An outage counts for nothing. */
export const FAULTS_MAX = 5;
const UNKNOWN_WAIT_MS_MIN = 500;
const POLL_MS_MIN = 500;
/** An old task is polled more rarely, so that an agent that never ends its tasks does not get ever more polls. */
const POLL_PART_OF_AGE = 1 / 20;
const POLL_OF_OLD_MS_MAX = 30_000;
/** Longer waits end at whole seconds, so that one claim takes all tasks that are due then. */
const TOGETHER_MS = 1_000;

export interface Followed {
  readonly taskId: string;
  readonly acceptedAt: number;
  readonly assembly: AnswerAssembly;
  /** The stream that brought the task, if one did. */
  readonly live: LiveStream | undefined;
}

/** Takes up a task that an earlier holder recorded as accepted. */
export function followAccepted(running: RunningDelegation): Promise<DelegationVerdict> {
  const { a2aTaskId, acceptedAt, admittedAt } = running.claimed;
  // The ledger keeps a task for every delegation in this state.
  if (a2aTaskId === undefined) return Promise.resolve(finish(failed("follow", "outcome_unknown")));
  return follow(running, {
    taskId: a2aTaskId,
    acceptedAt: acceptedAt ?? admittedAt,
    assembly: new AnswerAssembly(running.deps.limits.answerBytes),
    live: undefined,
  });
}

export async function follow(running: RunningDelegation, followed: Followed): Promise<DelegationVerdict> {
  running.stage = "follow";
  const { claimed, deps, host } = running;
  const { taskId, assembly } = followed;
  const deadline = followed.acceptedAt + deps.limits.answerDeadline;
  let live = host.mayStream(claimed.agentId) ? followed.live : undefined;
  if (live === undefined) followed.live?.close();
  running.holdsStream = live !== undefined;
  /** Updates may have been missed: the task was taken up late, or its stream broke. */
  let hasGap = live === undefined;
  let isBroken = false;
  let streamsOpened = claimed.streamsOpened + (followed.live === undefined ? 0 : 1);
  let { faults } = claimed;
  let check: ClearedTarget | undefined;
  let client: AgentClient | undefined;
  let checkedAt = Number.NEGATIVE_INFINITY;
  let lastEventAt = running.now;
  let reported = "";
  let reportedAt = Number.NEGATIVE_INFINITY;

  const isDue = (since: number, afterMs: number) => running.now - since >= afterMs;
  const getTask = (from: AgentClient) => from.getTask(taskId, running.signal);

  const close = () => {
    live?.close();
    live = undefined;
    running.holdsStream = false;
    hasGap = true;
  };

  /** Releases the delegation until its next poll, which is not later than its deadline. */
  const later = (ms: number, hasProgressed: boolean): DelegationVerdict => {
    const followed = { hasProgressed, streamsOpened, faults: hasProgressed ? 0 : faults };
    const at = running.now + ms;
    const wakeAt = Math.min(ms < TOGETHER_MS ? at : Math.ceil(at / TOGETHER_MS) * TOGETHER_MS, deadline);
    return { kind: "defer", wakeAt, reason: "task_open", note: { followed } };
  };

  /** Keeps what the agent says about its work. What comes faster than it is shown is left out. */
  const report = async (update: TaskUpdate) => {
    if (update.kind === "artifact" || !isDue(reportedAt, REPORT_MS)) return;
    const text = reportOf(update.parts);
    if (text === "" || text === reported) return;
    reported = text;
    reportedAt = running.now;
    await running.persist(() => deps.ledger.recordReport(claimed.lease, text));
  };

  const take = async (update: AgentUpdate): Promise<DelegationVerdict | undefined> => {
    // Once there is a task, a message is no answer; updates of other tasks are ignored.
    if (update.kind === "message" || update.taskId !== taskId) return undefined;
    const phase = assembly.take(update, check?.card.capabilities.streaming === true);
    if (phase === "open") await report(update);
    if (update.kind === "artifact" || phase === "open") return undefined;
    if (isAnswered(update, claimed.questionKey)) return undefined;
    close();
    if (phase === "completed") return recordAndSend(running, assembly.answer(), check?.agentVersion);
    if (phase === "input_required") return ask(running, update, check?.agentVersion);
    if (phase === "auth_required") await cancelTask(running, taskId);
    const ended = endOfPhase(phase, "follow");
    return ended === undefined ? undefined : finish(ended);
  };

  /** A stream that was joined late may lack artifacts, so the whole task is read before its answer is sent. */
  const withoutGap = async (update: AgentUpdate, from: AgentClient): Promise<AgentUpdate> => {
    const isEnd = update.kind === "status" && update.phase === "completed";
    if (!isEnd || !hasGap || update.taskId !== taskId) return update;
    const task = await getTask(from);
    // The store of some agents lags behind their stream; then the stream counts.
    return task.phase === "completed" ? task : update;
  };

  const read = async (stream: LiveStream, from: AgentClient): Promise<DelegationVerdict | undefined> => {
    const restMs = host.pace.restMs(claimed.agentId);
    if (restMs > 0) {
      await deps.clock.sleep(Math.min(restMs, RECHECK_MS, deadline - running.now), running.signal);
      return undefined;
    }
    try {
      const update = await stream.next(Math.min(RECHECK_MS, deadline - running.now));
      if (typeof update !== "string") {
        lastEventAt = running.now;
        return await take(await withoutGap(update, from));
      }
      if (update === "quiet") {
        if (!isDue(lastEventAt, SILENCE_MS)) return undefined;
        lastEventAt = running.now;
        return await take(await getTask(from));
      }
    } catch (error) {
      if (!(error instanceof A2aFailure)) throw error;
      if (error.kind === "too_large") return finish(failed("follow", "answer_too_large"));
    }
    close();
    isBroken = true;
    return undefined;
  };

  const pollFailed = (failure: A2aFailure): DelegationVerdict => {
    const verdict = FOLLOW_VERDICTS[failure.kind];
    if (failure.kind === "protocol") faults++;
    const isTolerated = failure.kind === "protocol" && faults < FAULTS_MAX;
    if (verdict.kind === "end" && !isTolerated) return finish(failed("follow", verdict.reason));
    const asked = grantedWait(failure.retryAfterMs);
    const backoffMs = running.backoff(claimed.resumedFrom === "following" ? claimed.attempts : 0);
    return later(Math.max(backoffMs, asked), false);
  };

  const poll = async (from: AgentClient): Promise<DelegationVerdict | undefined> => {
    const restMs = host.pace.restMs(claimed.agentId);
    if (restMs > 0) return later(restMs, false);
    try {
      const verdict = await take(await getTask(from));
      if (verdict !== undefined) return verdict;
    } catch (error) {
      if (!(error instanceof A2aFailure)) throw error;
      return pollFailed(error);
    }
    // The first poll after a claim leads to a stream at once; after a broken stream there is a pause.
    const streams = from.streams && !isBroken && streamsOpened < STREAM_TRIES;
    if (!streams || !host.mayStream(claimed.agentId)) {
      const ofAge = Math.min((running.now - followed.acceptedAt) * POLL_PART_OF_AGE, POLL_OF_OLD_MS_MAX);
      return later(Math.max(POLL_MS_MIN, check?.target.entry.pollInterval ?? 0, ofAge), true);
    }
    streamsOpened++;
    lastEventAt = running.now;
    live = liveStream(deps.clock, running.signal, (signal) => from.subscribe(taskId, signal));
    running.holdsStream = true;
    return undefined;
  };

  /** One wait or one call. Returns a verdict when the task, or the following of it, has ended. */
  const step = async (): Promise<DelegationVerdict | undefined> => {
    if (running.now >= deadline) {
      close();
      return cancelAndFinish(running, taskId, failed("follow", "answer_deadline_exceeded"));
    }
    if (live === undefined || isDue(checkedAt, RECHECK_MS)) {
      const checked = await recheck(deps, claimed);
      if (checked.kind === "stopped" && check === undefined && mayBeNew(checked, claimed))
        return later(running.backoff(), false);
      if (checked.kind === "stopped") return finish(stoppedFollowing(checked));
      if (checked.kind === "unknown") {
        const waitMs = Math.max(checked.retryAfterMs, UNKNOWN_WAIT_MS_MIN);
        if (live === undefined) return later(waitMs, false);
        // A stream is kept meanwhile, because some agents do not survive its end.
        await deps.clock.sleep(Math.min(waitMs, deadline - running.now), running.signal);
        return undefined;
      }
      check = checked;
      checkedAt = running.now;
      try {
        client = running.connect(checked);
      } catch (error) {
        if (error instanceof A2aFailure) return finish(failed("follow", "agent_protocol_error"));
        throw error;
      }
    }
    if (client === undefined) return undefined;
    return live === undefined ? poll(client) : read(live, client);
  };

  try {
    for (;;) {
      const verdict = await step();
      if (verdict !== undefined) return verdict;
    }
  } finally {
    close();
  }
}

function reportOf(parts: readonly ContentPart[]): string {
  const texts = parts.flatMap((part) => (part.kind === "text" ? part.text : []));
  return texts.join(" ").slice(0, REPORT_LENGTH_MAX).toWellFormed().trim();
}
