// The next step of a re-admission: one plane is opened, brought into force, and observed to be open; after the last, the
// end is recorded. Invariants: in the specification's order 1 to 5, each after the one before was proved; a commit that was
// made is found again after a kill and never made twice.
import { jsonText } from "../../domain/json.ts";
import { isSettled, wasNotTried } from "../../records/conditions/evaluate.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { refuse } from "../agents/identity-rules.ts";
import { changeBase } from "../change/commit-base.ts";
import { commitChange } from "../change/commit-change.ts";
import { PLANE_NUMBERS, type PlaneName } from "../plane-order.ts";
import { scopeOf } from "../probes/from-inside.ts";
import { type Judged, judge } from "../probes/report.ts";
import { goodState } from "../reconcile/accept-head.ts";
import { type Federation, timestamp } from "../reconcile/context.ts";
import { findPartner, type PartnerEntry } from "../registry/partner.ts";
import {
  type ReadmissionRecord,
  type RoomsChoice,
  readmissionRecordPath,
} from "../registry/readmission-record.ts";
import type { Revision } from "../repository/repository.ts";
import type { StateFolder } from "../state/folder.ts";
import { commitStep, plan } from "../workflow/plan.ts";
import { labelOf, type PlaneStep, READMISSION, type StepStatus } from "../workflow/procedure.ts";
import {
  asking,
  type Observed,
  type ObserveFromOutside,
  OPEN_WITHIN_MS,
  type PlaneQuestion,
  type Reached,
  runStep,
  type StepResult as StepOutcome,
} from "../workflow/run-step.ts";
import { foundIn, type JudgedCondition, notMet } from "../workflow/step-verdict.ts";
import {
  currentStep,
  isOvertaken,
  type Readmission,
  readmissionFile,
  refuseWhileRemoving,
  requireReadmission,
  saveStage,
} from "./readmission.ts";
import { blockedRooms, prepareRooms, type ReadmissionRooms } from "./rooms.ts";

export interface WorkflowContext extends Federation {
  readonly rooms: ReadmissionRooms;
  readonly outside?: ObserveFromOutside | undefined;
  readonly say: (text: string) => void;
}

export type ReadmissionStepResult = Readonly<Awaited<ReturnType<typeof nextStep>>>;

/**
 * The plane of the result is null when there was nothing left to do.
 * @param rooms what becomes of kept rooms; asked for before plane 2, `new` when not said
 * @throws DrawbridgeError `usage`, `guard_refused`, `head_refused`; RegistryError
 */
export async function nextStep(
  context: WorkflowContext,
  { partner, rooms }: { readonly partner: string; readonly rooms?: RoomsChoice | undefined },
) {
  const { state, clock, onWait } = context;
  const work = async () => {
    const base = await changeBase(context);
    const entry = findPartner(base.registry, partner);
    const readmission = await requireReadmission(context, base.head, entry.partner.serverName);
    refuseIfRemoved(state, readmission, entry);
    refuseIfClosed(readmission, entry);
    const step = currentStep(readmission);
    if (step !== undefined) return workOn(context, rooms, entry, readmission, step);
    const nothing = { plane: null, conditions: [] as readonly JudgedCondition[], proved: true };
    return { ...nothing, readmission: await complete(context, readmission), done: true };
  };
  return state.locked("readmission", clock, work, onWait);
}

/** @throws DrawbridgeError `guard_refused` while a removal runs, or after one that was begun since */
function refuseIfRemoved(state: StateFolder, readmission: Readmission, entry: PartnerEntry): void {
  refuseWhileRemoving(state, entry);
  if (!isOvertaken(state, readmission, entry)) return;
  throw refuse("removed_since", `${entry.name} was removed after this re-admission was opened`);
}

/** @throws DrawbridgeError `guard_refused` when what was proved open is not declared so any more */
function refuseIfClosed({ stages, done }: Readmission, { name, partner }: PartnerEntry): void {
  const proved = READMISSION.steps.filter(({ plane }) => done || stages[plane]?.proved_at != null);
  const closed = proved.find(({ plane }) => partner.planes[plane] === "closed");
  if (closed !== undefined) throw refuse("closed_again", `${closed.plane} of ${name} was closed again`);
  if (partner.contained) throw refuse("closed_again", `${name} is contained`);
}

async function workOn(
  context: WorkflowContext,
  rooms: RoomsChoice | undefined,
  entry: PartnerEntry,
  found: Readmission,
  step: PlaneStep,
) {
  const { plane } = step;
  const { id, partner } = found;
  let readmission = found;
  if (step.approval === "rooms" && entry.partner.planes.rooms === "closed") {
    readmission = await prepareRooms(context, readmission, rooms);
    const blocked = blockedRooms(readmission);
    if (blocked !== undefined) {
      return { readmission, plane, conditions: [blocked], proved: false, done: false };
    }
  }
  const ask = ({ desired }: Reached): PlaneQuestion => {
    const kept = (readmission.touched ?? []).filter(({ state }) => state === "kept");
    const scope = scopeOf(context.parts, findPartner(desired.registry, partner).partner, desired);
    return { ...step, scope: { ...scope, rooms: kept.map(({ room }) => room) }, outside: context.outside };
  };
  const { observe, evaluate } = asking(context, ask);
  const { conditions, verdict } = await runStep(context, {
    ...{ plane, partner, how: "apply", withinMs: OPEN_WITHIN_MS },
    commit: async () => {
      const opened = (revision: Revision) => {
        const unproved = { revision, proved_at: null, evidence: [], not_applicable: [] };
        readmission = saveStage(context.state, readmission, plane, unproved);
      };
      const { revision } = await commitStep(context, READMISSION, step, {
        ...{ partner, reason: "drawbridge: readmission", intend: opened },
        say: async (_base, entry) => {
          // Again, because replacing rooms takes minutes in which a removal may have begun.
          refuseIfRemoved(context.state, readmission, entry);
          if (entry.partner.planes[plane] === "open") return undefined;
          const title = `Open plane ${PLANE_NUMBERS[plane]} (${plane}) to ${partner}`;
          return { message: `${title}\n\nReadmission: ${id}\nReadmission-Plane: ${plane}\n` };
        },
      });
      if (readmission.stages[plane] === undefined) opened(revision);
    },
    observe,
    evaluate: (reached, seen) => {
      const { desired } = reached;
      const { items } = judge(seen.tried, desired, findPartner(desired.registry, partner), [plane]);
      return [...evaluate(reached, seen), ...fromOutside(items, plane)];
    },
    record: (result) => {
      readmission = recordStage(context, readmission, plane, result);
    },
  });
  const proved = isSettled({ verdict });
  if (proved && currentStep(readmission) === undefined) readmission = await complete(context, readmission);
  return { readmission, plane, conditions, proved, done: readmission.done };
}

function recordStage(
  { state, clock }: WorkflowContext,
  readmission: Readmission,
  plane: PlaneName,
  { seen: { items }, conditions, verdict }: StepOutcome<Observed>,
): Readmission {
  state.write(readmissionFile(readmission.id, `evidence-${plane}.json`), { version: 1, items });
  const stage = readmission.stages[plane];
  if (stage === undefined || !isSettled({ verdict })) return readmission;
  return saveStage(state, readmission, plane, {
    revision: stage.revision,
    proved_at: timestamp(clock.now()),
    evidence: items.map(({ digest }) => digest),
    not_applicable: conditions.filter((one) => one.verdict !== "met").map(({ condition }) => condition),
  });
}

async function complete(context: Federation, found: Readmission): Promise<Readmission> {
  if (found.done) return found;
  const { opened, partner, id, rooms, touched } = found;
  const completedAt = timestamp(context.clock.now());
  await commitChange(context, {
    reason: "drawbridge: readmission",
    propose: async ({ registry, head }) => {
      const { azp } = findPartner(registry, partner).partner;
      const record: ReadmissionRecord = {
        ...{ ...opened, act: "completed", azp, git_revision: head, timestamp: completedAt, rooms },
        rooms_replaced: (touched ?? []).filter(({ state }) => state === "replaced").length,
        planes: stepsDone(found).map(({ plane, revision, evidence, not_applicable }) => ({
          ...{ plane, revision, evidence, not_applicable },
        })),
      };
      return {
        edits: new Map(),
        records: new Map([[readmissionRecordPath(record), jsonText(record)]]),
        message: `Complete the re-admission of ${partner}\n\n${summaryOf(found)}\n\nReadmission: ${id}\n`,
      };
    },
  });
  return { ...found, completedAt, done: true };
}

function stepsDone({ stages }: Readmission) {
  return READMISSION.steps.flatMap(({ plane }) => {
    const stage = stages[plane];
    return stage === undefined ? [] : [{ plane, ...stage }];
  });
}

function summaryOf(readmission: Readmission): string {
  const left = stepsDone(readmission).flatMap(({ plane, not_applicable }) =>
    not_applicable.map((name) => `  ${plane} ${name}`),
  );
  return left.length === 0
    ? "All five planes were observed to be open."
    : `All five planes are in force, and were observed to be open except for what did not apply:\n${left.join("\n")}`;
}

export function fromOutside(tried: readonly Judged[], plane: PlaneName): readonly JudgedCondition[] {
  const found = tried.filter(({ item }) => item.plane === plane && !wasNotTried(item));
  if (found.length === 0) return [];
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

/**
 * What we sent has not arrived, and nothing of ours refused it: the partner opens its planes in the same order,
 * and its border comes after its rooms. Were both sides to wait for that, neither would go on.
 */
function isUpToPartner({ probe, layer }: EvidenceItem): boolean {
  return probe.startsWith("message_to_partner") && layer === "not_seen";
}

export function readmissionStatus(readmission: Readmission) {
  const { opened, stages, ...status } = readmission;
  return {
    ...{ ...status, approval: opened.approval },
    steps: READMISSION.steps.map((step): StepStatus => {
      const { proved_at: provedAt = null, revision: commit = null } = stages[step.plane] ?? {};
      const state = provedAt !== null ? "proved" : commit !== null ? "proving" : "pending";
      return {
        ...labelOf(step),
        ...{ own: { state, since: provedAt }, other: null, commit, openedAt: null, provedAt, blocks: [] },
      };
    }),
  };
}

/** @throws DrawbridgeError `usage`, `head_refused`; RegistryError when a step's result would be refused */
export async function planReadmission(
  context: WorkflowContext,
  named: string,
  choice: RoomsChoice | undefined,
) {
  const { desired } = await goodState(context);
  const { partner } = findPartner(desired.registry, named);
  const readmission = await requireReadmission(context, desired.revision, partner.serverName);
  const { id, rooms, touched } = readmission;
  const planned = await plan(context, READMISSION, named, ({ plane }) => {
    if (readmission.done) return "proved";
    const stage = plane === null ? undefined : readmission.stages[plane];
    return stage === undefined ? "pending" : stage.proved_at === null ? "committed" : "proved";
  });
  const isBefore = partner.planes.rooms === "closed";
  return {
    ...{ ...planned, id, rooms: choice ?? rooms ?? "new" },
    touched: isBefore ? await context.rooms.observe(desired, partner.serverName) : (touched ?? []),
  };
}
