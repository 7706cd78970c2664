// Signs this organisation's proved stages, and countersigns what the other organisation has stated of its stages.
// Invariants: a stage whose conditions do not hold, or were shown more than a minute ago, is not signed; each statement
// is made once and signed once (src/records/sign/sign-once.ts); what is countersigned was verified with all its evidence
// first.

import { shellWord } from "../../../domain/printable.ts";
import type { StageStatement } from "../../../records/format/predicates.ts";
import { PLANE_OF_STAGE, STAGE_NAMES, type StageName } from "../../../records/format/stages.ts";
import { byDigest, type OwnRemoval, stagesIn } from "../../../records/sign/held-statements.ts";
import { stageStatement } from "../../../records/sign/make-statements.ts";
import { countersignOnce, type Kept, signOnce } from "../../../records/sign/sign-once.ts";
import type { Signer } from "../../../records/sign/signer.ts";
import { placeOf } from "../../../records/verify/verify-stage.ts";
import { goodState } from "../../reconcile/accept-head.ts";
import { timestamp } from "../../reconcile/context.ts";
import { partnerEntry } from "../../registry/partner.ts";
import { removalStep } from "../../workflow/procedure.ts";
import { allHold } from "../../workflow/step-verdict.ts";
import { type OffboardingContext, type RunContext, signerOf } from "../run/context.ts";
import { readStage, writeStage } from "../run/progress.ts";
import { counterpartyIn, type Run } from "../run/run-file.ts";
import {
  envelopeAt,
  readStatements,
  statementFile,
  withEnvelope,
  writeStatements,
} from "../run/statements.ts";
import { declaredOpen } from "../stages/observe-stage.ts";
import { finishRecord, recheck } from "./complete.ts";
import { nextStepsOf, type RunView, type StageView, unwaivedIn, viewOf } from "./next-steps.ts";
import { prove } from "./prove-stage.ts";
import {
  blockedBy,
  blocksIn,
  OffboardingBlocked,
  removalOf,
  requireOpen,
  type StageBlock,
  withRun,
} from "./step.ts";

/**
 * Signs and countersigns whatever is due; once both have signed the completion, the record is written.
 * @throws OffboardingBlocked when there is nothing that may be signed; RecordRefused when a statement does not
 *   hold; DrawbridgeError `secret_unavailable`, `program_failed`
 */
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
    const at = () => timestamp(context.clock.now());
    for (const stage of steps.sign) await signStage(context, stage, { removal, signer, at });
    for (const place of steps.countersign) {
      if (place === "completion") await recheck(context, "the completion is not countersigned");
      await countersign(run, place, { removal, signer, at });
    }
    const recordFile = finishRecord(context);
    return { run, signed: steps.sign, countersigned: steps.countersign, recordFile };
  });
}

interface Signing {
  readonly removal: OwnRemoval;
  readonly signer: Signer;
  readonly at: () => string;
}

async function signStage(
  context: RunContext,
  stage: StageName,
  { removal, signer, at }: Signing,
): Promise<void> {
  const { run } = context;
  const file = statementFile(run, `own-${stage}`);
  await requireStillClosed(context, stage, file);
  await requireFresh(context, stage, file);
  const envelope = await signOnce(file, () => statementOf(run, stage, removal), removal, signer);
  const statements = readStatements(run);
  const evidence = [
    ...byDigest([...statements.evidence, ...(readStage(run, stage)?.proof?.items ?? [])]).values(),
  ];
  writeStatements(run, withEnvelope({ ...statements, evidence }, envelope), at());
}

function statementOf(run: Run, stage: StageName, { parties }: OwnRemoval): StageStatement {
  const { stages, statements, waivers } = viewOf(run, parties);
  const progress = stages.find((one) => one.stage === stage)?.progress;
  if (progress?.proof == null) throw new RangeError(`${stage} has no proof`);
  const { proof, opened_at: openedAt } = progress;
  const before = STAGE_NAMES[STAGE_NAMES.indexOf(stage) - 1];
  const own = run.self;
  const previous =
    before === undefined
      ? null
      : (stagesIn(statements.envelopes).get(placeOf({ organisation: own, stage: before })) ?? null);
  const closedAt = [proof.at, previous?.predicate.closed_at ?? proof.at].sort().at(-1) ?? proof.at;
  const { run: id, kind, remover, partner } = run;
  return stageStatement(
    {
      ...{ run: id, kind, remover, partner, organisation: own, stage },
      revision: proof.revision,
      render: proof.render,
      scope: progress.scope,
      evidence: proof.items.map(({ digest }) => digest),
      out_of_reach: proof.out_of_reach.map(({ subject, reason }) => {
        const waiver = waivers.get(subject);
        return { subject, reason, waived_by: waiver?.by ?? null, waiver: waiver?.reason ?? null };
      }),
      attested: proof.attested,
      opened_at: openedAt,
      closed_at: closedAt,
      previous,
    },
    byDigest(proof.items),
  );
}

/**
 * A plane that was opened in the registry since it was shown closed is not signed for. Its proof is given up, so that the
 * next step closes it again, unless a statement was already made from it, which a crash kept from being signed.
 * @throws OffboardingBlocked
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

/** Evidence that is older than this is observed again before it is signed. */
const FRESH_MS = 60_000;

/**
 * Observes a stage again that was shown closed some time ago: it may have been opened since. What is found replaces the
 * proof, unless a statement was already made from that, which a crash kept from being signed.
 * @throws OffboardingBlocked when the stage does not hold any more
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
  const failing = again.proof?.conditions.filter((condition) => !allHold([condition])) ?? [];
  if (failing.every(({ condition }) => condition === "no_restart") && failing.length > 0) {
    // A later stage has restarted the homeserver: from then on nothing is known of the process before.
    const unmeasured = { ...progress, scope: { ...progress.scope, started_at: null } };
    again = await prove(context, unmeasured, "observe");
  }
  if (statement.read() === undefined) writeStage(run, again);
  const view = { stage, progress: again, unwaived: unwaivedIn(run, again) };
  const blocks = blocksOf(view);
  if (blocks.length > 0) throw new OffboardingBlocked(`stage ${stage} is not signed`, blocks);
}

async function countersign(
  run: Run,
  place: StageName | "completion",
  { removal, signer, at }: Signing,
): Promise<void> {
  const statements = readStatements(run);
  const name = place === "completion" ? place : placeOf({ organisation: counterpartyIn(run), stage: place });
  const envelope = envelopeAt(statements, name);
  if (envelope === undefined) throw new RangeError(`there is no statement of ${name}`);
  const file = statementFile(run, place === "completion" ? place : `other-${place}`);
  const signed = await countersignOnce(file, envelope, removal, statements, signer);
  writeStatements(run, withEnvelope(statements, signed), at());
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

/** Why a stage cannot be signed yet. */
export function blocksOf({
  stage,
  progress,
  unwaived,
}: Pick<StageView, "stage" | "progress" | "unwaived">): readonly StageBlock[] {
  if (progress?.proof == null) {
    const found = "it has not been shown yet";
    const hint = "Run drawbridge offboarding next.";
    return [{ stage, plane: PLANE_OF_STAGE[stage], condition: "shown", probe: "next", found, hint }];
  }
  const waivable = unwaived.map(({ hint, ...one }) => ({
    ...one,
    hint: `${hint} Or waive it: drawbridge offboarding waive ${shellWord(one.subject)} --reason WORD.`,
  }));
  return blocksIn(stage, progress.proof.conditions, waivable);
}
