// The service: follows the branch, retries what was left, and looks for drift. Invariants: a round that fails
// is told and tried again, it never ends the service; the service may end at any instant, because everything
// it does can be taken up from its records; one service a state folder.
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { PLANE_NAMES } from "../plane-order.ts";
import type { Revision } from "../repository/repository.ts";
import { readPlane } from "../state/records.ts";
import { type ReconcileContext, SERVICE_LOCK } from "./context.ts";
import { type PassResult, runPass } from "./pass.ts";

/** How long a plane that is being applied may take to end once the service is told to. */
const GRACE_MS = 10_000;

export interface FollowOptions {
  readonly intervalMs: number;
  readonly driftIntervalMs: number;
  readonly stop: AbortSignal;
  /** Told once, after the first pass. */
  readonly onReady: (result: PassResult | undefined) => void;
  readonly onError: (error: unknown) => void;
}

/**
 * Runs until `stop` aborts.
 * @throws DrawbridgeError `program_failed` when another service follows with the same state folder
 */
export async function follow(context: ReconcileContext, options: FollowOptions): Promise<void> {
  const service = await context.state.tryLock(SERVICE_LOCK);
  if (service === undefined) {
    throw new DrawbridgeError("program_failed", `another reconciler works with ${context.state.path}`, {
      hint: "End it first; drawbridge reconcile --once may run beside it.",
    });
  }
  try {
    const rounds = followRounds(context, options);
    await Promise.race([rounds, graceAfter(options.stop, context.clock)]);
  } finally {
    await service.release();
  }
}

async function followRounds(context: ReconcileContext, options: FollowOptions): Promise<void> {
  const { clock } = context;
  let ready = false;
  let seen: Revision | undefined | null = null;
  let nextDrift = 0;
  while (!options.stop.aborted) {
    try {
      const head = await context.repository.head();
      const lookForDrift = clock.now() >= nextDrift;
      if (head !== seen || lookForDrift || isDue(context)) {
        const result = await runPass(context, { lookForDrift, signal: options.stop });
        seen = result.head;
        if (lookForDrift) nextDrift = clock.now() + options.driftIntervalMs;
        if (!ready) options.onReady(result);
        ready = true;
      }
    } catch (error) {
      options.onError(error);
      if (!ready) options.onReady(undefined);
      ready = true;
      // Not at once: what fails every time would fill the log.
      await clock.sleep(options.driftIntervalMs / 10, options.stop).catch(() => undefined);
    }
    // An abort ends the wait, and so the loop.
    await clock.sleep(options.intervalMs, options.stop).catch(() => undefined);
  }
}

/** Whether a plane was left over and it is time to try it again. */
function isDue({ state, clock }: ReconcileContext): boolean {
  return PLANE_NAMES.some((plane) => {
    const { applied, applying } = readPlane(state, plane);
    const retryAt = applied?.retryAt ?? null;
    return applying !== null || (retryAt !== null && clock.now() >= Date.parse(retryAt));
  });
}

async function graceAfter(stop: AbortSignal, clock: Clock): Promise<void> {
  await new Promise<void>((resolve) => {
    if (stop.aborted) resolve();
    else stop.addEventListener("abort", () => resolve(), { once: true });
  });
  await clock.sleep(GRACE_MS);
}
