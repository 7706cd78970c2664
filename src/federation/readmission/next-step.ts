// The next step of a re-admission: one plane is opened, brought into force, and observed to be open; after the last, the
// end is recorded. Invariants: planes are opened in the order of `READMISSION`, each after the one before was proved; a commit
// that was made is found again after a kill and never made twice.
import { jsonText } from "../../domain/json.ts";
import { isSettled, wasNotTried } from "../../records/conditions/evaluate.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { refuse } from "../agents/identity-rules.ts";
import { changeBase } from "../change/change-base.ts";
import { commitChange } from "../change/commit-change.ts";
import { PLANE_NUMBERS, type PlaneName } from "../plane-order.ts";
import { scopeOf } from "../probes/from-inside.ts";
import { type Judged, judge } from "../probes/report.ts";
import { acceptedState } from "../reconcile/accept-head.ts";
import { type Federation, timestamp } from "../reconcile/context.ts";
import { type RoomsChoice, readmissionRecordPath } from "../registry/committed-records.ts";
import { findPartner, type PartnerEntry } from "../registry/partner.ts";
import type { Revision } from "../repository/repository.ts";
import type { StateFolder } from "../state/folder.ts";
import { asking } from "../workflow/observe-plane.ts";
import { commitStep, plan } from "../workflow/plan.ts";
import { labelOf, READMISSION, type StepStatus } from "../workflow/procedures.ts";
import { foundIn, type JudgedCondition, notMet, OPEN_WITHIN_MS, runStep } from "../workflow/run-step.ts";
import {
  currentStep,
  isOvertaken,
  type Readmission,
  readmissionFile,
  refuseWhileRemoving,
  requireReadmission,
  saveStage,
} from "./readmission.ts";
import { blockedRooms, prepareRooms, type WorkflowContext } from "./rooms.ts";

/** `plane` is null when nothing is left. @throws DrawbridgeError `usage`, `guard_refused`, `head_refused`; RegistryError */
export async function nextStep(
  context: WorkflowContext,
  { partner, rooms }: { readonly partner: string; readonly rooms?: RoomsChoice | undefined },
) {
  const { state, clock, onWait } = context;
  const work = async () => {
    const base = await changeBase(context);
    const entry = findPartner(base.registry, partner);
    const found = await requireReadmission(context, base.head, entry.partner);
    refuseIfRemoved(state, found, entry);
    refuseIfClosed(found, entry);
    const result = await goOn(context, entry, found, rooms);
    const isLast = result.proved && currentStep(result.readmission) === undefined;
    const readmission = isLast ? await complete(context, result.readmission) : result.readmission;
    return { ...result, readmission, done: readmission.done };
  };
  return state.locked("readmission", clock, work, onWait);
}

/** @param kept as `refuse` takes it. @throws DrawbridgeError `guard_refused` while a removal runs, or after one that was begun since */
function refuseIfRemoved(state: StateFolder, found: Readmission, entry: PartnerEntry, kept?: string): void {
  refuseWhileRemoving(state, entry, kept);
  if (!isOvertaken(found, entry)) return;
  throw refuse("removed_since", `${entry.name} was removed after this re-admission was opened`, kept);
}

/** @throws DrawbridgeError `guard_refused` when what was proved open is not declared so any more */
function refuseIfClosed({ stages, done }: Readmission, { name, partner }: PartnerEntry): void {
  const proved = READMISSION.steps.filter(({ plane }) => done || stages[plane]?.proved_at != null);
  const closed = proved.find(({ plane }) => partner.planes[plane] === "closed");
  if (closed !== undefined) throw refuse("closed_again", `${closed.plane} of ${name} was closed again`);
  if (partner.contained) throw refuse("closed_again", `${name} is contained`);
}

async function goOn(context: WorkflowContext, entry: PartnerEntry, found: Readmission, rooms?: RoomsChoice) {
  const step = currentStep(found);
  const none = { readmission: found, plane: null, conditions: [] as JudgedCondition[], proved: true };
  if (step === undefined) return none;
  const { state, clock } = context;
  const { plane } = step;
  const { id, partner } = found;
  let readmission = found;
  if (step.approval === "rooms" && entry.partner.planes.rooms === "closed") {
    readmission = await prepareRooms(context, readmission, rooms);
    const blocked = blockedRooms(readmission);
    if (blocked !== undefined) return { readmission, plane, conditions: [blocked], proved: false };
  }
  const { observe, evaluate } = asking(context, ({ desired }) => {
    const kept = (readmission.touched ?? []).filter(({ state }) => state === "kept");
    const { partner: now } = findPartner(desired.registry, partner);
    const scope = scopeOf(context.parts, now, desired, step.direction);
    return { ...step, scope: { ...scope, rooms: kept.map(({ room }) => room) }, outside: context.outside };
  });
  const opened = (revision: Revision) => {
    const unproved = { revision, proved_at: null, evidence: [], not_applicable: [] };
    readmission = saveStage(state, readmission, plane, unproved);
  };
  const { revision } = await commitStep(context, READMISSION, step, {
    ...{ partner, reason: "drawbridge: readmission", intend: opened },
    say: async (_base, entry) => {
      // Again, because replacing rooms takes minutes in which a removal may have begun.
      refuseIfRemoved(state, readmission, entry, "no plane was opened");
      if (entry.partner.planes[plane] === "open") return undefined;
      const title = `Open plane ${PLANE_NUMBERS[plane]} (${plane}) to ${partner}`;
      return { message: `${title}\n\nReadmission: ${id}\nReadmission-Plane: ${plane}\n` };
    },
  });
  if (readmission.stages[plane] === undefined) opened(revision);
  const result = await runStep(context, {
    ...{ plane, partner, how: "apply", withinMs: OPEN_WITHIN_MS, observe },
    evaluate: (reached, observed) => {
      const { desired } = reached;
      const { items } = judge(observed.tried, desired, findPartner(desired.registry, partner), [plane]);
      return [...evaluate(reached, observed), ...fromOutside(items, plane)];
    },
  });
  const { items } = result.observed;
  state.write(readmissionFile(id, `evidence-${plane}.json`), { version: 1, items });
  const { conditions } = result;
  const proved = isSettled(result);
  const stage = readmission.stages[plane];
  if (stage !== undefined && proved) {
    readmission = saveStage(state, readmission, plane, {
      revision: stage.revision,
      proved_at: timestamp(clock.now()),
      evidence: items.map(({ digest }) => digest),
      not_applicable: conditions.filter((one) => one.verdict !== "met").map(({ condition }) => condition),
    });
  }
  return { readmission, plane, conditions, proved };
}

async function complete(context: Federation, found: Readmission): Promise<Readmission> {
  if (found.done) return found;
  const { opened, partner, id, rooms, touched, stages } = found;
  const completedAt = timestamp(context.clock.now());
  const planes = READMISSION.steps.flatMap(({ plane }) => {
    const stage = stages[plane];
    if (stage === undefined) return [];
    const { proved_at: _, ...proved } = stage;
    return [{ plane, ...proved }];
  });
  const left = planes.flatMap(({ plane, not_applicable: names }) => names.map((one) => `  ${plane} ${one}`));
  const summary =
    left.length === 0
      ? "All five planes were observed to be open."
      : `All five planes are declared open, and were observed to be except for what did not apply or is not managed here:\n${left.join("\n")}`;
  await commitChange(context, {
    reason: "drawbridge: readmission",
    propose: ({ registry, head }) => {
      const { azp } = findPartner(registry, partner).partner;
      const record = {
        ...{ ...opened, act: "completed" as const, azp, git_revision: head, timestamp: completedAt },
        ...{ rooms, planes },
        rooms_replaced: (touched ?? []).filter(({ state }) => state === "replaced").length,
      };
      return {
        records: new Map([[readmissionRecordPath(record), jsonText(record)]]),
        message: `Complete the re-admission of ${partner}\n\n${summary}\n\nReadmission: ${id}\n`,
      };
    },
  });
  return { ...found, completedAt, done: true };
}

export function fromOutside(tried: readonly Judged[], plane: PlaneName): readonly JudgedCondition[] {
  const found = tried.filter(({ item }) => item.plane === plane && !wasNotTried(item));
  if (found.length === 0) return [];
  // Not seen there, and refused by nothing of ours: the partner opens its border after its rooms, as we do.
  const isUpToPartner = ({ probe, layer }: EvidenceItem) =>
    probe.startsWith("message_to_partner") && layer === "not_observed";
  const counted = found.filter(({ outcome, item }) => outcome === "as_wanted" || !isUpToPartner(item));
  const wrong = counted.find(({ outcome }) => outcome === "otherwise");
  const unclear = wrong ?? counted.find(({ outcome }) => outcome === "unclear");
  const hint = "It was tried as the partner: compare with what the partner's operator sees.";
  if (unclear !== undefined) {
    const { item } = unclear;
    const about = { condition: "from_outside", probe: item.probe, found: foundIn(item), hint };
    return [notMet(about, wrong === undefined ? { verdict: "unknown" } : {})];
  }
  const left = found.length - counted.length;
  const rest = left === 0 ? [] : [`${left} up to the partner's own planes`];
  return [
    {
      ...{ condition: "from_outside", verdict: counted.length === 0 ? "not_applicable" : "met", hint: "" },
      evidence: counted.map(({ item }) => item.digest),
      probe: found[0]?.item.probe ?? "",
      found: [...(counted.length === 0 ? [] : [`${counted.length} as wanted`]), ...rest].join(", "),
    },
  ];
}

export function readmissionStatus(readmission: Readmission) {
  const { opened, stages, ...status } = readmission;
  const steps = READMISSION.steps.map((step): StepStatus => {
    const { proved_at: provedAt = null, revision: commit = null } = stages[step.plane] ?? {};
    const state = provedAt !== null ? "proved" : commit !== null ? "proving" : "pending";
    const own = { state, since: provedAt };
    return { ...labelOf(step), own, other: null, commit, openedAt: null, provedAt, blocks: [] };
  });
  return { ...status, approval: opened.approval, steps };
}

/** @throws DrawbridgeError `usage`, `head_refused`; RegistryError when a step's result would be refused */
export async function planReadmission(context: WorkflowContext, named: string, choice?: RoomsChoice) {
  const { desired } = await acceptedState(context, "refuse");
  const { partner } = findPartner(desired.registry, named);
  const readmission = await requireReadmission(context, desired.revision, partner);
  const { id, rooms, touched } = readmission;
  const planned = await plan(context, READMISSION, named, ({ plane }) => {
    if (readmission.done) return "proved";
    const stage = plane === null ? undefined : readmission.stages[plane];
    return stage === undefined ? "pending" : stage.proved_at === null ? "committed" : "proved";
  });
  const isBefore = partner.planes.rooms === "closed";
  const found = isBefore ? await context.rooms.observe(desired, partner.serverName) : (touched ?? []);
  return { ...planned, id, rooms: choice ?? rooms ?? "new", touched: found };
}
