// One stage of one's own, from its beginning to its proof. Invariants: that it is begun is written before
// anything is changed; what it was shown by is written as a whole; done again, it takes up what is done.
import { OWNER_WORD } from "../../../records/format/duties.ts";
import { PLANE_OF_STAGE, STAGE_NAMES, type StageName } from "../../../records/format/stages.ts";
import type { PlaneName } from "../../plane-order.ts";
import { probeFromInside } from "../../probes/inside.ts";
import { currentState } from "../../reconcile/assess.ts";
import { timestamp } from "../../reconcile/context.ts";
import { findPartner } from "../../registry/find-partner.ts";
import type { Partner } from "../../registry/partner.ts";
import { closedUnnamed, NAME_OR_WITHDRAW } from "../private-record/consistency.ts";
import type { OffboardingContext } from "../run/context.ts";
import { dutiesEvidence, type Proof, readStage, type StageRecord, writeStage } from "../run/progress.ts";
import { counterpartyOf, type Run } from "../run/run.ts";
import { Stated } from "../stages/declared-evidence.ts";
import { judgeStage } from "../stages/judge.ts";
import type { Judged, Observation } from "../stages/observation.ts";
import { observeStage } from "../stages/observe.ts";
import { startedAtIn } from "../stages/rules.ts";
import { commitStage } from "./close-stage.ts";
import { OffboardingBlocked } from "./step.ts";
import { isLeftAlone } from "./view.ts";

/**
 * Opens the stage if it is not open, closes its plane if it is not closed, and looks whether that holds.
 * @param ahead why it is opened before both have signed the one before it
 */
export async function workStage(
  context: OffboardingContext,
  run: Run,
  stage: StageName,
  ahead: string | null,
): Promise<StageRecord> {
  const { federation } = context;
  const plane = PLANE_OF_STAGE[stage];
  const begun = readStage(run, stage);
  const closing = isLeftAlone(run, stage) || (begun?.commit ?? null) !== null ? null : plane;
  const admits = (partner: Partner) => {
    if (closing !== null && run.kind === "partial") requireNamed(context, run, stage, closing, partner);
  };
  // Before the stage is opened, so that one that closes nothing is not open either; and again with the commit.
  if (closing !== null && run.kind === "partial") admits(await partnerNow(context, run));
  let record = begun ?? writeStage(run, await opened(context, run, stage, ahead));
  if (closing !== null) {
    const commit = await commitStage(federation, run, stage, closing, admits);
    record = writeStage(run, { ...record, commit });
  }
  const proof = isLeftAlone(run, stage)
    ? proofOfNothing(context, run, record)
    : await prove(context, run, record);
  // A homeserver that was restarted meanwhile is measured anew from now on.
  const restarted = proof.conditions.some(
    ({ condition, verdict }) => condition === "no_restart" && verdict === "not_met",
  );
  return writeStage(run, {
    ...record,
    proof,
    ...(restarted && { startedBefore: startedAtIn(proof.items) }),
  });
}

async function partnerNow({ federation }: OffboardingContext, run: Run): Promise<Partner> {
  const { desired } = await currentState(federation);
  return findPartner(desired.registry, counterpartyOf(run)).partner;
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
  ahead: string | null,
): Promise<StageRecord> {
  const { federation } = context;
  const now = timestamp(federation.clock.now());
  // What was deleted may have been deleted before its stage had its turn.
  const duties = stage === "data_duties" ? dutiesEvidence(run).map(({ at }) => isoOf(at)) : [];
  return {
    version: 1,
    stage,
    openedAt: [now, ...duties].sort()[0] ?? now,
    ahead,
    startedBefore: stage === "policy_border" ? await startedNow(context, run) : null,
    commit: null,
    proof: null,
  };
}

function isoOf(at: string): string {
  return timestamp(Date.parse(at));
}

async function startedNow({ federation }: OffboardingContext, run: Run): Promise<string | null> {
  const { desired } = await currentState(federation);
  const other = counterpartyOf(run);
  const entry = desired.registry.partners.find(({ partner }) => partner.serverName === other);
  if (entry === undefined) return null;
  return startedAtIn(await probeFromInside(federation.planes, desired, entry, ["border"], federation.clock));
}

async function prove(context: OffboardingContext, run: Run, record: StageRecord): Promise<Proof> {
  const { observation, revision, render } = await observeStage(context, run, record, "apply");
  return proofOf(context, run, record, observation, { revision, render });
}

function proofOfNothing(context: OffboardingContext, run: Run, record: StageRecord): Proof {
  const plane = PLANE_OF_STAGE[record.stage] ?? "transport";
  const item = new Stated(run, plane, context.federation.clock).leftAlone();
  const observation = { ...NOTHING_SEEN, stage: record.stage, plane, items: [item] };
  return proofOf(context, run, record, observation, { revision: null, render: null });
}

const NOTHING_SEEN: Omit<Observation, "stage" | "plane" | "items"> = {
  partner: undefined,
  runs: { gateway: false, bridge: false },
  applied: null,
  drift: [],
  outOfReach: [],
  fromOutside: false,
  policyBefore: { digest: null, excluded: false },
  startedBefore: null,
  duties: undefined,
  staticProblems: undefined,
};

function proofOf(
  context: OffboardingContext,
  run: Run,
  { stage, ahead }: StageRecord,
  observation: Observation,
  at: Pick<Proof, "revision" | "render">,
): Proof {
  const conditions = judgeStage(observation);
  const named = new Set(conditions.flatMap(({ evidence }) => evidence));
  // Of what does not hold, everything that was seen is kept, so that it can be looked into.
  const holds = conditions.every(({ verdict }) => verdict === "met" || verdict === "not_applicable");
  const items = observation.items.filter(({ digest }) => !holds || named.has(digest));
  return {
    at: timestamp(context.federation.clock.now()),
    ...at,
    conditions: conditions.map(copyOf),
    outOfReach: [...observation.outOfReach],
    items: [...new Map(items.map((item) => [item.digest, item])).values()],
    attested: [
      ...(ahead === null ? [] : [`${AHEAD_WORD}${ahead}`]),
      ...(stage === STAGE_NAMES[0] ? [`${TRIGGER_WORD}${run.trigger}`] : []),
      ...(stage === "data_duties" ? attestedDuties(context, run) : []),
    ],
  };
}

function copyOf(judged: Judged): Proof["conditions"][number] {
  return { ...judged, evidence: [...judged.evidence] };
}

/** Prefix of the word that says why a stage was opened before both had signed the one before it. */
export const AHEAD_WORD = "ahead:";
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
    // The condition that the duties are recorded tells why.
    return [];
  }
}
