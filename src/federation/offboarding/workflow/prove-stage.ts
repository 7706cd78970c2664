// One stage of one's own, from its opening to its proof. Invariants: that a stage is begun is written before anything
// is changed; a proof is written as a whole; a step that is done again goes on from what is done.
import { OWNER_WORD } from "../../../records/format/evidence-item.ts";
import { PLANE_OF_STAGE, STAGE_NAMES, type StageName } from "../../../records/format/stages.ts";
import type { PlaneName } from "../../plane-order.ts";
import { probeFromInside } from "../../probes/inside.ts";
import { currentState } from "../../reconcile/accept-head.ts";
import { timestamp } from "../../reconcile/context.ts";
import { findPartner, partnerEntry } from "../../registry/find-partner.ts";
import type { Partner } from "../../registry/partner.ts";
import { closedUnnamed, NAME_OR_WITHDRAW } from "../private-record/consistency.ts";
import type { OffboardingContext } from "../run/context.ts";
import {
  type Proof,
  readDutiesEvidence,
  readStage,
  type StageProgress,
  writeStage,
} from "../run/progress.ts";
import { counterpartyOf, type Run } from "../run/run.ts";
import { DeclaredEvidence } from "../stages/declared-evidence.ts";
import { startedAtIn } from "../stages/exit-conditions.ts";
import { allHold, judgeStage } from "../stages/judge.ts";
import { NOTHING_OBSERVED } from "../stages/observation.ts";
import { observeStage, type StageObservation } from "../stages/observe.ts";
import { commitStage } from "./close-stage.ts";
import { OffboardingBlocked } from "./step.ts";
import { isLeftAlone } from "./view.ts";

/**
 * Opens the stage if it is not open, closes its plane if it is not closed, and observes whether that holds.
 * @param skipped why it is opened before both have signed the one before it
 */
export async function workStage(
  context: OffboardingContext,
  run: Run,
  stage: StageName,
  skipped: string | null,
): Promise<StageProgress> {
  const { federation } = context;
  const plane = PLANE_OF_STAGE[stage];
  const begun = readStage(run, stage);
  const closing = isLeftAlone(run, stage) || (begun?.commit ?? null) !== null ? null : plane;
  const admits = (partner: Partner) => {
    if (closing !== null && run.kind === "partial") requireNamed(context, run, stage, closing, partner);
  };
  // Before the stage is opened, so that one that closes nothing is not open either; and again with the commit.
  if (closing !== null && run.kind === "partial") {
    const { desired } = await currentState(federation);
    admits(findPartner(desired.registry, counterpartyOf(run)).partner);
  }
  let progress = begun ?? writeStage(run, await opened(context, run, stage, skipped));
  if (closing !== null) {
    const commit = await commitStage(federation, run, stage, closing, admits);
    progress = writeStage(run, { ...progress, commit });
  }
  const observed = isLeftAlone(run, stage)
    ? leftAlone(context, run, stage)
    : await observeStage(context, run, progress, "apply");
  const proof = proofOf(context, run, progress, observed);
  // After a restart of the homeserver, its process of now is the one to measure from.
  const isRestarted = proof.conditions.some(
    ({ condition, verdict }) => condition === "no_restart" && verdict === "not_met",
  );
  return writeStage(run, {
    ...progress,
    proof,
    ...(isRestarted && { homeserver_started_at: startedAtIn(proof.items) }),
  });
}

/** A partial removal closes two planes whole: only what is named may be on them, when they are closed too. */
function requireNamed(
  { facts }: OffboardingContext,
  run: Run,
  stage: StageName,
  plane: PlaneName,
  partner: Partner,
): void {
  const unnamed = closedUnnamed(partner, facts(run).agents);
  if (unnamed.length === 0) return;
  throw new OffboardingBlocked(
    `stage ${stage} closes nothing yet`,
    unnamed.map((agent) => ({
      ...{ stage, plane, condition: "named", probe: "private_record" },
      found: `${agent} would be closed as well, and the private record does not name it`,
      hint: NAME_OR_WITHDRAW,
    })),
  );
}

async function opened(
  context: OffboardingContext,
  run: Run,
  stage: StageName,
  skipped: string | null,
): Promise<StageProgress> {
  const now = timestamp(context.federation.clock.now());
  // A purge may have been run before its stage was opened.
  const duties = stage === "data_duties" ? readDutiesEvidence(run) : [];
  return {
    version: 1,
    stage,
    opened_at: [now, ...duties.map(({ at }) => timestamp(Date.parse(at)))].sort()[0] ?? now,
    countersignature_skipped: skipped,
    homeserver_started_at: stage === "policy_border" ? await startedNow(context, run) : null,
    commit: null,
    proof: null,
  };
}

async function startedNow({ federation }: OffboardingContext, run: Run): Promise<string | null> {
  const { desired } = await currentState(federation);
  const entry = partnerEntry(desired.registry, counterpartyOf(run));
  if (entry === undefined) return null;
  return startedAtIn(await probeFromInside(federation.planes, desired, entry, ["border"], federation.clock));
}

function leftAlone({ federation }: OffboardingContext, run: Run, stage: StageName): StageObservation {
  const plane = PLANE_OF_STAGE[stage];
  const item = new DeclaredEvidence(run, plane ?? "transport", federation.clock).leftAlone();
  return { observation: { ...NOTHING_OBSERVED, stage, plane, items: [item] }, revision: null, render: null };
}

function proofOf(
  context: OffboardingContext,
  run: Run,
  { stage, countersignature_skipped: skipped }: StageProgress,
  { observation, revision, render }: StageObservation,
): Proof {
  const conditions = judgeStage(observation);
  const named = new Set(conditions.flatMap(({ evidence }) => evidence));
  // Where a condition does not hold, every item is kept, so that an operator can examine it.
  const items = observation.items.filter(({ digest }) => !allHold(conditions) || named.has(digest));
  return {
    ...{ at: timestamp(context.federation.clock.now()), revision, render, conditions: [...conditions] },
    out_of_reach: [...observation.outOfReach],
    items: [...new Map(items.map((item) => [item.digest, item])).values()],
    attested: [
      ...(skipped === null ? [] : [`${SKIPPED_WORD}${skipped}`]),
      ...(stage === STAGE_NAMES[0] ? [`${TRIGGER_WORD}${run.trigger}`] : []),
      ...(stage === "data_duties" ? attestedDuties(context, run) : []),
    ],
  };
}

/** Prefix of the word that says why a stage was opened before both had signed the one before it. */
export const SKIPPED_WORD = "countersignature_skipped:";
/** Prefix of the word by which an organisation says, in its first stage, why it removes the other. */
export const TRIGGER_WORD = "trigger:";
/** The tests that need no server, as they are named in records. */
export const STATIC_TESTS_COMMAND = "check:federation";

function attestedDuties(context: OffboardingContext, run: Run): readonly string[] {
  try {
    const { owner, retention, backupsExpireBy } = context.facts(run);
    return [
      `backups_expire_by:${backupsExpireBy}`,
      `retention:${retention.state}${retention.until === null ? "" : `:${retention.until}`}`,
      "replicated_history_not_retracted",
      STATIC_TESTS_COMMAND,
      `${OWNER_WORD}${owner}`,
    ];
  } catch {
    // The condition `duties_recorded` says why the private record cannot be read.
    return [];
  }
}
