import type { PlaneName } from "../plane-order.ts";
import { scopeOf } from "../probes/from-inside.ts";
import type { ReconcileContext } from "../reconcile/context.ts";
import { findPartner, type PartnerEntry, planeState } from "../registry/partner.ts";
import { judgePlane, type Observed, observePlane, type PlaneQuestion } from "../workflow/observe-plane.ts";
import { CONTAIN, planesOf, RESTORE } from "../workflow/procedure.ts";
import {
  appliedIn,
  OPEN_WITHIN_MS,
  observeStep,
  type Reached,
  runStep,
  type StepResult,
  type StepRun,
} from "../workflow/run-step.ts";
import { allHold } from "../workflow/step-verdict.ts";
import type { Act } from "./containment-record.ts";

export function stepsOf(act: Act): readonly PlaneName[] {
  return planesOf(act === "contain" ? CONTAIN : RESTORE);
}

export interface ApplyOptions {
  /** Called as each plane ends. */
  readonly onPlane?: (result: PlaneResult) => void;
}

/** @throws DrawbridgeError `head_refused` when what the branch holds is not taken up */
export async function applyPlanes(
  context: ReconcileContext,
  act: Act,
  partner: PartnerEntry,
  options: ApplyOptions = {},
): Promise<readonly PlaneResult[]> {
  const results: PlaneResult[] = [];
  for (const plane of stepsOf(act)) {
    const step = stepOf(context, act, partner, plane, results);
    let done = await runStep(context, step);
    if (done.verdict === "not_met" && done.applied?.outcome === "in_force") {
      // Recorded as in force, and a real part says otherwise: somebody has changed it since.
      done = await runStep(context, { ...step, how: "again" });
    }
    const result = resultOf(plane, done);
    results.push(result);
    options.onPlane?.(result);
    const { pass } = done;
    // The rooms are applied once more when the border has closed after them.
    for (const { plane: other } of pass?.planes ?? []) {
      const index = results.findIndex((one) => one.plane === other);
      if (pass === undefined || other === plane || index < 0) continue;
      const reached = { ...done, applied: appliedIn(pass, other) };
      const seen = stepOf(context, act, partner, other, results);
      results[index] = resultOf(other, await observeStep(context, seen, reached));
    }
  }
  return results;
}

function stepOf(
  context: ReconcileContext,
  act: Act,
  { partner: { serverName } }: PartnerEntry,
  plane: PlaneName,
  before: readonly PlaneResult[],
): StepRun<Observed> {
  const refused = (before.find((one) => one.plane === "gateway")?.evidence ?? []).filter(
    ({ probe, verdict }) => probe === "callers_in_force" && verdict === "closed",
  );
  const ask = ({ desired }: Reached): PlaneQuestion => {
    const { partner } = findPartner(desired.registry, serverName);
    const direction = planeState(partner, plane);
    const scope = scopeOf(context.parts, partner, desired);
    // An agent that was never pinned is not opened by a restore either.
    const isPinned = (agent: string) => partner.card.consumes[agent]?.cardIdentity !== undefined;
    const pins = direction === "open" ? scope.pins.filter(isPinned) : scope.pins;
    return { plane, direction, scope: { ...scope, pins }, refusals: () => refused };
  };
  return {
    ...{ plane, partner: serverName, how: "apply" },
    observe: (reached) => observePlane(context, reached, ask(reached)),
    evaluate: (reached, seen) => judgePlane(reached, seen, ask(reached)),
    ...(act === "contain"
      ? { wayOut: "Give the same command again: it works around that." }
      : { withinMs: OPEN_WITHIN_MS }),
  };
}

/** How a plane is after an act. */
export type PlaneResult = Readonly<ReturnType<typeof resultOf>>;

function resultOf(
  plane: PlaneName,
  { pass, partner, applied, seen: { items }, conditions, verdict }: StepResult<Observed>,
) {
  const record = pass?.planes.find((report) => report.plane === plane)?.record;
  const inForce = applied?.outcome === "in_force" ? (record?.inForce ?? null) : null;
  const open = conditions.find((one) => !allHold([one]));
  const item = items.find(({ probe, reason }) => probe === open?.probe && reason !== null);
  return {
    /** `verdict`: of the plane as the act wants it, from inside; `outcome`: the reconciler's, if it came to it. */
    ...{ plane, verdict, outcome: applied?.outcome ?? null },
    /** Whether it is known to be so; a plane that nobody manages is not. */
    done: verdict === "met" || verdict === "not_applicable",
    reason: applied?.reason ?? item?.reason ?? open?.condition ?? null,
    /** When the first attempt at what the act wants ended; sorted by this, the planes are in the order of the act. */
    triedAt: applied?.firstAt ?? null,
    /** Since when it is wholly in force, whatever was observed since; else when the last attempt ended. */
    at: (inForce ?? applied)?.at ?? null,
    /** When a plane that had been in force was last so again, something having been put right; null when never. */
    repairedAt: inForce?.repairedAt ?? null,
    /** What of this partner was not reached. */
    outOfReach: (applied?.outOfReach ?? []).filter((one) => one.partner === partner),
    ...{ conditions, evidence: items },
  };
}
