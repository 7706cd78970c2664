// One claimed delegation on its way: what its steps share, and what becomes of it when they end.
// Invariants: a flow never ends without a trace (it finishes, defers, is released, or has lost its lease);
// a lost lease ends it silently; an error nobody expected puts it back with a back-off and is logged by its
// code alone.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { ClaimedDelegation } from "../ledger/types.ts";
import { AgentClient } from "./a2a/agent-client.ts";
import { jitteredBackoffMs } from "./backoff.ts";
import { cancelTask } from "./cancel.ts";
import type { DelegationDependencies } from "./dependencies.ts";
import { dispatch } from "./dispatch.ts";
import { followAccepted } from "./follow.ts";
import type { HeldLease } from "./lease-keeper.ts";
import { canceled } from "./outcome.ts";
import { persist } from "./persist.ts";
import type { ClearedTarget } from "./recheck.ts";
import { deliver } from "./reply.ts";
import { finish, type Verdict } from "./verdict.ts";

/** Why a flow is stopped from outside. */
export class Interrupt extends Error {
  readonly why: "lost" | "drain" | "canceled";

  constructor(why: Interrupt["why"]) {
    super(`the delegation's flow was interrupted: ${why}`);
    this.name = "Interrupt";
    this.why = why;
  }
}

/** What a flow asks of the worker that runs it. */
export interface FlowHost {
  /** A room or a slot may have become free: claim again. */
  wake(): void;
  /** Others wait for this flow's slot. */
  isCrowded(): boolean;
}

export class Flow {
  readonly claimed: ClaimedDelegation;
  readonly deps: DelegationDependencies;
  readonly host: FlowHost;
  readonly claimedAt: number;
  /** The agent's task, as soon as it is known. */
  taskId: string | undefined;
  stage: "dispatch" | "follow" | "reply" = "dispatch";
  /** The task is being followed on a stream, which some agents do not survive the end of. */
  holdsStream = false;
  #lease: HeldLease | undefined;
  #controller = new AbortController();
  #interrupted: Interrupt["why"] | undefined;

  constructor(claimed: ClaimedDelegation, deps: DelegationDependencies, host: FlowHost) {
    this.claimed = claimed;
    this.deps = deps;
    this.host = host;
    this.claimedAt = deps.clock.now();
    this.taskId = claimed.a2aTaskId;
    if (claimed.resumedFrom === "following") this.stage = "follow";
    if (claimed.resumedFrom === "reply_pending") this.stage = "reply";
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get now(): number {
    return this.deps.clock.now();
  }

  /** Whether the lease surely still runs; asked right before an agent is called. */
  get isFresh(): boolean {
    return this.#lease?.isFresh() ?? false;
  }

  attach(lease: HeldLease): void {
    this.#lease = lease;
  }

  interrupt(why: Interrupt["why"]): void {
    // A redaction is acted on once; a lost lease or a drain ends whatever runs.
    if (why === "canceled" && this.#interrupted !== undefined) return;
    this.#interrupted = why;
    this.#controller.abort(new Interrupt(why));
  }

  /** Writes to the ledger until it is written. */
  persist<T>(write: () => Promise<T>): Promise<T> {
    return persist(this.deps, this.signal, write);
  }

  /** @throws A2aFailure `protocol` when the card offers no interface that the bridge speaks */
  connect(cleared: ClearedTarget): AgentClient {
    const { http, tokens, clock, limits, metrics } = this.deps;
    return AgentClient.to(
      {
        http,
        tokens,
        clock,
        requestTimeoutMs: limits.agentRequestTimeout,
        answerBytesMax: limits.answerBytes,
        observe: (operation, outcome, ms) => metrics.agentCall(operation, outcome, ms),
      },
      {
        card: cleared.card,
        cardUrl: cleared.target.entry.cardUrl,
        credentials: cleared.target.entry.credentials,
      },
    );
  }

  /** Milliseconds to wait before the next try of this delegation. */
  backoff(): number {
    return jitteredBackoffMs(this.claimed.attempts, this.deps.random);
  }

  /** Nothing is lost when another process goes on with it at once. */
  get isMovable(): boolean {
    return this.stage === "follow" && !this.holdsStream;
  }

  /** Runs to its end. `held`: interrupted by a drain, the lease is still ours to give back. */
  async run(): Promise<"settled" | "held"> {
    try {
      await this.#settle(await (this.claimed.cancelRequested ? this.#cancel() : this.#route()));
      return "settled";
    } catch (error) {
      return this.#interrupted === "canceled" ? await this.#runCanceled() : await this.#stopped(error);
    } finally {
      this.#lease?.drop();
    }
  }

  async #runCanceled(): Promise<"settled" | "held"> {
    this.#controller = new AbortController();
    try {
      await this.#settle(await this.#cancel());
      return "settled";
    } catch (error) {
      return await this.#stopped(error);
    }
  }

  #route(): Promise<Verdict> {
    switch (this.claimed.resumedFrom) {
      case "queued":
      case "dispatching":
        return dispatch(this);
      case "following":
        return followAccepted(this);
      case "reply_pending":
        return deliver(this, undefined);
    }
  }

  async #cancel(): Promise<Verdict> {
    if (this.taskId !== undefined && this.stage === "follow") await cancelTask(this, this.taskId);
    return finish(canceled(this.stage));
  }

  async #settle(verdict: Verdict): Promise<void> {
    const { ledger, metrics } = this.deps;
    const { lease } = this.claimed;
    if (verdict.kind === "finish") {
      const { state, stage, reason } = verdict.outcome;
      await this.persist(() => ledger.finish(lease, verdict.outcome, this.now));
      metrics.ended(state, stage, reason);
      this.deps.log.info({ event: "delegation_ended", delegation: lease.delegationId, state, stage, reason });
      return;
    }
    const { wakeAt, reason, undelivered } = verdict;
    const isPause = reason === "flow_failed" || reason === "slot_yielded" || reason === "reply_retry";
    await this.persist(() => ledger.defer(lease, wakeAt, isPause ? undefined : { undelivered, reason }));
    metrics.deferred(reason);
  }

  async #stopped(error: unknown): Promise<"settled" | "held"> {
    const { ledger, metrics, log } = this.deps;
    const { lease } = this.claimed;
    const isLost = error instanceof DrawbridgeError && error.code === "lease_lost";
    if (isLost || this.#interrupted === "lost") {
      metrics.leaseLost();
      return "settled";
    }
    if (this.#interrupted === "drain") return "held";

    const code = codeOf(error);
    metrics.flowFailed(code);
    metrics.deferred("flow_failed");
    log.error({ event: "delegation_flow_failed", delegation: lease.delegationId, stage: this.stage, code });
    // If this write fails too the lease runs out by itself, and another claim takes the delegation up.
    await ledger.defer(lease, this.now + this.backoff()).catch(() => undefined);
    return "settled";
  }
}

/** A stable name for an error: never its message, which may carry content. */
function codeOf(error: unknown): string {
  if (error instanceof DrawbridgeError) return error.code;
  const code = (error as { code?: unknown } | undefined)?.code;
  if (typeof code === "string" && /^[A-Z0-9_]{1,40}$/.test(code)) return code;
  return error instanceof Error && /^[A-Za-z0-9]{1,40}$/.test(error.name) ? error.name : "unknown";
}
