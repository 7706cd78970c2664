// Runs one step of a procedure on a plane, after its commit: reconcile → observe → evaluate. What is committed before, and
// what is recorded and signed after, is the procedure's own.
// Invariants: the plane's conditions are evaluated by the one table; a step is as it should be only when its conditions
// hold; nothing is written here but by the reconciler, so that a step that was cut off is run again.
import type { Direction, Verdict } from "../../records/conditions/condition.ts";
import { evaluate } from "../../records/conditions/evaluate.ts";
import { conditionsOf, fromInside } from "../../records/conditions/table.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { Scope } from "../../records/format/scope.ts";
import { targetFingerprint } from "../../rendered-files/agents-file.ts";
import type { PlaneName } from "../plane-order.ts";
import { isPublicForOthers } from "../probes/finding.ts";
import { probeFromInside } from "../probes/inside.ts";
import type { ReconcileContext } from "../reconcile/context.ts";
import type { DesiredState } from "../reconcile/desired-state.ts";
import type { PassResult } from "../reconcile/pass.ts";
import type { PartnerEntry } from "../registry/partner.ts";
import type { Applied } from "../state/plane-records.ts";
import { DeclaredEvidence, RECONCILED } from "./declared-evidence.ts";
import { type JudgedCondition, judgeConditions, type Objection, verdictOf } from "./judge.ts";
import { type ReconcileOptions, reconcilePlane } from "./reconcile-plane.ts";

/** Tries this organisation's planes as the partner. */
export type ObserveFromOutside = (
  partner: PartnerEntry,
  planes: readonly PlaneName[],
  inside: readonly EvidenceItem[],
) => Promise<readonly EvidenceItem[]>;

/** What a plane was brought to. */
export interface Reached {
  readonly desired: DesiredState;
  readonly entry: PartnerEntry;
  readonly applied: Applied | null;
}

/** What is asked about a plane. */
export interface Question {
  readonly plane: PlaneName;
  readonly direction: Direction;
  readonly scope: Scope;
  readonly outside?: ObserveFromOutside | undefined;
  /** Items that show the use of an agent to be refused whose card stays public for others. */
  readonly refusals?: (agent: string) => readonly EvidenceItem[];
}

/** Everything that is observed of one plane: what the organisation states itself, what its parts say, what was tried. */
export async function observePlane(
  { planes, clock }: Pick<ReconcileContext, "planes" | "clock">,
  { desired, entry, applied }: Reached,
  { plane, direction, scope, outside, refusals = () => [] }: Question,
): Promise<{ readonly items: readonly EvidenceItem[]; readonly outside: readonly EvidenceItem[] }> {
  const { partner } = entry;
  const declared = new DeclaredEvidence(partner.serverName, plane, clock);
  const inside = await probeFromInside(planes, desired, entry, [plane], clock);
  const tried = (await outside?.(entry, [plane], inside)) ?? [];
  const staying = inside.filter((item) => item.probe === "card_fetch" && isPublicForOthers(item));
  const agents = new Set(staying.flatMap(({ subject }) => subject ?? []));
  const own = [
    declared.reconciled(applied, partner, desired),
    ...declared.absences(direction, scope, desired.revision),
    ...(plane === "gateway" && direction === "closed" ? [declared.gateway(partner, desired)] : []),
    ...(direction === "closed" ? declared.cardUse(agents, refusals, desired.revision) : []),
    ...(plane === "rooms" ? declared.missingRooms(scope, inside) : []),
  ];
  return { items: [...own, ...inside, ...tried], outside: tried };
}

export interface StepRequest extends ReconcileOptions, Omit<Question, "scope" | "direction"> {
  /** The partner's file in the registry. */
  readonly file: string;
  /** How the plane is to be: by the registry that is in force. */
  readonly direction: (entry: PartnerEntry) => Direction;
  readonly scope: (reached: Pick<Reached, "desired" | "entry">) => Scope;
  /** Conditions beside those of the table. */
  readonly more?: (reached: Reached, tried: readonly EvidenceItem[]) => readonly JudgedCondition[];
  /** How long it may take until other programs have followed; not at all when absent. */
  readonly withinMs?: number;
}

export interface StepResult {
  readonly pass: PassResult;
  readonly applied: Applied | null;
  readonly items: readonly EvidenceItem[];
  readonly conditions: readonly JudgedCondition[];
  readonly verdict: Verdict;
}

/** How long an open plane is waited for: other programs, and the partner's, follow what was opened. */
export const OPEN_WITHIN_MS = 30_000;
const POLL_MS = 500;

/** @throws DrawbridgeError `head_refused` when what the branch holds is not taken up */
export async function runStep(context: ReconcileContext, request: StepRequest): Promise<StepResult> {
  const pass = await reconcilePlane(context, request.plane, request);
  return observeStep(context, request, pass);
}

/** Observes a plane that a pass has applied, and evaluates it. */
export async function observeStep(
  context: ReconcileContext,
  request: StepRequest,
  pass: PassResult,
): Promise<StepResult> {
  const { clock } = context;
  const { plane, withinMs = 0 } = request;
  const applied = pass.planes.find((report) => report.plane === plane)?.record.applied ?? null;
  const entry = pass.desired?.registry.partners.find(({ file }) => file === request.file);
  if (pass.desired === undefined || entry === undefined) {
    return { pass, applied, items: [], conditions: [], verdict: "unknown" };
  }
  const reached = { desired: pass.desired, entry, applied };
  for (const deadline = clock.now() + withinMs; ; await clock.sleep(POLL_MS)) {
    const { items, conditions } = await once(context, request, reached);
    const verdict = verdictOf(conditions);
    const isOpen = verdict === "not_met" || verdict === "unknown";
    if (!isOpen || applied?.outcome !== "in_force" || clock.now() >= deadline) {
      return { pass, applied, items, conditions, verdict };
    }
  }
}

async function once(context: ReconcileContext, request: StepRequest, reached: Reached) {
  const { desired, entry } = reached;
  const { plane, outside, more } = request;
  const { organisation } = desired.registry;
  const direction = request.direction(entry);
  const scope = request.scope(reached);
  const { items, outside: tried } = await observePlane(context, reached, { ...request, direction, scope });
  const all = conditionsOf(plane, direction);
  const evaluated = evaluate(outside === undefined ? fromInside(all) : all, items, {
    ...{ organisation: organisation.serverName, partner: entry.partner.serverName, plane, scope },
    ...{ from: null, until: null, revision: desired.revision, render: desired.planes[plane].digest },
    outOfReach: new Set<string>(),
    fingerprints: fingerprintsOf(entry),
  });
  const objections = notReached(plane, reached.applied);
  const judged = judgeConditions(evaluated, { items, fromOutside: outside !== undefined, objections });
  return { items, conditions: [...judged, ...(more?.(reached, tried) ?? [])] };
}

/** Why the reconciler has not reached what is declared. */
function notReached(plane: PlaneName, applied: Applied | null): readonly Objection[] {
  if (applied?.outcome === "in_force") return [];
  const left = applied?.outOfReach.map(({ subject, reason }) => `${subject} ${reason}`)[0];
  const found = applied?.reason ?? left ?? applied?.outcome ?? "never applied";
  const hint = `See drawbridge federation status; then run this again: it applies the ${plane} plane once more.`;
  return [{ condition: "in_force", probe: RECONCILED, found, hint }];
}

/** Of what is pinned for each agent of the partner's that our bridge carries. */
function fingerprintsOf({ partner }: PartnerEntry): ReadonlyMap<string, string> {
  return new Map(
    Object.entries(partner.card.consumes).flatMap(([agent, { cardUrl, cardIdentity }]) =>
      cardIdentity === undefined ? [] : [[agent, targetFingerprint(agent, { cardUrl, cardIdentity })]],
    ),
  );
}
