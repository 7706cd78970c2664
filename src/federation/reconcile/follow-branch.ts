// The service: follows the branch, retries what is left over, and checks for drift. Invariants: a round that fails is
// reported and tried again, it never ends the service; the service may end at any instant, because its records say
// where to continue; one service a state folder.
import { once } from "node:events";
import { DrawbridgeError } from "../../domain/errors.ts";
import { PLANE_NAMES } from "../plane-order.ts";
import type { Revision } from "../repository/repository.ts";
import { readPlane } from "../state/plane-records.ts";
import { isRetryDue } from "./apply-plane.ts";
import type { Federation } from "./context.ts";
import { type PassResult, runPass } from "./pass.ts";

/** How long a plane that is being applied may take once the service is to end. */
const GRACE_MS = 10_000;

interface FollowOptions {
  readonly intervalMs: number;
  readonly driftIntervalMs: number;
  readonly stop: AbortSignal;
  readonly onReady: (result: PassResult | undefined) => void;
  readonly onError: (error: unknown) => void;
}

/** Runs until `stop` aborts. @throws DrawbridgeError `program_failed` when another service has the state folder */
export async function follow(context: Federation, options: FollowOptions): Promise<void> {
  const service = await context.state.tryLock("service");
  if (service === undefined) {
    throw new DrawbridgeError("program_failed", `another reconciler works with ${context.state.path}`, {
      hint: "End it first; drawbridge reconcile --once may run beside it.",
    });
  }
  try {
    const stopped = options.stop.aborted ? Promise.resolve() : once(options.stop, "abort");
    const grace = stopped.then(() => context.clock.sleep(GRACE_MS));
    await Promise.race([followRounds(context, options), grace]);
  } finally {
    await service.release();
  }
}

async function followRounds(context: Federation, options: FollowOptions): Promise<void> {
  const { clock } = context;
  let ready = false;
  let applied: Revision | undefined | null = null;
  let driftAt = Number.NEGATIVE_INFINITY;
  while (!options.stop.aborted) {
    try {
      const head = await context.repository.head();
      // A clock that was set back says nothing of the time that has passed.
      const checkDrift = clock.now() >= driftAt + options.driftIntervalMs || clock.now() < driftAt;
      if (head !== applied || checkDrift || isDue(context)) {
        const result = await runPass(context, { checkDrift, signal: options.stop });
        applied = result.head;
        if (checkDrift) driftAt = clock.now();
        if (!ready) options.onReady(result);
        ready = true;
      }
    } catch (error) {
      options.onError(error);
      if (!ready) options.onReady(undefined);
      ready = true;
      // A failure that repeats would fill the log if the next round began at once.
      await clock.sleep(options.driftIntervalMs / 10, options.stop).catch(() => undefined);
    }
    // An abort ends the wait, and so the loop.
    await clock.sleep(options.intervalMs, options.stop).catch(() => undefined);
  }
}

function isDue({ state, clock }: Federation): boolean {
  return PLANE_NAMES.some((plane) => {
    const { applied, applying } = readPlane(state, plane);
    return applying !== null || isRetryDue(applied, clock.now());
  });
}
