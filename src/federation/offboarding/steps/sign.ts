// Signs this organisation's proved stages, and countersigns the other organisation's. Invariants: a stage whose
// conditions do not hold, or were shown more than a minute ago, is not signed; each statement is made and signed once
// (src/records/sign/sign-statements.ts); what is countersigned was verified with all its evidence first.

import { isSettled } from "../../../records/conditions/evaluate.ts";
import { STAGE_NAMES, type StageName } from "../../../records/format/stages.ts";
import type { StageStatement } from "../../../records/format/statements.ts";
import { byDigest, type OwnRemoval, stagesIn } from "../../../records/sign/held-statements.ts";
import {
  countersignOnce,
  type Kept,
  signOnce,
  stageStatement,
} from "../../../records/sign/sign-statements.ts";
import type { Signer } from "../../../records/sign/signer.ts";
import { placeOf } from "../../../records/verify/verify-stages.ts";
import { goodState } from "../../reconcile/accept-head.ts";
import { timestamp } from "../../reconcile/context.ts";
import { partnerEntry } from "../../registry/partner.ts";
import { removalStep } from "../../workflow/procedure.ts";
import {
  blockedBy,
  OffboardingBlocked,
  type OffboardingContext,
  type RunContext,
  removalOf,
  requireOpen,
  signerOf,
  withRun,
} from "../run/context.ts";
import { counterpartyIn, type Run, readStage, writeStage } from "../run/run-file.ts";
import {
  envelopeAt,
  readStatements,
  statementFile,
  withEnvelope,
  writeStatements,
} from "../run/statements.ts";
import { declaredOpen } from "../stages/observe-stage.ts";
import { finishRecord, recheck } from "./complete.ts";
import { prove } from "./prove-stage.ts";
import { blocksOf, nextStepsOf, type RunView, unwaivedIn, viewOf } from "./status.ts";

/** Signs and countersigns whatever is due. @throws OffboardingBlocked, RecordRefused; as the signer does */
export function sign(context: OffboardingContext, named?: string) {
  return withRun(context, named, async (context) => {
    const { run, trust } = context;
    requireOpen(run);
    const removal = removalOf(context);
    const { parties } = trust;
    const before = viewOf(run, parties);
    const steps = nextStepsOf(before);
    if (steps.sign.length === 0 && steps.countersign.length === 0) throw nothingToSign(before);
    const signer = signerOf(context.config);
    for (const stage of steps.sign) await signStage(context, stage, removal, signer);
    for (const place of steps.countersign) {
      if (place === "completion") await recheck(context, "the completion is not countersigned");
      await countersign(context, place, removal, signer);
    }
    const recordFile = finishRecord(context);
    return { run, signed: steps.sign, countersigned: steps.countersign, recordFile };
  });
}

async function signStage(
  context: RunContext,
  stage: StageName,
  removal: OwnRemoval,
  signer: Signer,
): Promise<void> {
  const { run } = context;
  const file = statementFile(run, `own-${stage}`);
  await requireStillClosed(context, stage, file);
  await requireFresh(context, stage, file);
  const envelope = await signOnce(file, () => statementOf(run, stage, removal), removal, signer);
  const statements = readStatements(run);
  const items = readStage(run, stage)?.proof?.items ?? [];
  const evidence = [...byDigest([...statements.evidence, ...items]).values()];
  const at = timestamp(context.clock.now());
  writeStatements(run, withEnvelope({ ...statements, evidence }, envelope), at);
}

function statementOf(run: Run, stage: StageName, { parties }: OwnRemoval): StageStatement {
  const { stages, statements } = viewOf(run, parties);
  const progress = stages.find((one) => one.stage === stage)?.progress;
  if (progress?.proof == null) throw new RangeError(`${stage} has no proof`);
  const { proof, opened_at, scope } = progress;
  const { items, revision, render, attested } = proof;
  const before = STAGE_NAMES[STAGE_NAMES.indexOf(stage) - 1];
  const { run: id, kind, remover, partner, self: organisation } = run;
  const earlier = before && stagesIn(statements.envelopes).get(placeOf({ organisation, stage: before }));
  const closed_at = [proof.at, earlier?.predicate.closed_at ?? proof.at].sort().at(-1) ?? proof.at;
  return stageStatement(
    {
      ...{ run: id, kind, remover, partner, organisation, stage, revision, render, scope, attested },
      ...{ opened_at, closed_at, previous: earlier ?? null, evidence: items.map(({ digest }) => digest) },
      out_of_reach: proof.out_of_reach.map(({ subject, reason }) => {
        const waiver = run.waivers.find((one) => one.subject === subject);
        return { subject, reason, waived_by: waiver?.by ?? null, waiver: waiver?.reason ?? null };
      }),
    },
    byDigest(items),
  );
}

/**
 * A plane that was opened in the registry since is not signed for. Unless a statement was made from its proof, that is
 * given up, so that the next step closes the plane again. @throws OffboardingBlocked
 */
async function requireStillClosed(context: RunContext, stage: StageName, statement: Kept): Promise<void> {
  const { run } = context;
  const { plane, edit } = removalStep(run.kind, stage);
  if (plane === null || edit === null) return;
  const { desired } = await goodState(context);
  if (partnerEntry(desired.registry, counterpartyIn(run))?.partner.planes[plane] === "closed") return;
  const block = { stage, plane, condition: "in_force", probe: "registry", ...declaredOpen(plane) };
  const progress = readStage(run, stage);
  if (progress !== undefined && statement.read() === undefined) writeStage(run, { ...progress, proof: null });
  throw blockedBy(`stage ${stage} is not signed`, block);
}

const FRESH_MS = 60_000;

/**
 * Observes a stage again that was shown closed some time ago. What is found replaces the proof, unless a statement was
 * made from that, which a crash kept from being signed. @throws OffboardingBlocked when the stage does not hold
 */
async function requireFresh(context: RunContext, stage: StageName, statement: Kept): Promise<void> {
  const { run } = context;
  const progress = readStage(run, stage);
  if (progress?.proof == null || removalStep(run.kind, stage).conditions === null) return;
  const ageMs = context.clock.now() - Date.parse(progress.proof.at);
  // A negative age says that the clock was set back since, and nothing of the time that has passed.
  if (ageMs >= 0 && ageMs <= FRESH_MS) return;
  context.say(`observing again before it is signed: ${stage}`);
  let again = await prove(context, progress, "observe");
  const failing = again.proof?.conditions.filter((one) => !isSettled(one)) ?? [];
  if (failing.every(({ condition }) => condition === "no_restart") && failing.length > 0) {
    // A later stage has restarted the homeserver: from then on nothing is known of the process before.
    const unmeasured = { ...progress, scope: { ...progress.scope, started_at: null } };
    again = await prove(context, unmeasured, "observe");
  }
  if (statement.read() === undefined) writeStage(run, again);
  const view = { stage, progress: again, unwaived: unwaivedIn(run, again.proof?.out_of_reach) };
  const blocks = blocksOf(view);
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
  const envelope = envelopeAt(statements, name);
  if (envelope === undefined) throw new RangeError(`there is no statement of ${name}`);
  const file = statementFile(run, place === "completion" ? place : `other-${place}`);
  const signed = await countersignOnce(file, envelope, removal, statements, signer);
  writeStatements(run, withEnvelope(statements, signed), timestamp(clock.now()));
}

function nothingToSign(view: RunView): OffboardingBlocked {
  const stage = view.stages.find(({ own }) => own.state === "closing" || own.state === "proving");
  if (stage !== undefined) {
    return new OffboardingBlocked(`stage ${stage.stage} is not signed`, blocksOf(stage));
  }
  const { waiting } = nextStepsOf(view);
  return blockedBy("there is nothing to sign", {
    ...{ stage: waiting?.stage ?? null, condition: "turn", probe: "status" },
    found: waiting === null ? "the next step is not a signature" : `waiting for ${waiting.for}`,
    hint: "See drawbridge offboarding status: it says whose turn it is, and the command.",
  });
}
