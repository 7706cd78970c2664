// drawbridge reconcile: brings the planes to what the registry declares, once or as long as it runs.
import process from "node:process";
import { DrawbridgeError } from "../domain/errors.ts";
import { PLANE_NAMES, planeLabel } from "../federation/plane-order.ts";
import type { ReconcileEvent } from "../federation/reconcile/context.ts";
import { follow } from "../federation/reconcile/follow-branch.ts";
import { reconcilerMetrics, serveMetrics } from "../federation/reconcile/metrics.ts";
import { type PassResult, type PlaneReport, runPass } from "../federation/reconcile/pass.ts";
import { serviceLog, stopSignal } from "../runtime/service.ts";
import type { OptionValues } from "./lib/command.ts";
import { defineCommand, OPTION, print, renderRows, short, withReason } from "./lib/command.ts";
import { openForCommand } from "./lib/federation.ts";

const OPTIONS = [
  OPTION.federation,
  ["--once", "one pass, also over what waits, then a table"],
  ["--plane <name>", "with --once: only this plane", { choices: PLANE_NAMES }],
  ["--allow-non-fast-forward", "with --once: accept a head that does not descend from the last accepted one"],
  ["--json", "with --once: JSON instead of the table"],
] as const;
type Options = OptionValues<typeof OPTIONS>;

export const command = defineCommand({
  options: OPTIONS,
  help: `
Follows the branch until SIGTERM; standard output is then a log, one JSON object a line, and the line with
"event":"ready" says that the first pass has ended. With --once it ends after one pass.
Exit code 1: a plane failed; of the service: another reconciler is at work here. 5: a plane is incomplete, deferred, held or busy.`,
  run: (_, options) => (options.once === true ? once(options) : service(options)),
});

async function once(options: Options) {
  const federation = await openForCommand(options.config);
  const { plane, allowNonFastForward = false } = options;
  const result = await runPass(federation, { plane, allowNonFastForward, force: true, checkDrift: true });
  print(options, jsonOf(result), () => tableOf(result));
  if (result.refusal !== undefined) return "refused";
  const outcomes = result.planes.map(outcomeOf);
  if (outcomes.includes("failed")) return "failed";
  const isReached = outcomes.every((outcome) => outcome === "in_force" || outcome === "unmanaged");
  return isReached ? "ok" : "incomplete";
}

function outcomeOf({ step, record }: PlaneReport): string {
  const isNotApplied = ["held", "superseded", "unmanaged", "busy"].includes(step);
  return isNotApplied ? step : (record.applied?.outcome ?? "never");
}

function tableOf({ planes }: PassResult): string {
  return renderRows(planes, {
    PLANE: (one) => planeLabel(one.plane),
    REVISION: (one) => short(one.record.applied?.revision),
    DIGEST: (one) => short(one.record.applied?.digest),
    TIME: (one) => one.record.applied?.at ?? "-",
    OUTCOME: (one) => withReason(outcomeOf(one), one.record.applied?.reason),
    CHANGED: (one) => (one.changed ? "yes" : "no"),
    DRIFT: (one) => (one.step === "unmanaged" ? "-" : String(one.drift)),
  });
}

const NEVER = { revision: null, digest: null, at: null, reason: null, outOfReach: [], retryAt: null };

function jsonOf({ head, revision, direction, refusal, planes }: PassResult): unknown {
  return {
    head: head ?? null,
    revision: revision ?? null,
    order: direction ?? null,
    refused: refusal ?? null,
    planes: planes.map((report) => {
      const { plane, changed, drift, record } = report;
      const { revision, digest, at, reason, outOfReach, retryAt } = record.applied ?? NEVER;
      const outcome = outcomeOf(report);
      return { plane, revision, digest, at, outcome, reason, outOfReach, retryAt, changed, drift };
    }),
  };
}

async function service(options: Options): Promise<never> {
  if ((options.plane ?? options.allowNonFastForward ?? options.json) !== undefined) {
    const what = "--plane, --allow-non-fast-forward and --json need --once";
    throw new DrawbridgeError("usage", what, { hint: "Add --once, or leave them out." });
  }
  const log = serviceLog("reconcile");
  const federation = await openForCommand(options.config, {
    event: (event) => log[levelOf(event)](event),
    note: (plane, text) => log.debug({ event: "progress", plane, note: text }),
  });
  const { observe, interval, driftInterval } = federation.config.reconcile;
  if (observe !== undefined) await serveMetrics(reconcilerMetrics(federation), observe);
  await follow(federation, {
    intervalMs: interval,
    driftIntervalMs: driftInterval,
    stop: stopSignal(),
    onReady: (result) =>
      log.info({ event: "ready", revision: result?.revision ?? null }, "the reconciler follows the branch"),
    onError: (error) => log.error(errorFields(error), "this round failed; it is tried again"),
  });
  log.info({ event: "ended" }, "the reconciler has ended");
  // A plane that is still being applied is taken up from its record by the next start.
  process.exit(0);
}

function errorFields(error: unknown) {
  if (!(error instanceof DrawbridgeError)) return { event: "round_failed", code: "internal", err: error };
  return { event: "round_failed", code: error.code, reason: error.message, hint: error.hint };
}

function levelOf(event: ReconcileEvent): "info" | "warn" | "error" {
  if (event.event === "head_refused") return "error";
  if (event.event === "plane_ended") {
    return event.outcome === "in_force" ? "info" : event.outcome === "failed" ? "error" : "warn";
  }
  return /^(?:drift|state_damaged)/.test(event.event) ? "warn" : "info";
}
