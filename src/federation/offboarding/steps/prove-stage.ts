// One stage of one's own, from its opening to its proof. Invariants: that a stage is begun is written before anything
// is changed; a proof is written as a whole; a step that is done again goes on from what is done.
import { isLeftOpen, isSettled } from "../../../records/conditions/evaluate.ts";
import {
  keeping,
  OWNER_WORD,
  SKIPPED_WORD,
  startedAtOf,
  TRIGGER_WORD,
} from "../../../records/format/evidence-item.ts";
import type { Scope } from "../../../records/format/fields.ts";
import { PLANE_OF_STAGE, STAGE_NAMES, type StageName } from "../../../records/format/removal-stages.ts";
import { setAsideLines } from "../../change/change-base.ts";
import type { PlaneName } from "../../plane-order.ts";
import { probeFromInside, scopeOf } from "../../probes/from-inside.ts";
import { acceptedState } from "../../reconcile/accept-head.ts";
import { timestamp } from "../../reconcile/context.ts";
import { findPartner, type Partner, partnerEntry } from "../../registry/partner.ts";
import type { Revision } from "../../repository/repository.ts";
import { commitStep } from "../../workflow/plan.ts";
import { labelOf, removal, removalStep } from "../../workflow/procedures.ts";
import { closedUnnamed, NAME_OR_WITHDRAW } from "../private-record/file.ts";
import { OffboardingBlocked, type RunContext, registryBefore } from "../run/context.ts";
import {
  counterpartyIn,
  type Run,
  readDutiesEvidence,
  readStage,
  type StageProgress,
  type StageProof,
  writeStage,
} from "../run/run-file.ts";
import { observeStage, roomsIn } from "../stages/observe-stage.ts";

/** @param skipped why the stage is opened before both have signed the one before it */
export async function workStage(context: RunContext, stage: StageName, skipped: string | null) {
  const { run } = context;
  const { plane, edit } = removalStep(run.kind, stage);
  const begun = readStage(run, stage);
  const isClosing = edit !== null && !(await isCommitted(context, begun, plane));
  // Before the stage is opened, so that one that closes nothing is not open either; and again with the commit.
  if (isClosing && run.kind === "partial") {
    const { desired } = await acceptedState(context, "refuse");
    requireNamed(context, stage, findPartner(desired.registry, counterpartyIn(run)).partner);
  }
  let progress = begun ?? writeStage(run, await opened(context, stage, skipped));
  // What is observed after the clock was set back is no older than the stage.
  const [opened_at = ""] = [progress.opened_at, timestamp(context.clock.now())].sort();
  progress = { ...progress, opened_at };
  if (isClosing) progress = writeStage(run, { ...progress, commit: await commitStage(context, stage) });
  const proved = await prove(context, progress, "apply");
  const { conditions, items } = proved.proof;
  // After a restart of the homeserver, its process of now is the one to measure from.
  const isRestarted = conditions.some((one) => one.condition === "no_restart" && !isSettled(one));
  if (!isRestarted) return writeStage(run, proved);
  const started_at = items.map(startedAtOf).find((at) => at !== null) ?? null;
  return writeStage(run, { ...proved, scope: { ...proved.scope, started_at } });
}

/** Observes a stage that is closed, and judges it; its new proof is written nowhere yet. */
export async function prove(context: RunContext, progress: StageProgress, how: "apply" | "observe") {
  const { stage, countersignature_skipped: skipped } = progress;
  const observation = await observeStage(context, progress, how);
  const { at, revision, render, conditions, outOfReach } = observation;
  const named = new Set(conditions.flatMap(({ evidence }) => evidence));
  const listed = new Set(outOfReach.map(({ subject }) => subject));
  // Where a condition does not hold, every item is kept, so that an operator can examine it. What is waived although it
  // was observed open is always kept.
  const holds = conditions.every(isSettled);
  const items = observation.items.filter((one) => !holds || named.has(one.digest) || isLeftOpen(one, listed));
  const proof: StageProof = {
    ...{ at, revision, render, conditions: [...conditions], out_of_reach: [...outOfReach] },
    items: [...new Map(items.map((item) => [item.digest, item])).values()],
    attested: [
      ...(skipped === null ? [] : [`${SKIPPED_WORD}${skipped}`]),
      ...(stage === STAGE_NAMES[0] ? [`${TRIGGER_WORD}${context.run.trigger}`] : []),
      ...(stage === "data_duties" ? attestedDuties(context) : []),
    ],
  };
  return { ...progress, proof };
}

/** Whether the stage's commit was made and the plane is still closed: a commit that opens it, or is refused, is followed by another. */
async function isCommitted(context: RunContext, begun: StageProgress | undefined, plane: PlaneName | null) {
  if (plane === null || (begun?.commit ?? null) === null) return false;
  const { desired, refusal } = await acceptedState(context, removal(context.run.kind).onBadHead);
  if (refusal !== undefined) return false;
  return partnerEntry(desired.registry, counterpartyIn(context.run))?.partner.planes[plane] !== "open";
}

/** A partial removal closes two planes whole: only what is named may be on them, when they are closed too. */
function requireNamed({ facts, run }: RunContext, stage: StageName, partner: Partner): void {
  if (run.kind !== "partial") return;
  const blocks = closedUnnamed(partner, facts(run).agents).map((agent) => ({
    ...{ stage, plane: PLANE_OF_STAGE[stage], condition: "named", probe: "private_record" },
    found: `${agent} would be closed as well, and the private record does not name it`,
    hint: NAME_OR_WITHDRAW,
  }));
  if (blocks.length > 0) throw new OffboardingBlocked(`stage ${stage} closes nothing yet`, blocks);
}

async function opened(context: RunContext, stage: StageName, countersignature_skipped: string | null) {
  const now = timestamp(context.clock.now());
  // A purge may have been run before its stage was opened.
  const duties = stage === "data_duties" ? readDutiesEvidence(context.run) : [];
  const opened_at = [now, ...duties.map(({ at }) => timestamp(Date.parse(at)))].sort()[0] ?? now;
  const scope = await scopeNow(context, stage);
  return {
    version: 1 as const,
    stage,
    opened_at,
    countersignature_skipped,
    scope,
    commit: null,
    proof: null,
  };
}

/** A partial removal covers what is left of the agents when the stage is opened: others may be withdrawn before. */
async function scopeNow(context: RunContext, stage: StageName): Promise<Scope> {
  const { run } = context;
  const { baseline } = run;
  const { desired } = await acceptedState(context, removal(context.run.kind).onBadHead);
  const entry = partnerEntry(desired.registry, counterpartyIn(run));
  const { plane, edit } = removalStep(run.kind, stage);
  if (entry === undefined || plane === null || edit === null) return baseline.scope;
  const now = scopeOf(context.parts, entry.partner, desired);
  const scope = run.kind === "partial" ? { ...now, policy: baseline.scope.policy } : baseline.scope;
  if (plane !== "rooms" && plane !== "border") return scope;
  const items = await probeFromInside(context, desired, entry, [plane]);
  if (plane === "rooms") return { ...scope, rooms: roomsIn(items) };
  return { ...scope, started_at: items.map(startedAtOf).find((at) => at !== null) ?? null };
}

export const STATIC_TESTS_COMMAND = "check:federation";

function attestedDuties({ facts, run }: RunContext): readonly string[] {
  try {
    const { owner, retention, backupsExpireBy } = facts(run);
    const [kept, backups] = keeping(retention, backupsExpireBy);
    const always = ["replicated_history_not_retracted", STATIC_TESTS_COMMAND];
    return [backups, kept, ...always, `${OWNER_WORD}${owner}`];
  } catch {
    // An objection to the condition `duties_recorded` says why the private record cannot be read.
    return [];
  }
}

/** Closes one plane in one commit, found again by its message where the file says already what it would say. */
export async function commitStage(context: RunContext, stage: StageName): Promise<Revision> {
  const { run, repository } = context;
  let found: Revision | undefined;
  const step = removalStep(run.kind, stage);
  const { revision } = await commitStep(context, removal(run.kind), step, {
    ...{ partner: counterpartyIn(run), reason: `drawbridge: offboarding ${stage}` },
    // A pin that somebody has taken out of the entry since is no less one that the partner had.
    before: step.edit === "retire" ? await registryBefore(context, run) : undefined,
    say: async (base, { partner }, isSame) => {
      // Anybody may write the same words into a message: what counts is what stands in the file, on a head that is not refused.
      const isWhole = isSame && base.isRendered && base.setAside === undefined;
      found = isWhole ? await repository.committedAs(...trailers(run, stage)) : undefined;
      if (found !== undefined) return undefined;
      requireNamed(context, stage, partner);
      const { plane, planeNumber } = labelOf(step);
      const title = `Close the ${plane} plane for ${partner.serverName}`;
      const what = `Plane ${planeNumber}, stage ${stage} of a removal (${run.kind}, ${run.trigger}).`;
      const lines = [title, "", what, ...setAsideLines(base), "", ...trailers(run, stage), ""];
      return { message: lines.join("\n") };
    },
  });
  return found ?? revision;
}

function trailers(run: Run, stage: StageName): readonly string[] {
  return [`Offboarding-Run: ${run.run}`, `Offboarding-Stage: ${stage}`];
}
