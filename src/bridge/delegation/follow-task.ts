// Following a task that an agent has accepted: by a poll whenever it is due, between which the delegation is released, or
// by a stream, where the worker has a slot for one. Invariants: before every call, and at least every five seconds on a
// stream, the policy (recheck-policy.ts) is applied anew, and following stops when it refuses; a broken stream costs nothing but
// a poll; an agent that is away is called with a back-off; the wait for an answer has an end.
import type { AgentClient } from "./a2a/agent-client.ts";
import { A2aFailure } from "./a2a/classify-failure.ts";
import { LiveStream } from "./a2a/live-stream.ts";
import type { AgentUpdate, ContentPart, Phase } from "./a2a/protocol.ts";
import { type AskedBack, ask } from "./agent-question.ts";
import { AnswerAssembly } from "./answer-text.ts";
import { cancelTask } from "./cancel-task.ts";
import { type DelegationVerdict, endOfPhase, FOLLOW_VERDICTS, failed, finish } from "./outcomes.ts";
import { type ClearedTarget, recheck, stoppedFollowing } from "./recheck-policy.ts";
import { ASKED_WAIT_MS_MAX } from "./retry-or-give-up.ts";
import type { RunningDelegation } from "./running-delegation.ts";
import { recordAndSend } from "./send-reply.ts";

const RECHECK_MS = 5_000;
/** After so long without an event the task is polled: the stream's connection may be dead. */
const SILENCE_MS = 30_000;
/** Streams opened for one task; after that it is polled. */
const STREAM_TRIES = 3;
/** The least time between two reports that are kept. */
const REPORT_MS = 2_000;
const REPORT_LENGTH_MAX = 2_000;
/** An agent that breaks the rules of A2A in so many polls in a row is given up. An outage counts for nothing. */
export const FAULTS_MAX = 5;
/** The least wait for a card that cannot be fetched. */
const UNKNOWN_WAIT_MS_MIN = 500;

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
  const follower = new Follower(running, followed);
  try {
    for (;;) {
      const verdict = await follower.step();
      if (verdict !== undefined) return verdict;
    }
  } finally {
    follower.close();
  }
}

class Follower {
  readonly #running: RunningDelegation;
  readonly #followed: Followed;
  readonly #deadline: number;
  #live: LiveStream | undefined;
  #streamsOpened: number;
  /** Polls in a row in which the agent broke the rules of A2A. */
  #faults: number;
  #check: ClearedTarget | undefined;
  #client: AgentClient | undefined;
  #checkedAt = Number.NEGATIVE_INFINITY;
  #lastEventAt: number;
  /** Updates may have been missed: the task was taken up late, or its stream broke. */
  #hasGap: boolean;
  #isBroken = false;
  #reported = "";
  #reportedAt = Number.NEGATIVE_INFINITY;

  constructor(running: RunningDelegation, followed: Followed) {
    const { claimed, host } = running;
    this.#running = running;
    this.#followed = followed;
    this.#deadline = followed.acceptedAt + running.deps.limits.answerDeadline;
    this.#lastEventAt = running.now;
    this.#streamsOpened = claimed.streamsOpened + (followed.live === undefined ? 0 : 1);
    this.#faults = claimed.faults;
    if (host.mayStream(claimed.agentId)) this.#live = followed.live;
    else followed.live?.close();
    this.#hasGap = this.#live === undefined;
    running.holdsStream = this.#live !== undefined;
  }

  close(): void {
    this.#live?.close();
    this.#live = undefined;
    this.#running.holdsStream = false;
    this.#hasGap = true;
  }

  /** One wait or one call. Returns a verdict when the task, or the following of it, has ended. */
  async step(): Promise<DelegationVerdict | undefined> {
    const { taskId } = this.#followed;
    if (this.#running.now >= this.#deadline) {
      this.close();
      await cancelTask(this.#running, taskId);
      return finish(failed("follow", "answer_deadline_exceeded"));
    }
    if (this.#live === undefined || this.#isDue(this.#checkedAt, RECHECK_MS)) {
      const check = await recheck(this.#running.deps, this.#running.claimed);
      if (check.kind === "stopped") return finish(stoppedFollowing(check));
      if (check.kind === "unknown") return this.#unknown(Math.max(check.retryAfterMs, UNKNOWN_WAIT_MS_MIN));
      this.#check = check;
      this.#checkedAt = this.#running.now;
      try {
        this.#client = this.#running.connect(check);
      } catch (error) {
        if (error instanceof A2aFailure) return finish(failed("follow", "agent_protocol_error"));
        throw error;
      }
    }
    const client = this.#client;
    if (client === undefined) return undefined;
    return this.#live === undefined ? this.#poll(client) : this.#read(this.#live, client);
  }

  async #read(live: LiveStream, client: AgentClient): Promise<DelegationVerdict | undefined> {
    try {
      const update = await live.next(Math.min(RECHECK_MS, this.#deadline - this.#running.now));
      if (typeof update !== "string") {
        this.#lastEventAt = this.#running.now;
        return await this.#take(await this.#withoutGap(update, client));
      }
      if (update === "quiet") {
        if (!this.#isDue(this.#lastEventAt, SILENCE_MS)) return undefined;
        this.#lastEventAt = this.#running.now;
        return await this.#take({ kind: "task", task: await this.#getTask(client) });
      }
    } catch (error) {
      if (!(error instanceof A2aFailure)) throw error;
      if (error.kind === "too_large") return finish(failed("follow", "answer_too_large"));
    }
    this.close();
    this.#isBroken = true;
    return undefined;
  }

  async #poll(client: AgentClient): Promise<DelegationVerdict | undefined> {
    try {
      const task = await this.#getTask(client);
      const verdict = await this.#take({ kind: "task", task });
      if (verdict !== undefined) return verdict;
    } catch (error) {
      if (!(error instanceof A2aFailure)) throw error;
      return this.#failed(error);
    }
    // The first poll after a claim leads to a stream at once; after a broken stream there is a pause.
    const streams = client.streams && !this.#isBroken && this.#streamsOpened < STREAM_TRIES;
    if (!streams || !this.#running.host.mayStream(this.#running.claimed.agentId))
      return this.#later(this.#pollIntervalMs(), true);
    this.#streamsOpened++;
    this.#lastEventAt = this.#running.now;
    this.#live = new LiveStream(this.#running.deps.clock, this.#running.signal, (signal) =>
      client.subscribe(this.#followed.taskId, signal),
    );
    this.#running.holdsStream = true;
    return undefined;
  }

  #failed(failure: A2aFailure): DelegationVerdict {
    const verdict = FOLLOW_VERDICTS[failure.kind];
    if (failure.kind === "protocol") this.#faults++;
    const isTolerated = failure.kind === "protocol" && this.#faults < FAULTS_MAX;
    if (verdict.kind === "end" && !isTolerated) return finish(failed("follow", verdict.reason));
    const asked = Math.min(failure.retryAfterMs ?? 0, ASKED_WAIT_MS_MAX);
    const { resumedFrom, attempts } = this.#running.claimed;
    const backoffMs = this.#running.backoff(resumedFrom === "following" ? attempts : 0);
    return this.#later(Math.max(backoffMs, asked), false);
  }

  /** A stream that was joined late may lack artifacts, so the whole task is read before its answer is sent. */
  async #withoutGap(update: AgentUpdate, client: AgentClient): Promise<AgentUpdate> {
    const isEnd = update.kind === "status" && update.phase === "completed";
    if (!isEnd || !this.#hasGap || update.taskId !== this.#followed.taskId) return update;
    const task = await this.#getTask(client);
    // The store of some agents lags behind their stream; then the stream counts.
    return task.phase === "completed" ? { kind: "task", task } : update;
  }

  async #take(update: AgentUpdate): Promise<DelegationVerdict | undefined> {
    // Once there is a task, a message is no answer; updates of other tasks are ignored.
    if (update.kind === "message") return undefined;
    const taskId = update.kind === "task" ? update.task.taskId : update.taskId;
    if (taskId !== this.#followed.taskId) return undefined;
    const phase: Phase =
      this.#followed.assembly.take(update, this.#check?.card.capabilities.streaming === true) ?? "open";
    if (phase === "open") await this.#report(update);
    if (phase === "open" || isAnswered(update, this.#running.claimed.questionKey)) return undefined;
    this.close();
    if (phase === "completed") {
      return recordAndSend(this.#running, this.#followed.assembly.answer(), this.#check?.agentVersion);
    }
    if (phase === "input_required") return ask(this.#running, askedIn(update, this.#check?.agentVersion));
    if (phase === "auth_required") await cancelTask(this.#running, taskId);
    const ended = endOfPhase(phase, "follow");
    return ended === undefined ? undefined : finish(ended);
  }

  /** Keeps what the agent says about its work. What comes faster than it is shown is left out. */
  async #report(update: Exclude<AgentUpdate, { kind: "message" }>): Promise<void> {
    if (update.kind === "artifact" || !this.#isDue(this.#reportedAt, REPORT_MS)) return;
    const text = reportOf(update.kind === "task" ? update.task.statusParts : update.parts);
    if (text === "" || text === this.#reported) return;
    this.#reported = text;
    this.#reportedAt = this.#running.now;
    const { deps, claimed } = this.#running;
    await this.#running.persist(() => deps.ledger.recordReport(claimed.lease, text));
  }

  #getTask(client: AgentClient) {
    return client.getTask(this.#followed.taskId, this.#running.signal);
  }

  #pollIntervalMs(): number {
    return Math.max(500, this.#check?.target.entry.pollInterval ?? 0);
  }

  #isDue(since: number, afterMs: number): boolean {
    return this.#running.now - since >= afterMs;
  }

  /** The card cannot be fetched just now. A stream is kept meanwhile, because some agents do not survive its end. */
  async #unknown(waitMs: number): Promise<DelegationVerdict | undefined> {
    if (this.#live === undefined) return this.#later(waitMs, false);
    await this.#running.deps.clock.sleep(
      Math.min(waitMs, this.#deadline - this.#running.now),
      this.#running.signal,
    );
    return undefined;
  }

  /** Releases the delegation until its next poll, which is not later than its deadline. */
  #later(ms: number, hasProgressed: boolean): DelegationVerdict {
    const wakeAt = Math.min(this.#running.now + ms, this.#deadline);
    const faults = hasProgressed ? 0 : this.#faults;
    const followed = { hasProgressed, streamsOpened: this.#streamsOpened, faults };
    return { kind: "defer", wakeAt, reason: "task_open", undelivered: false, followed };
  }
}

function reportOf(parts: readonly ContentPart[]): string {
  const texts = parts.flatMap((part) => (part.kind === "text" ? part.text : []));
  return texts.join(" ").slice(0, REPORT_LENGTH_MAX).toWellFormed().trim();
}

/** Whether a task still shows the question that was answered: its agent has not taken the answer up yet. */
export function isAnswered(update: AgentUpdate, questionKey: string | undefined): boolean {
  if (questionKey === undefined || update.kind === "message" || update.kind === "artifact") return false;
  const { phase, statusKey } = update.kind === "task" ? update.task : update;
  return phase === "input_required" && statusKey === questionKey;
}

/** The question that a task in `input_required` asks. */
export function askedIn(
  update: Exclude<AgentUpdate, { kind: "message" }>,
  agentVersion: string | undefined,
): AskedBack {
  const { taskId, contextId } = update.kind === "task" ? update.task : update;
  const [parts, statusKey] =
    update.kind === "task"
      ? [update.task.statusParts, update.task.statusKey]
      : update.kind === "status"
        ? [update.parts, update.statusKey]
        : [[], undefined];
  return { taskId, contextId, statusKey, parts, agentVersion };
}
