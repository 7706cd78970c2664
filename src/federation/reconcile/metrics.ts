// The reconciler's metrics: what the planes' records say at the time of a scrape, in Prometheus' text format.
// Invariants: labels are planes and reasons, never a partner, a room or a user; a plane that is not managed
// here has no series; one of which nothing is recorded has none, except that it is not in force and was never checked; what
// is recorded of another revision than the accepted one puts no plane in force.
import { createServer } from "node:http";
import { Gauge, Registry } from "prom-client";
import { DrawbridgeError, undefinedFor } from "../../domain/errors.ts";
import { listening } from "../../runtime/http.ts";
import { PLANE_NAMES } from "../plane-order.ts";
import { readHead, readPlane } from "../state/plane-records.ts";
import type { Federation } from "./context.ts";

const PREFIX = "drawbridge_federation_";

export function reconcilerMetrics({ state, planes }: Pick<Federation, "state" | "planes">): Registry {
  const registry = new Registry();
  const gauge = (name: string, help: string, labels: readonly string[] = [], collect = () => {}) =>
    new Gauge({ name, help, labelNames: ["plane", ...labels], registers: [registry], collect });
  // Registered first, because the others have their values when it has collected.
  const reached = "1 where the last attempt at a plane brought it to its state at the accepted revision";
  const inForce = gauge(`${PREFIX}plane_in_force`, reached, [], () => {
    for (const one of [inForce, outOfReach, drift, checked]) one.reset();
    const accepted = acceptedRevision(state);
    for (const plane of PLANE_NAMES) {
      if (planes[plane].unmanaged) continue;
      const { applied, driftCheck } = readPlane(state, plane);
      const isReached = applied?.outcome === "in_force" && applied.revision === accepted;
      inForce.set({ plane }, isReached ? 1 : 0);
      for (const { reason } of applied?.outOfReach ?? []) outOfReach.inc({ plane, reason });
      const { differences = null, succeededAt = null } = driftCheck ?? {};
      if (differences !== null) drift.set({ plane }, differences);
      // Told after failed checks too: an alarm on a series that ends with the first of them would never be raised.
      checked.set({ plane }, succeededAt === null ? 0 : Date.parse(succeededAt) / 1_000);
    }
  });
  const left = "What the last attempt at a plane could not bring to its state";
  const outOfReach = gauge(`${PREFIX}out_of_reach`, left, ["reason"]);
  const drift = gauge(`${PREFIX}drift_differences`, "Differences that the last drift check has found");
  const succeeded = "When a drift check last succeeded, or 0";
  const checked = gauge(`${PREFIX}drift_checked_timestamp_seconds`, succeeded);
  return registry;
}

function acceptedRevision(state: Federation["state"]) {
  try {
    return readHead(state).accepted?.revision;
  } catch (error) {
    return undefinedFor()(error);
  }
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
