// A claimed delegation from its claim to what this process records of it: dispatch, follow or reply by its state.
// Invariants: a flow never ends without a trace (it finishes, defers, is released, or has lost its lease); a lost
// lease ends it silently; an unexpected error puts it back with a back-off and is logged by its code alone.
import { errorName, isLeaseLost } from "../../domain/errors.ts";
import type { TerminalReason } from "../ledger/states.ts";
import { awaitInput } from "./agent-question.ts";
import { cancelTask } from "./cancel-task.ts";
import type { DeferReason } from "./dependencies.ts";
import { dispatch } from "./dispatch.ts";
import { followAccepted } from "./follow-task.ts";
import type { Flow } from "./running-delegation.ts";
import { cancelDelivery, deliver } from "./send-reply.ts";
import { canceled, finish, type Verdict } from "./verdicts.ts";

/** How a run ended. `held`: interrupted by a drain; the lease is still this process's to give back. */
export type RunEnd = "settled" | "held";

/** Runs a flow to its end. Never rejects. */
export async function run(flow: Flow): Promise<RunEnd> {
  try {
    return await settling(flow, () => (flow.claimed.cancelRequested ? cancel(flow) : route(flow)));
  } finally {
    flow.lease?.drop();
  }
}

async function settling(flow: Flow, step: () => Promise<Verdict>): Promise<RunEnd> {
  try {
    await settle(flow, await step());
    return "settled";
  } catch (error) {
    if (flow.interrupted !== "canceled" || !flow.signal.aborted) return await stopped(flow, error);
    flow.renewSignal();
    return await settling(flow, () => cancel(flow));
  }
}

function route(flow: Flow): Promise<Verdict> {
  switch (flow.claimed.resumedFrom) {
    case "queued":
    case "dispatching":
      flow.deps.typing?.(flow.claimed.roomId, flow.claimed.ghost, true);
      return dispatch(flow);
    case "following":
      return followAccepted(flow);
    case "awaiting_input":
      return awaitInput(flow);
    case "reply_pending":
      return deliver(flow, undefined);
  }
}

async function cancel(flow: Flow): Promise<Verdict> {
  if (flow.stage === "reply") return await cancelDelivery(flow);
  await cancelTask(flow, flow.taskId);
  return finish(canceled(flow.stage));
}

/** Whether a reason to wait says nothing about why the agent has not accepted. */
function isPause(reason: DeferReason): reason is Exclude<DeferReason, TerminalReason> {
  return ["flow_failed", "task_open", "input_open", "reply_retry"].includes(reason);
}

async function settle(flow: Flow, verdict: Verdict): Promise<void> {
  const { ledger, metrics, traces, log } = flow.deps;
  const { lease } = flow.claimed;
  if (verdict.kind === "finish") {
    const { state, stage } = verdict.outcome;
    const reason = await flow.persist(() => ledger.finish(lease, verdict.outcome, flow.now));
    flow.deps.typing?.(flow.claimed.roomId, flow.claimed.ghost, false);
    metrics.ended(state, stage, reason);
    traces?.ended(flow.claimed, { state, stage, reason }, flow.now);
    log.info({ event: "delegation_ended", delegation: lease.delegationId, state, stage, reason });
    return;
  }
  const { wakeAt, reason, undelivered, followed } = verdict;
  const note = isPause(reason) ? followed && { followed } : { undelivered, reason };
  await flow.persist(() => ledger.defer(lease, wakeAt, note));
  metrics.deferred(reason);
}

async function stopped(flow: Flow, error: unknown): Promise<RunEnd> {
  const { ledger, metrics, log } = flow.deps;
  const { lease } = flow.claimed;
  if (isLeaseLost(error) || flow.interrupted === "lost") {
    metrics.leaseLost();
    return "settled";
  }
  if (flow.interrupted === "drain") return "held";

  const code = errorName(error);
  metrics.flowFailed(code);
  metrics.deferred("flow_failed");
  log.error({ event: "delegation_flow_failed", delegation: lease.delegationId, stage: flow.stage, code });
  // If this write fails too the lease runs out by itself, and another claim takes the delegation up.
  await ledger.defer(lease, flow.now + flow.backoff()).catch(() => undefined);
  return "settled";
}
