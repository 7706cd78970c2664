// The engine: runs one step of a procedure, whichever it is: commit → reconcile → observe → evaluate → record.
// Invariants: nothing is observed before the plane was brought to what is committed, nor recorded before it was evaluated;
// each part finds what it has done before, so that a step that was cut off is run again as a whole.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { Verdict } from "../../records/conditions/condition.ts";
import { conditionsOf, fromInside } from "../../records/conditions/condition-table.ts";
import { evaluate, isSettled } from "../../records/conditions/evaluate.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { Scope } from "../../records/format/fields.ts";
import { targetFingerprint } from "../../rendered-files/agents-file.ts";
import type { PlaneName } from "../plane-order.ts";
import { probeFromInside } from "../probes/from-inside.ts";
import { isPublicForOthers } from "../probes/read-answers.ts";
import { goodState } from "../reconcile/accept-head.ts";
import type { ReconcileContext } from "../reconcile/context.ts";
import type { DesiredState } from "../reconcile/desired-state.ts";
import { type PassResult, runPass } from "../reconcile/pass.ts";
import { findPartner, type Partner, type PartnerEntry, planeState } from "../registry/partner.ts";
import { type Applied, readPlane } from "../state/plane-records.ts";
import { DeclaredEvidence } from "./declared-evidence.ts";
import type { Step } from "./procedure.ts";
import {
  type JudgedCondition,
  judgeConditions,
  type Objection,
  objectTo,
  verdictOf,
} from "./step-verdict.ts";

export interface Reached {
  readonly desired: DesiredState;
  readonly partner: string;
  readonly applied: Applied | null;
  readonly pass: PassResult | undefined;
}

export interface Observed {
  readonly items: readonly EvidenceItem[];
  readonly tried?: readonly EvidenceItem[];
}

export interface StepRun<Seen extends Observed> {
  readonly plane: PlaneName;
  /** Server name: whose plane it is, or whose agent. */
  readonly partner: string;
  /** Makes the commit, or finds it; absent: it was made before. */
  readonly commit?: (() => Promise<unknown>) | undefined;
  /** The plane is brought to the branch's head; `again`: even if recorded as in force; `observe`: nothing is touched. */
  readonly how: "apply" | "again" | "observe";
  /** What helps where something was pushed on top of what was committed, and is refused; said before the rest. */
  readonly refusalHint?: string | undefined;
  readonly observe: (reached: Reached) => Promise<Seen>;
  readonly evaluate: (reached: Reached, seen: Seen) => readonly JudgedCondition[];
  readonly withinMs?: number;
  readonly record?: (result: StepResult<Seen>) => void;
}

export interface StepResult<Seen> extends Reached {
  readonly seen: Seen;
  readonly conditions: readonly JudgedCondition[];
  readonly verdict: Verdict;
}

/** How long an open plane is waited for: other programs, and the partner's, follow what was opened. */
export const OPEN_WITHIN_MS = 30_000;
const POLL_MS = 500;

/** @throws DrawbridgeError `head_refused` when what the branch holds is not taken up; and what the parts throw */
export async function runStep<Seen extends Observed>(
  context: ReconcileContext,
  step: StepRun<Seen>,
): Promise<StepResult<Seen>> {
  await step.commit?.();
  const result = await observeStep(context, step, await reach(context, step));
  step.record?.(result);
  return result;
}

/** Observes a plane, after a pass has applied it, until it is as it should be or the time is over. */
export async function observeStep<Seen extends Observed>(
  { clock }: ReconcileContext,
  { plane, observe, evaluate, withinMs = 0 }: StepRun<Seen>,
  reached: Reached,
): Promise<StepResult<Seen>> {
  const { applied } = reached;
  for (const deadline = clock.now() + withinMs; ; await clock.sleep(POLL_MS)) {
    const seen = await observe(reached);
    const conditions = objectTo(evaluate(reached, seen), notReached(plane, applied));
    const isFinal = conditions.every(isSettled) || applied?.outcome !== "in_force" || clock.now() >= deadline;
    if (isFinal) return { ...reached, seen, conditions, verdict: verdictOf(conditions) };
  }
}

async function reach(
  context: ReconcileContext,
  { plane, partner, how, refusalHint }: Pick<StepRun<Observed>, "plane" | "partner" | "how" | "refusalHint">,
): Promise<Reached> {
  if (how === "observe") {
    const { desired } = await goodState(context);
    const { applied } = readPlane(context.state, plane);
    return { desired, partner, applied, pass: undefined };
  }
  const pass = await runPass(context, { plane, force: true, again: how === "again" });
  if (pass.refusal !== undefined) {
    // What this machine has committed was good, and was pushed on before it was taken up.
    const { detail, hint } = pass.refusal;
    throw new DrawbridgeError("head_refused", `what was committed is not in force: ${detail}`, {
      hint: refusalHint === undefined ? hint : `${refusalHint} ${hint}`,
    });
  }
  const { desired } = pass;
  if (desired === undefined) throw new DrawbridgeError("internal", "a pass took nothing up");
  return { desired, partner, applied: appliedIn(pass, plane), pass };
}

export function appliedIn({ planes }: PassResult, plane: PlaneName): Applied | null {
  return planes.find((report) => report.plane === plane)?.record.applied ?? null;
}

function notReached(plane: PlaneName, applied: Applied | null): readonly Objection[] {
  if (applied === null || applied.outcome === "in_force" || applied.outcome === "incomplete") return [];
  const found = applied.reason ?? applied.outcome;
  const hint = `See drawbridge federation status; then run this again: it applies the ${plane} plane once more.`;
  return [{ condition: "in_force", probe: "reconciled", found, hint }];
}

/** Tries the planes of this organisation, `own`, as the partner. */
export type ObserveFromOutside = (
  own: string,
  partner: PartnerEntry,
  planes: readonly PlaneName[],
  inside: readonly EvidenceItem[],
) => Promise<readonly EvidenceItem[]>;

export interface PlaneQuestion extends Pick<Step, "direction" | "conditions"> {
  readonly plane: PlaneName;
  readonly scope: Scope;
  readonly outside?: ObserveFromOutside | undefined;
  /** The partner's entry as it was when its scope was determined; absent where that is the one that was reached. */
  readonly before?: Pick<Partner, "gateway" | "card"> | undefined;
  /** Items that show the use of an agent to be refused whose card stays public for others. */
  readonly refusals?: (agent: string) => readonly EvidenceItem[];
  /** Of what is pinned for each agent; that of the partner's entry when absent. */
  readonly fingerprints?: ReadonlyMap<string, string>;
}

/** How a plane is observed, and judged by its conditions as they are now. */
export function asking(context: ReconcileContext, ask: (reached: Reached) => PlaneQuestion) {
  return {
    observe: (reached: Reached) => observePlane(context, reached, ask(reached)),
    evaluate: (reached: Reached, seen: Observed) => judgePlane(reached, seen, ask(reached)),
  };
}

/** What the organisation states itself, what its parts say, and what was tried as the partner. */
export async function observePlane(
  { planes, clock }: Pick<ReconcileContext, "planes" | "clock">,
  { desired, partner: named, applied }: Reached,
  { plane, direction, scope, outside, before, refusals = () => [] }: Omit<PlaneQuestion, "conditions">,
): Promise<Required<Observed>> {
  const entry = findPartner(desired.registry, named);
  const { partner } = entry;
  const declared = new DeclaredEvidence(partner.serverName, plane, clock);
  const covering = plane === "rooms" ? scope.rooms : plane === "gateway" ? scope.applicants : null;
  const inside = await probeFromInside(planes, desired, entry, [plane], clock, covering ?? []);
  const tried = (await outside?.(desired.registry.organisation.serverName, entry, [plane], inside)) ?? [];
  const staying = inside.filter((item) => item.probe === "card_fetch" && isPublicForOthers(item));
  const agents = new Set(staying.flatMap(({ subject }) => subject ?? []));
  const own = [
    ...declared.reconciled(applied, planeState(partner, plane), desired),
    ...declared.absences(direction, scope, desired.revision, [partner, before ?? partner]),
    ...(plane === "gateway" && direction === "closed" ? declared.gateway(partner, scope, desired) : []),
    ...(direction === "closed" ? declared.cardUse(agents, refusals, desired.revision) : []),
    ...(plane === "rooms" ? declared.missingRooms(scope, inside) : []),
  ];
  return { items: [...own, ...inside, ...tried], tried };
}

/** The conditions of a plane as they are now; without a probe from outside, those that one's own parts show. */
export function judgePlane(
  { desired, partner }: Reached,
  { items }: Observed,
  { plane, direction, conditions, scope, outside, fingerprints }: PlaneQuestion,
): readonly JudgedCondition[] {
  const all = conditionsOf(plane, direction, conditions === "partner" ? "partner" : "agent");
  const asked = conditions === "in_force" ? all.filter(({ name }) => name === "in_force") : all;
  const evaluated = evaluate(outside === undefined ? fromInside(asked) : asked, items, {
    ...{ organisation: desired.registry.organisation.serverName, partner },
    ...{ plane, scope, from: null, until: null },
    ...{ revision: desired.revision, render: desired.planes[plane].digest, outOfReach: new Set<string>() },
    fingerprints: fingerprints ?? fingerprintsOf(findPartner(desired.registry, partner)),
  });
  return judgeConditions(evaluated, { items, fromOutside: outside !== undefined });
}

function fingerprintsOf({ partner }: PartnerEntry): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(partner.card.consumes).flatMap(([agent, { cardUrl, cardIdentity }]) =>
      cardIdentity === undefined ? [] : [[agent, targetFingerprint(agent, { cardUrl, cardIdentity })]],
    ),
  );
}
