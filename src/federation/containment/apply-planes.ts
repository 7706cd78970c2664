// Applies the planes of an act one by one, and probes each from inside. Invariants: the order is the safe one, 5, 4, 2,
// 3, and the reverse for a restore; a plane counts as closed only when the reconciler has it in force and no real part
// says otherwise; one plane that fails does not keep the next from closing.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { CONTAINMENT_ORDER, type PlaneName } from "../plane-order.ts";
import type { OutOfReach } from "../planes/plane.ts";
import { isPublicForOthers } from "../probes/finding.ts";
import { probeFromInside } from "../probes/inside.ts";
import type { ReconcileContext } from "../reconcile/context.ts";
import { type PassResult, runPass } from "../reconcile/pass.ts";
import type { PartnerEntry } from "../registry/partner.ts";
import type { Act } from "./containment-record.ts";

export interface PlaneResult {
  readonly plane: PlaneName;
  /** Whether the plane is as the act wants it, as observed from inside. */
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
  return act === "contain" ? CONTAINMENT_ORDER : [...CONTAINMENT_ORDER].reverse();
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
    let pass = await applyPlane(context, plane, { wayOut });
    let result = await planeResult(context, act, partner, plane, pass);
    if (!result.done && result.outcome === "in_force") {
      // Recorded as in force, and a real part says otherwise: somebody has changed it since.
      pass = await applyPlane(context, plane, { wayOut, again: true });
      result = await planeResult(context, act, partner, plane, pass);
    }
    results.push(result);
    options.onPlane?.(result);
    await replaceOthers(context, act, partner, pass, results);
  }
  return results;
}

export interface ApplyPlaneOptions {
  /** Applies also what is recorded as in force. */
  readonly again?: boolean;
  /** What helps where something was pushed on top of what was committed, and is refused; said before the rest. */
  readonly wayOut?: string | undefined;
}

/**
 * Brings one plane to the branch's head, as far as it goes.
 * @throws DrawbridgeError `head_refused` when what the branch holds is not taken up: what this machine has
 *   committed was good, and was pushed on before it was taken up
 */
export async function applyPlane(
  context: ReconcileContext,
  plane: PlaneName,
  { again = false, wayOut }: ApplyPlaneOptions = {},
): Promise<PassResult> {
  const pass = await runPass(context, { plane, force: true, again });
  if (pass.refusal === undefined) return pass;
  const { detail, hint } = pass.refusal;
  throw new DrawbridgeError("head_refused", `what was committed is not in force: ${detail}`, {
    hint: wayOut === undefined ? hint : `${wayOut} ${hint}`,
  });
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
  const contradicting =
    act === "contain"
      ? evidence.find((item) => item.verdict === "open" && !isPublicForOthers(item))
      : undefined;
  const outcome = applied?.outcome ?? null;
  return {
    plane,
    done: outcome === "in_force" && contradicting === undefined,
    outcome,
    reason: applied?.reason ?? contradicting?.reason ?? null,
    triedAt: applied?.firstAt ?? null,
    at: (inForce ?? applied)?.at ?? null,
    repairedAt: inForce?.repairedAt ?? null,
    outOfReach: (applied?.outOfReach ?? []).filter((one) => one.partner === partner.partner.serverName),
    evidence,
  };
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
