// One claimed delegation while it is worked on: what its steps share. Invariants: a write that must not be lost is fenced, and
// is repeated until it is written or refused, or the work is interrupted; that an event was sent is written without a fence
// while it is pending; a cancellation waits for a call that names the task and for an event that is being sent.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { AgentId, ServerName } from "../../domain/identifiers.ts";
import { jitteredBackoffMs } from "../../runtime/backoff.ts";
import { resultUnlessAborted } from "../../runtime/concurrency.ts";
import type { ClaimedDelegation } from "../ledger/leases.ts";
import type { PendingSend } from "../ledger/replies.ts";
import type { SendResult } from "../matrix/send-once.ts";
import { AgentClient } from "./a2a/agent-client.ts";
import type { DelegationDependencies } from "./dependencies.ts";
import type { HeldLease } from "./lease-keeper.ts";
import type { ReadPace } from "./read-pace.ts";
import { type ClearedTarget, recheck } from "./recheck-policy.ts";
import type { TracedStep } from "./traces.ts";

const BACKOFF = { firstMs: 500, maxMs: 30_000 };
/** How long a cancellation waits for the answer to a call that names the task. */
const NAMING_MS_MAX = 10_000;
/** SQLSTATE classes that no repetition repairs: data, integrity, syntax or access. */
const LASTING = /^(22|23|42)[0-9A-Z]{3}$/;

type Interruption = "lost" | "drain" | "canceled";

/** What a running delegation needs of the worker that runs it. */
export interface DelegationHost {
  /** A room or a slot may have become free: claim again. */
  wake(): void;
  /** Whether one more delegation may hold a stream, and with it its slot. */
  mayStream(agent: AgentId): boolean;
  /** Whether one more delegation for this agent, and for a user of this server, may download an attachment. */
  mayDownload(agent: AgentId, server: ServerName): boolean;
  readonly pace: ReadPace;
  /** A call to this agent took so long, answered or not. */
  called(agent: AgentId, ms: number): void;
  /** Since when the bridge has been up without a gap, milliseconds since the Unix epoch. */
  readonly upSince: number;
}

export class RunningDelegation {
  readonly claimed: ClaimedDelegation;
  readonly deps: DelegationDependencies;
  readonly host: DelegationHost;
  readonly claimedAt: number;
  taskId: string | undefined;
  stage: "dispatch" | "follow" | "reply" = "dispatch";
  /** The agent may have a task of the question, whether it is known or not. */
  mayHaveTask: boolean;
  /** The task is followed on a stream, which some agents do not survive the end of. */
  holdsStream = false;
  /** A download takes as long as the homeserver of the attachment's sender lets it. */
  isDownloading = false;
  lease: HeldLease | undefined;
  #controller = new AbortController();
  interrupted: Interruption | undefined;
  #inFlight: "naming" | "sending" | undefined;

  constructor(claimed: ClaimedDelegation, deps: DelegationDependencies, host: DelegationHost) {
    this.claimed = claimed;
    this.deps = deps;
    this.host = host;
    this.claimedAt = deps.clock.now();
    this.taskId = claimed.a2aTaskId;
    this.mayHaveTask = claimed.a2aUnsettled;
    if (claimed.resumedFrom === "following" || claimed.resumedFrom === "awaiting_input")
      this.stage = "follow";
    if (claimed.resumedFrom === "reply_pending") this.stage = "reply";
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get now(): number {
    return this.deps.clock.now();
  }

  get isFresh(): boolean {
    return this.lease?.isFresh() ?? false;
  }

  /** Whether surely nobody else has taken the delegation over; read right before an agent is called. */
  get mayCall(): boolean {
    return this.isFresh && this.deps.isAlive();
  }

  /** Nothing is lost when another process goes on with it at once. */
  get isMovable(): boolean {
    return this.stage === "follow" && !this.holdsStream;
  }

  interrupt(why: Interruption): void {
    // A redaction is acted on once; a lost lease or a drain ends whatever runs.
    if (why === "canceled" && this.interrupted !== undefined) return;
    this.interrupted = why;
    const abort = () => this.#abort(why);
    if (why !== "canceled" || this.#inFlight === undefined) abort();
    // An agent that does not answer must not hold up the cancellation for as long as a request may take.
    else if (this.#inFlight === "naming")
      void this.deps.clock.sleep(NAMING_MS_MAX, this.signal).then(abort, () => undefined);
  }

  #abort(why: Interruption): void {
    this.#controller.abort(new Error(`the delegation's running was interrupted: ${why}`));
  }

  /** Makes a call whose answer names the task: a cancellation waits for it a while, because it has to name the task. */
  async naming<T>(call: () => Promise<T>): Promise<T> {
    this.mayHaveTask = true;
    return await this.#whileInFlight("naming", call);
  }

  async #whileInFlight<T>(what: "naming" | "sending", call: () => Promise<T>): Promise<T> {
    this.signal.throwIfAborted();
    const isCanceling = this.interrupted === "canceled";
    this.#inFlight = what;
    try {
      return await call();
    } finally {
      this.#inFlight = undefined;
      if (this.interrupted === "canceled" && !isCanceling) this.#abort("canceled");
    }
  }

  /** After a cancellation: a new signal, since canceling makes requests of its own. */
  renewSignal(): void {
    this.#controller = new AbortController();
  }

  /** Repeats a write to the ledger while the database is away: what an agent answered exists nowhere else. */
  async persist<T>(write: () => Promise<T>): Promise<T> {
    const { signal } = this;
    for (let attempt = 0; ; attempt++) {
      signal.throwIfAborted();
      try {
        return await write();
      } catch (error) {
        if (isLasting(error)) throw error;
        await this.deps.clock.sleep(this.backoff(attempt), signal);
      }
    }
  }

  /** @throws A2aFailure `protocol` when the card offers no interface that the bridge speaks */
  connect({ card, target: { entry } }: ClearedTarget): AgentClient {
    const { http, tokens, clock, limits, metrics } = this.deps;
    return new AgentClient(
      {
        ...{ http, tokens, clock },
        requestTimeoutMs: limits.agentRequestTimeout,
        // Some agents send a question's file, as base64, back with each view of its task.
        bytesMax: limits.answerBytes + Math.ceil(((entry.attachments?.bytes ?? 0) * 4) / 3),
        traceparent: this.claimed.traceparent,
        onRead: (bytes) => this.host.pace.read(this.claimed.agentId, bytes),
        mayRepeat: async () => (await recheck(this.deps, this.claimed)).kind === "cleared" && this.mayCall,
        observe: (operation, outcome, ms) => {
          metrics.agentCall(operation, outcome, ms);
          this.host.called(this.claimed.agentId, ms);
          this.#trace(`a2a ${operation}`, this.now - ms, outcome, outcome !== "ok");
        },
      },
      { card, entry },
    );
  }

  /**
   * Sends an event of an answer or a question; a cancellation waits until it was tried. @throws DrawbridgeError `lease_lost`
   * @param isFurther whether another one was sent before: meanwhile another process may have taken the delegation over
   */
  async send(event: PendingSend, isFurther: boolean): Promise<SendResult> {
    if (isFurther && !this.isFresh) {
      const { delegationId } = this.claimed.lease;
      throw new DrawbridgeError("lease_lost", `the lease on ${delegationId} may have run out`);
    }
    const { signal } = this;
    const result = await this.#whileInFlight("sending", () => resultUnlessAborted(this.#send(event), signal));
    if (result !== undefined) return result;
    // The send may still succeed; its transaction ID makes a repetition safe.
    throw signal.reason;
  }

  async #send(event: PendingSend): Promise<SendResult> {
    const from = this.now;
    const result = await this.deps.sender.send(event);
    this.#trace("matrix send", from, result.kind, result.kind !== "sent");
    return result;
  }

  #trace(name: TracedStep["name"], from: number, outcome: string, isError: boolean): void {
    this.deps.traces?.step(this.claimed, { name, from, to: this.now, outcome, isError });
  }

  /** Milliseconds to wait before the next try: of this delegation, or of something tried so often already. */
  backoff(attempts = this.claimed.attempts): number {
    return jitteredBackoffMs(BACKOFF, attempts, this.deps.random);
  }
}

function isLasting(error: unknown): boolean {
  if (error instanceof DrawbridgeError) return error.code !== "database_unavailable";
  return LASTING.test(String((error as { code?: unknown } | undefined)?.code ?? ""));
}
