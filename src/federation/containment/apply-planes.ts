// Applies the planes of an act one by one, and probes each from inside. Invariants: the order is that of the procedure:
// 5, 4, 2, 3, and the reverse for a restore; a plane counts as closed only when the reconciler has it in force and every
// real part that was asked says so; unknown is not closed, and neither is what nobody manages; one plane that fails does
// not keep the next from closing.
import type { Verdict } from "../../records/conditions/condition.ts";
import { isSettled } from "../../records/conditions/evaluate.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { PlaneName } from "../plane-order.ts";
import type { OutOfReach } from "../planes/plane.ts";
import { isPublicForOthers, wasNotTried } from "../probes/finding.ts";
import { probeFromInside } from "../probes/inside.ts";
import type { ReconcileContext } from "../reconcile/context.ts";
import type { PassResult } from "../reconcile/pass.ts";
import type { PartnerEntry } from "../registry/partner.ts";
import { CONTAIN, planesOf, RESTORE } from "../workflow/procedure.ts";
import { reconcilePlane } from "../workflow/reconcile-plane.ts";
import type { Act } from "./containment-record.ts";

export interface PlaneResult {
  readonly plane: PlaneName;
  /** Whether the plane is as the act wants it, as observed from inside. */
  readonly verdict: Verdict;
  /** Whether it is known to be so; a plane that nobody manages is not. */
  readonly done: boolean;
  /** The reconciler's outcome; null when it did not come to it. */
  readonly outcome: string | null;
  readonly reason: string | null;
  /** When the first attempt at what the act wants ended; sorted by this, the planes are in the order of the act. */
  readonly triedAt: string | null;
  /** Since when it is wholly in force, whatever was observed since; else when the last attempt ended. */
  readonly at: string | null;
  /** When a plane that had been in force was last so again, something having been put right; null when never. */
  readonly repairedAt: string | null;
  /** What of this partner was not reached. */
  readonly outOfReach: readonly OutOfReach[];
  readonly evidence: readonly EvidenceItem[];
}

export function stepsOf(act: Act): readonly PlaneName[] {
  return planesOf(act === "contain" ? CONTAIN : RESTORE);
}

/** Whether nothing is left to be done about a plane. */
export function isEnded({ verdict }: Pick<PlaneResult, "verdict">): boolean {
  return isSettled({ verdict });
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
  const wayOut = act === "contain" ? "Give the same command again: it works around that." : undefined;
  for (const plane of stepsOf(act)) {
    let pass = await reconcilePlane(context, plane, { wayOut });
    let result = await planeResult(context, act, partner, plane, pass);
    if (result.verdict === "not_met" && result.outcome === "in_force") {
      // Recorded as in force, and a real part says otherwise: somebody has changed it since.
      pass = await reconcilePlane(context, plane, { wayOut, again: true });
      result = await planeResult(context, act, partner, plane, pass);
    }
    results.push(result);
    options.onPlane?.(result);
    await replaceOthers(context, act, partner, pass, results);
  }
  return results;
}

/** Replaces the results of planes that a pass has applied once more: the rooms, when the border has closed after them. */
async function replaceOthers(
  context: ReconcileContext,
  act: Act,
  partner: PartnerEntry,
  pass: PassResult,
  results: PlaneResult[],
): Promise<void> {
  const current = results.at(-1)?.plane;
  for (const { plane } of pass.planes) {
    const index = results.findIndex((result) => result.plane === plane);
    if (plane === current || index < 0) continue;
    results[index] = await planeResult(context, act, partner, plane, pass);
  }
}

async function planeResult(
  context: ReconcileContext,
  act: Act,
  partner: PartnerEntry,
  plane: PlaneName,
  pass: PassResult,
): Promise<PlaneResult> {
  const record = pass.planes.find((report) => report.plane === plane)?.record;
  const applied = record?.applied ?? null;
  const inForce = applied?.outcome === "in_force" ? (record?.inForce ?? null) : null;
  const evidence = await evidenceOf(context, partner, plane, pass);
  const outcome = applied?.outcome ?? null;
  const isUnmanaged = context.planes[plane].isUnmanaged === true;
  const { verdict, item } = isUnmanaged
    ? { verdict: "unmanaged" as const, item: undefined }
    : judged(act, outcome, evidence);
  return {
    ...{ plane, verdict, outcome },
    done: verdict === "met" || verdict === "not_applicable",
    reason: applied?.reason ?? item?.reason ?? null,
    triedAt: applied?.firstAt ?? null,
    at: (inForce ?? applied)?.at ?? null,
    repairedAt: inForce?.repairedAt ?? null,
    outOfReach: (applied?.outOfReach ?? []).filter((one) => one.partner === partner.partner.serverName),
    evidence,
  };
}

/** What the reconciler has reached, and what the real parts say: with the item that decides. */
function judged(
  act: Act,
  outcome: string | null,
  evidence: readonly EvidenceItem[],
): { readonly verdict: Verdict; readonly item: EvidenceItem | undefined } {
  if (outcome !== "in_force") return { verdict: "not_met", item: undefined };
  // What a restore opens may still be closed by others; a containment has to be shown.
  if (act === "restore") return { verdict: "met", item: undefined };
  const asked = evidence.filter((item) => item.vantage === "operator" && !wasNotTried(item));
  const open = asked.find((item) => item.verdict === "open" && !isPublicForOthers(item));
  if (open !== undefined) return { verdict: "not_met", item: open };
  const unknown = asked.find(({ verdict }) => verdict === "unknown");
  if (unknown !== undefined) return { verdict: "unknown", item: unknown };
  return { verdict: asked.length === 0 ? "not_applicable" : "met", item: undefined };
}

/** What the real parts say of the partner, from inside. */
async function evidenceOf(
  { planes, clock }: ReconcileContext,
  partner: PartnerEntry,
  plane: PlaneName,
  { desired }: PassResult,
): Promise<readonly EvidenceItem[]> {
  const entry = desired?.registry.partners.find((one) => one.file === partner.file);
  if (desired === undefined || entry === undefined) return [];
  return probeFromInside(planes, desired, entry, [plane], clock);
}
