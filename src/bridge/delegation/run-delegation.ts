// A claimed delegation from its claim to what this process records of it: dispatch, follow or reply by its state. Invariants:
// a running delegation never ends without a trace (it finishes, defers, is released, or has lost its lease); a lost lease ends
// it silently; an unexpected error puts it back with a back-off and is logged by its code alone.
import { errorName, isLeaseLost } from "../../domain/errors.ts";
import { awaitInput } from "./agent-question.ts";
import { cancelAndFinish } from "./cancel-task.ts";
import { dispatch } from "./dispatch.ts";
import { followAccepted } from "./follow-task.ts";
import { canceled, type DelegationVerdict } from "./outcomes.ts";
import type { RunningDelegation } from "./running-delegation.ts";
import { sendUnsent } from "./send-reply.ts";

/** How a run ended. `held`: the lease is, or may be, still this process's to give back. */
export type RunEnd = "settled" | "held";

export async function run(running: RunningDelegation): Promise<RunEnd> {
  try {
    return await recorded(running, () =>
      running.claimed.cancelRequested ? cancel(running) : route(running),
    );
  } finally {
    running.lease?.drop();
  }
}

async function recorded(running: RunningDelegation, step: () => Promise<DelegationVerdict>): Promise<RunEnd> {
  try {
    await recordVerdict(running, await step());
    return "settled";
  } catch (error) {
    if (running.interrupted !== "canceled" || !running.signal.aborted) return await stopped(running, error);
    running.renewSignal();
    return await recorded(running, () => cancel(running));
  }
}

function route(running: RunningDelegation): Promise<DelegationVerdict> {
  switch (running.claimed.resumedFrom) {
    case "queued":
    case "dispatching":
      running.deps.typing(running.claimed.roomId, running.claimed.ghost, true);
      return dispatch(running);
    case "following":
      return followAccepted(running);
    case "awaiting_input":
      return awaitInput(running);
    case "reply_pending":
      return sendUnsent(running);
  }
}

async function cancel(running: RunningDelegation): Promise<DelegationVerdict> {
  // If the answer turns out to be in the room, it ends as answered.
  if (running.stage === "reply") return await sendUnsent(running, undefined, canceled("reply"));
  return await cancelAndFinish(running, running.taskId, canceled(running.stage));
}

async function recordVerdict(running: RunningDelegation, verdict: DelegationVerdict): Promise<void> {
  const { ledger, metrics, traces, log } = running.deps;
  const { lease } = running.claimed;
  if (verdict.kind === "finish") {
    const { state, stage } = verdict.outcome;
    const reason = await running.persist(() => ledger.finish(lease, verdict.outcome, running.now));
    running.deps.typing(running.claimed.roomId, running.claimed.ghost, false);
    metrics.ended(state, stage, reason);
    traces?.ended(running.claimed, { state, stage, reason }, running.now);
    log.info({ event: "delegation_ended", delegation: lease.delegationId, state, stage, reason });
    return;
  }
  await running.persist(() => ledger.defer(lease, verdict.wakeAt, verdict.note));
  metrics.deferred(verdict.reason);
}

async function stopped(running: RunningDelegation, error: unknown): Promise<RunEnd> {
  const { ledger, metrics, log } = running.deps;
  const { lease } = running.claimed;
  if (isLeaseLost(error) || running.interrupted === "lost") {
    metrics.leaseLost();
    // The refused write may repeat one that was committed though its answer was lost.
    return running.interrupted === "lost" ? "settled" : "held";
  }
  if (running.interrupted === "drain") return "held";

  const code = errorName(error);
  metrics.flowFailed(code);
  metrics.deferred("flow_failed");
  log.error({ event: "delegation_flow_failed", delegation: lease.delegationId, stage: running.stage, code });
  // If this write fails too the lease runs out by itself, and another claim takes the delegation up.
  await ledger.defer(lease, running.now + running.backoff()).catch(() => undefined);
  return "settled";
}
