// The service: follows the branch, retries what is left over, and checks for drift. Invariants: a round that fails is
// reported and tried again, it never ends the service; the service may end at any instant, because its records say
// where to continue; one service a state folder.
import { once } from "node:events";
import { createServer } from "node:http";
import { Gauge, Registry } from "prom-client";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { listening } from "../../runtime/http.ts";
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
    await Promise.race([followRounds(context, options), graceAfter(options.stop, context.clock)]);
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

async function graceAfter(stop: AbortSignal, clock: Clock): Promise<void> {
  if (!stop.aborted) await once(stop, "abort");
  await clock.sleep(GRACE_MS);
}

// The metrics say what the planes' records hold at a scrape. Labels are planes and reasons, never a partner, a room or a
// user; a plane that is not managed here has no series, and one without a record none but that it is not in force.
const PREFIX = "drawbridge_federation_";

export function reconcilerMetrics({ state, planes }: Pick<Federation, "state" | "planes">): Registry {
  const registry = new Registry();
  const gauge = (name: string, help: string, labels: readonly string[] = [], collect = () => {}) =>
    new Gauge({ name, help, labelNames: ["plane", ...labels], registers: [registry], collect });
  // Registered first, because the others have their values when it has collected.
  const reached = "1 where the last attempt at a plane brought it to its state";
  const inForce = gauge(`${PREFIX}plane_in_force`, reached, [], () => {
    for (const one of [inForce, outOfReach, drift, checked]) one.reset();
    for (const plane of PLANE_NAMES) {
      if (planes[plane].unmanaged) continue;
      const { applied, driftCheck } = readPlane(state, plane);
      inForce.set({ plane }, applied?.outcome === "in_force" ? 1 : 0);
      for (const { reason } of applied?.outOfReach ?? []) outOfReach.inc({ plane, reason });
      if (driftCheck === null || driftCheck.differences === null) continue;
      drift.set({ plane }, driftCheck.differences);
      checked.set({ plane }, Date.parse(driftCheck.at) / 1_000);
    }
  });
  const left = "What the last attempt at a plane could not bring to its state";
  const outOfReach = gauge(`${PREFIX}out_of_reach`, left, ["reason"]);
  const drift = gauge(`${PREFIX}drift_differences`, "Differences that the last drift check has found");
  const checked = gauge(`${PREFIX}drift_checked_timestamp_seconds`, "When a drift check was last made");
  return registry;
}

/** Serves `GET /metrics` until the process ends. @throws DrawbridgeError `program_failed` when it cannot listen */
export async function serveMetrics(registry: Registry, address: Parameters<typeof listening>[1]) {
  const server = createServer((request, response) => {
    request.resume();
    if (request.method !== "GET" || request.url !== "/metrics") {
      response.writeHead(404).end();
      return;
    }
    registry.metrics().then(
      (text) => response.writeHead(200, { "content-type": registry.contentType }).end(text),
      () => response.writeHead(500).end(),
    );
  });
  await listening(server, address).catch((cause: unknown) => {
    throw new DrawbridgeError("program_failed", `cannot listen on ${address.host}:${address.port}`, {
      hint: "Free that port, or change `reconcile.observe` in federation.yaml.",
      cause,
    });
  });
  return server;
}
