// Signs this organisation's proved stages, countersigns the other one's, and at the remover states the completion. Invariants:
// a stage whose conditions do not hold, or were shown more than a minute ago, is not signed; nothing is completed while a
// plane is open, a signature is missing or something out of reach is not waived; each statement is made and signed once
// (src/records/sign/sign-statements.ts); what is countersigned, and the record, is verified as an auditor verifies it.
import { isSettled } from "../../../records/conditions/evaluate.ts";
import { isOfPurge, ownerIn, showsPurge } from "../../../records/format/evidence-item.ts";
import { STAGE_NAMES, type StageName } from "../../../records/format/removal-stages.ts";
import type { StagePredicate, StageStatement } from "../../../records/format/statements.ts";
import {
  assembleRecord,
  byDigest,
  envelopesByPlace,
  type OwnRemoval,
  stagesIn,
} from "../../../records/sign/export-and-import.ts";
import {
  completionStatement,
  countersignOnce,
  type Kept,
  signOnce,
  stageStatement,
} from "../../../records/sign/sign-statements.ts";
import type { Signer } from "../../../records/sign/signer.ts";
import { outOfReachIn } from "../../../records/verify/verify-completion.ts";
import { inOrder, placeOf } from "../../../records/verify/verify-stages.ts";
import type { PlaneName } from "../../plane-order.ts";
import { OUT_OF_REACH } from "../../planes/plane.ts";
import { acceptedState } from "../../reconcile/accept-head.ts";
import { timestamp } from "../../reconcile/context.ts";
import { partnerEntry } from "../../registry/partner.ts";
import { recentDrift } from "../../state/plane-records.ts";
import { removal, removalStep } from "../../workflow/procedures.ts";
import {
  blockedBy,
  blocksIn,
  OffboardingBlocked,
  type OffboardingContext,
  type Residual,
  type RunContext,
  removalOf,
  requireOpen,
  type StageBlock,
  signerOf,
  withRun,
} from "../run/context.ts";
import {
  changeRun,
  counterpartyIn,
  keepEnvelope,
  RECORD_FILE,
  type Run,
  readStage,
  readStatements,
  recordFileOf,
  runFile,
  type StageProgress,
  signingKeyOf,
  statementFile,
  waiverOf,
  writeStage,
} from "../run/run-file.ts";
import { declaredOpen, observeStage } from "../stages/observe-stage.ts";
import { prove, STATIC_TESTS_COMMAND } from "./prove-stage.ts";
import { blocksOf, nextStepsOf, type RunView, statusOf, unwaivedIn, viewOf, waiverLines } from "./status.ts";

/** Signs and countersigns whatever is due. @throws OffboardingBlocked, RecordRefused; as the signer does */
export const sign = (context: OffboardingContext, named?: string) =>
  withRun(context, named, async (context) => {
    const { run, trust } = context;
    requireOpen(run);
    const removal = removalOf(context);
    const { parties } = trust;
    const before = viewOf(run, parties);
    const steps = nextStepsOf(before);
    if (steps.sign.length === 0 && steps.countersign.length === 0) throw nothingToSign(before);
    const signer = signerOf(context.config);
    for (const line of waiverLines(statusOf(run, trust).waivedByOther)) context.say(line);
    for (const stage of steps.sign) await signStage(context, stage, removal, signer);
    for (const place of steps.countersign) {
      if (place === "completion") await recheck(context, "the completion is not countersigned");
      await countersign(context, place, removal, signer);
    }
    return { run, signed: steps.sign, countersigned: steps.countersign, recordFile: finishRecord(context) };
  });

async function signStage(context: RunContext, stage: StageName, removal: OwnRemoval, signer: Signer) {
  const { run } = context;
  const file = statementFile(run, `own-${stage}`);
  await requireStillClosed(context, stage, file);
  await requireFresh(context, stage, file);
  const envelope = await signOnce(file, () => statementOf(run, stage), removal, signer);
  keepEnvelope(run, timestamp(context.clock.now()), envelope, readStage(run, stage)?.proof?.items ?? []);
}

function statementOf(run: Run, stage: StageName): StageStatement {
  const progress = readStage(run, stage);
  if (progress?.proof == null) throw new RangeError(`${stage} has no proof`);
  const { proof, opened_at, scope } = progress;
  const { items, revision, render, attested } = proof;
  const before = STAGE_NAMES[STAGE_NAMES.indexOf(stage) - 1];
  const { run: id, kind, remover, partner, self: organisation } = run;
  const earlier =
    before && stagesIn(readStatements(run).envelopes).get(placeOf({ organisation, stage: before }));
  const closed_at = [proof.at, earlier?.predicate.closed_at ?? proof.at].sort().at(-1) ?? proof.at;
  return stageStatement(
    {
      ...{ run: id, kind, remover, partner, organisation, stage, revision, render, scope, attested },
      ...{ opened_at, closed_at, previous: earlier ?? null, evidence: items.map(({ digest }) => digest) },
      out_of_reach: proof.out_of_reach.map(({ subject, reason }) => {
        const waiver = waiverOf(run, { subject, reason });
        return { subject, reason, waived_by: waiver?.by ?? null, waiver: waiver?.reason ?? null };
      }),
    },
    byDigest(items),
  );
}

/** Gives up the proof of a plane that was opened since, unless a statement was made from it. @throws OffboardingBlocked */
async function requireStillClosed(context: RunContext, stage: StageName, statement: Kept): Promise<void> {
  const { run } = context;
  const { plane, edit } = removalStep(run.kind, stage);
  if (plane === null || edit === null) return;
  const { desired } = await acceptedState(context, removal(run.kind).onBadHead);
  if (partnerEntry(desired.registry, counterpartyIn(run))?.partner.planes[plane] === "closed") return;
  const block = { stage, plane, condition: "in_force", probe: "registry", ...declaredOpen(plane) };
  const progress = readStage(run, stage);
  if (progress !== undefined && statement.read() === undefined) writeStage(run, { ...progress, proof: null });
  throw blockedBy(`stage ${stage} is not signed`, block);
}

const FRESH_MS = 60_000;

/** Observes a stage again that was shown long ago; its proof is replaced unless it was stated. @throws OffboardingBlocked */
async function requireFresh(context: RunContext, stage: StageName, statement: Kept): Promise<void> {
  const { run } = context;
  const progress = readStage(run, stage);
  if (progress?.proof == null || removalStep(run.kind, stage).conditions === null) return;
  const ageMs = context.clock.now() - Date.parse(progress.proof.at);
  // A negative age says that the clock was set back since, and nothing of the time that has passed.
  if (ageMs >= 0 && ageMs <= FRESH_MS) return;
  context.say(`observing again before it is signed: ${stage}`);
  let again = await prove(context, progress, "observe");
  const failing = again.proof.conditions.filter((one) => !isSettled(one));
  if (failing.every(({ condition }) => condition === "no_restart") && failing.length > 0) {
    // A later stage has restarted the homeserver: from then on nothing is known of the process before.
    const unmeasured = { ...progress, scope: { ...progress.scope, started_at: null } };
    again = await prove(context, unmeasured, "observe");
  }
  if (statement.read() === undefined) writeStage(run, again);
  const blocks = blocksOf({ stage, progress: again, unwaived: unwaivedIn(run, again.proof.out_of_reach) });
  if (blocks.length > 0) throw new OffboardingBlocked(`stage ${stage} is not signed`, blocks);
}

async function countersign(
  { run, clock }: RunContext,
  place: StageName | "completion",
  removal: OwnRemoval,
  signer: Signer,
): Promise<void> {
  const statements = readStatements(run);
  const name = place === "completion" ? place : placeOf({ organisation: counterpartyIn(run), stage: place });
  const envelope = envelopesByPlace(statements).get(name);
  if (envelope === undefined) throw new RangeError(`there is no statement of ${name}`);
  const file = statementFile(run, place === "completion" ? place : `other-${place}`);
  const signed = await countersignOnce(file, envelope, removal, statements, signer);
  keepEnvelope(run, timestamp(clock.now()), signed, []);
}

function nothingToSign(view: RunView): OffboardingBlocked {
  const stage = view.stages.find(({ own }) => own.state === "closing" || own.state === "proving");
  if (stage !== undefined)
    return new OffboardingBlocked(`stage ${stage.stage} is not signed`, blocksOf(stage));
  const { waiting } = nextStepsOf(view);
  return blockedBy("there is nothing to sign", {
    ...{ stage: waiting?.stage ?? null, condition: "turn", probe: "status" },
    found: waiting === null ? "the next step is not a signature" : `waiting for ${waiting.for}`,
    hint: "See drawbridge offboarding status: it says whose turn it is, and the command.",
  });
}

/** `recordFile` is null while the partner's signature is missing. @throws OffboardingBlocked; RecordRefused */
export const complete = (context: OffboardingContext, named?: string) =>
  withRun(context, named, async (context) => {
    const { run, trust } = context;
    const removal = removalOf(context);
    const view = viewOf(run, trust.parties);
    if (view.completion.state === "none") {
      requireOpen(run);
      const missing = missingSignatures(view);
      if (missing.length > 0) throw new OffboardingBlocked("the removal is not completed", missing);
      await recheck(context, "the removal is not completed");
      const residual = await context.residual(run);
      const signer = signerOf(context.config);
      const make = () => completionOf(context, removal, signer, residual);
      const envelope = await signOnce(statementFile(run, "completion"), make, removal, signer);
      keepEnvelope(run, timestamp(context.clock.now()), envelope, []);
    }
    return { run, recordFile: finishRecord(context) };
  });

function missingSignatures({ run, stages }: RunView): readonly StageBlock[] {
  const common = { plane: null, probe: "signatures" } as const;
  if (run.self !== run.remover) {
    const found = `${run.remover} completes the removal; this organisation countersigns it`;
    const hint = "Wait for its file; then import it, and sign.";
    return [{ ...common, stage: null, condition: "remover", found, hint }];
  }
  const hint = "See drawbridge offboarding status: it says whose turn it is, and the command.";
  return stages.flatMap(({ stage, own, other }) => {
    const parts = [[run.self, own.state] as const, [counterpartyIn(run), other.state] as const];
    const missing = parts.filter(([, state]) => state !== "countersigned");
    const about = { ...common, stage, condition: "signed_by_both", hint };
    return missing.map(([name, state]) => ({ ...about, found: `${name}'s part is ${state}` }));
  });
}

function completionOf(context: RunContext, removal: OwnRemoval, signer: Signer, residual: Residual) {
  const { run } = context;
  const statements = readStatements(run);
  const byPlace = stagesIn(statements.envelopes);
  const stages = inOrder(run, byPlace);
  const facts = context.facts(run);
  const other = counterpartyIn(run);
  const theirPlace = placeOf({ organisation: other, stage: "data_duties" });
  const ourPlace = placeOf({ organisation: run.self, stage: "data_duties" });
  const theirs = byPlace.get(theirPlace)?.predicate;
  if (theirs === undefined) throw new RangeError("the other organisation has not stated its duties");
  const owner = attestedBy(theirs);
  const key_id = signingKeyOf(envelopesByPlace(statements).get(theirPlace), other, removal.parties) ?? "";
  const ours = new Set(byPlace.get(ourPlace)?.predicate.evidence ?? []);
  const purged = statements.evidence.filter((item) => ours.has(item.digest) && isOfPurge(item));
  const ends = stages.map(({ predicate }) => predicate.closed_at);
  const now = [timestamp(context.clock.now()), ...ends].sort().at(-1) ?? "";
  const { run: id, kind, trigger, remover, partner } = run;
  const tested = { command: STATIC_TESTS_COMMAND, passed: true } as const;
  const purge = purged.some(showsPurge)
    ? { state: "done" as const, evidence: purged.map(({ digest }) => digest), waiver: null }
    : { state: "waived" as const, evidence: [], waiver: facts.purgeWaiver };
  const backup_expiry = { state: "attested", by: facts.backupsExpireBy } as const;
  return completionStatement(
    {
      ...{ run: id, kind, trigger, remover, partner, completed_at: now },
      ...{ references: facts.references, readmission: facts.readmission, residual },
      attestations: [
        { organisation: run.self, owner: facts.owner, key_id: signer.keyId, attested_at: now },
        { organisation: other, owner, key_id, attested_at: theirs.closed_at },
      ],
      static_tests: [
        { organisation: run.self, ...tested, at: now },
        { organisation: other, ...tested, at: theirs.closed_at },
      ],
      duties: { purge, retention: facts.retention, backup_expiry, replicated_history: "not_retracted" },
      out_of_reach: outOfReachIn(stages),
    },
    stages,
    byDigest(statements.evidence),
  );
}

/** What the completion needs of the other organisation's stage of data duties. @throws OffboardingBlocked */
function attestedBy({ organisation, attested }: StagePredicate) {
  const refuse = (condition: string, found: string, hint: string) => {
    const block = { stage: "data_duties", condition, probe: "statement", found, hint } as const;
    return blockedBy("the removal is not completed", block);
  };
  const owner = ownerIn(attested);
  if (owner === undefined) {
    const hint = "It has to name its owner in its private record before it signs stage data_duties.";
    throw refuse("owner_named", `${organisation} has not said who attests for it`, hint);
  }
  if (!attested.includes(STATIC_TESTS_COMMAND)) {
    const hint = `Its statement of stage data_duties has to attest ${STATIC_TESTS_COMMAND}, as drawbridge offboarding does.`;
    throw refuse("static_tests_pass", `${organisation} has not said that its static tests pass`, hint);
  }
  return owner;
}

/** The record's path; null while a signature is missing. @throws RecordRefused with every reason against it */
export function finishRecord({ clock, run, trust }: RunContext): string | null {
  if (viewOf(run, trust.parties).completion.state !== "countersigned") return null;
  const { run: id, remover, partner } = run;
  const expected = { ...trust, expect: { remover, partner, run: id } };
  run.state.writeText(runFile(id, RECORD_FILE), assembleRecord(readStatements(run), expected));
  if (run.ended === null) {
    changeRun(run, { ended: { how: "completed", reason: null, at: timestamp(clock.now()) } });
  }
  return recordFileOf(run);
}

const FORGOTTEN = {
  ...{ condition: "remembered", probe: "state", found: "what was done in this stage is not recorded here" },
  hint: "Restore the run's folder below state/offboarding from a backup: every plane has to be observed again.",
};

const DRIFT_MAX = 1_000;

/** Repairs nothing, because what was opened by hand must be noticed. @throws OffboardingBlocked with all that is open */
export async function recheck(context: RunContext, what: string): Promise<void> {
  const { run } = context;
  const blocks: StageBlock[] = [];
  for (const stage of STAGE_NAMES) {
    const { plane, conditions } = removalStep(run.kind, stage);
    if (conditions === null) continue;
    context.say(`observing again: ${stage}`);
    const progress = readStage(run, stage);
    if (progress === undefined) {
      blocks.push({ ...{ stage, plane }, ...FORGOTTEN });
      continue;
    }
    reportRepaired(context, progress, plane);
    const { conditions: judged, outOfReach } = await observeStage(context, progress, "observe");
    // Stage 5 restarts the homeserver after stage 4 was shown.
    const counted = judged.filter(({ condition }) => condition !== "no_restart");
    blocks.push(...blocksIn(stage, counted, unwaivedIn(run, outOfReach)));
  }
  if (blocks.length > 0) throw new OffboardingBlocked(what, blocks);
}

/** Reports what the reconciler has found changed since the stage was shown, and has applied again; it blocks nothing. */
function reportRepaired({ state, say }: RunContext, { proof }: StageProgress, plane: PlaneName | null): void {
  for (const { plane: changed, subject, kind, at } of recentDrift(state, DRIFT_MAX)) {
    if (changed !== plane || proof === null || at < proof.at) continue;
    const what = kind === OUT_OF_REACH ? "found with a room where nothing can be done" : "changed by hand";
    say(`NOTE: the ${changed} plane was ${what}, and applied again, at ${at}: ${subject} (${kind})`);
  }
}
