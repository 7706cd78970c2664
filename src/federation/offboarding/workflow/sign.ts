// Signs what this organisation has shown of its own stages, and what the other has stated of its.
// Invariants: a stage whose exit condition does not hold is not signed; each statement is made once and signed
// once (src/records/sign/sign-once.ts); what is countersigned was verified with all its evidence first.

import type { StageStatement } from "../../../records/format/stage-predicate.ts";
import { PLANE_OF_STAGE, STAGE_NAMES, type StageName } from "../../../records/format/stages.ts";
import { byDigest, type OwnRemoval, stagesIn } from "../../../records/sign/removal-files.ts";
import { countersignOnce, signOnce } from "../../../records/sign/sign-once.ts";
import type { Signer } from "../../../records/sign/signer.ts";
import { stageStatement } from "../../../records/sign/stage-statement.ts";
import { placeOf } from "../../../records/verify/stage.ts";
import { currentState } from "../../reconcile/assess.ts";
import { timestamp } from "../../reconcile/context.ts";
import { type OffboardingContext, signerOf } from "../run/context.ts";
import { counterpartyOf, type Run } from "../run/run.ts";
import { envelopeAt, keptStatement, readHeld, withEnvelope, writeHeld } from "../run/statements.ts";
import { finishRecord } from "./complete.ts";
import { recheck } from "./recheck.ts";
import { type Block, OffboardingBlocked, removalOf, requireOpen, withRun } from "./step.ts";
import { isLeftAlone, movesOf, type RunView, type StageView, viewOf } from "./view.ts";

export interface SignResult {
  readonly run: Run;
  readonly signed: readonly StageName[];
  readonly countersigned: readonly (StageName | "completion")[];
  /** Path of the record, once both have signed the completion. */
  readonly recordFile: string | null;
  readonly view: RunView;
}

/**
 * @throws OffboardingBlocked when there is nothing that may be signed; RecordRefused when a statement does not
 *   hold; DrawbridgeError `secret_unavailable`, `program_failed`
 */
export function sign(context: OffboardingContext, named?: string): Promise<SignResult> {
  return withRun(context, named, async (run, trust) => {
    requireOpen(run);
    const removal = removalOf(run, trust);
    const { parties } = trust;
    const before = viewOf(run, parties);
    const moves = movesOf(before);
    if (moves.sign.length === 0 && moves.countersign.length === 0) throw nothingToSign(before);
    const signer = signerOf(context.config);
    const at = () => timestamp(context.federation.clock.now());
    for (const stage of moves.sign) await signStage(context, run, stage, { removal, signer, at });
    for (const place of moves.countersign) {
      if (place === "completion") await recheck(context, run, "the completion is not countersigned");
      await countersign(run, place, { removal, signer, at });
    }
    const recordFile = finishRecord(context, run, trust);
    return {
      run,
      signed: moves.sign,
      countersigned: moves.countersign,
      recordFile,
      view: viewOf(run, parties),
    };
  });
}

interface Pen {
  readonly removal: OwnRemoval;
  readonly signer: Signer;
  readonly at: () => string;
}

async function signStage(
  context: OffboardingContext,
  run: Run,
  stage: StageName,
  { removal, signer, at }: Pen,
): Promise<void> {
  await requireStillClosed(context, run, stage);
  const kept = keptStatement(run, `own-${stage}`);
  const envelope = await signOnce(kept, () => statementOf(run, stage, removal), removal, signer);
  const held = readHeld(run);
  writeHeld(run, held, withEnvelope({ ...held, evidence: withProof(run, stage, removal) }, envelope), at());
}

/** Everything that is held, and what the stage's proof rests on. */
function withProof(run: Run, stage: StageName, { parties }: OwnRemoval) {
  const record = viewOf(run, parties).stages.find((one) => one.stage === stage)?.record;
  const items = [...readHeld(run).evidence, ...(record?.proof?.items ?? [])];
  return [...byDigest(items).values()];
}

function statementOf(run: Run, stage: StageName, { parties }: OwnRemoval): StageStatement {
  const { stages, held, waivers } = viewOf(run, parties);
  const record = stages.find((one) => one.stage === stage)?.record;
  if (record?.proof == null) throw new RangeError(`${stage} has no proof`);
  const { proof, openedAt } = record;
  const before = STAGE_NAMES[STAGE_NAMES.indexOf(stage) - 1];
  const own = run.self;
  const previous =
    before === undefined
      ? null
      : (stagesIn(held.envelopes).get(placeOf({ organisation: own, stage: before })) ?? null);
  const closedAt = [proof.at, previous?.predicate.closedAt ?? proof.at].sort().at(-1) ?? proof.at;
  const { run: id, kind, remover, partner } = run;
  return stageStatement(
    {
      ...{ run: id, kind, remover, partner, organisation: own, stage },
      revision: proof.revision,
      render: proof.render,
      exit: proof.conditions.map(({ condition, verdict, evidence }) => ({
        condition,
        verdict: verdict === "not_applicable" ? "not_applicable" : "met",
        evidence,
      })),
      outOfReach: proof.outOfReach.map(({ subject, reason }) => {
        const waiver = waivers.get(subject);
        return { subject, reason, waivedBy: waiver?.by ?? null, waiver: waiver?.reason ?? null };
      }),
      attested: proof.attested,
      openedAt,
      closedAt,
      previous,
    },
    byDigest(proof.items),
  );
}

/** A plane that was opened in the registry since it was shown closed is not signed for. */
async function requireStillClosed(
  { federation }: OffboardingContext,
  run: Run,
  stage: StageName,
): Promise<void> {
  const plane = PLANE_OF_STAGE[stage];
  if (plane === null || isLeftAlone(run, stage)) return;
  const { desired } = await currentState(federation);
  const other = counterpartyOf(run);
  const entry = desired.registry.partners.find(({ partner }) => partner.serverName === other);
  if (entry?.partner.planes[plane] === "closed") return;
  throw new OffboardingBlocked(`stage ${stage} is not signed`, [
    {
      ...{ stage, plane, condition: "in_force", probe: "registry" },
      found: `the registry declares the ${plane} plane open`,
      hint: `Set planes.${plane}: closed in its file, render and commit; see git log for who opened it.`,
    },
  ]);
}

async function countersign(run: Run, place: StageName | "completion", pen: Pen): Promise<void> {
  const { removal, signer, at } = pen;
  const held = readHeld(run);
  const name = place === "completion" ? place : placeOf({ organisation: counterpartyOf(run), stage: place });
  const envelope = envelopeAt(held, name);
  if (envelope === undefined) throw new RangeError(`${name} is not held`);
  const kept = keptStatement(run, place === "completion" ? place : `other-${place}`);
  const signed = await countersignOnce(kept, envelope, removal, held, signer);
  writeHeld(run, held, withEnvelope(held, signed), at());
}

function nothingToSign(view: RunView): OffboardingBlocked {
  const stage = view.stages.find(({ own }) => own.state === "closing" || own.state === "proving");
  if (stage !== undefined)
    return new OffboardingBlocked(`stage ${stage.stage} is not signed`, blocksOf(stage));
  const { waiting } = movesOf(view);
  return new OffboardingBlocked("there is nothing to sign", [
    {
      ...{ stage: waiting?.stage ?? null, plane: null, condition: "turn", probe: "status" },
      found: waiting === null ? "the next step is not a signature" : `waiting for ${waiting.for}`,
      hint: "See drawbridge offboarding status: it says whose turn it is, and the command.",
    },
  ]);
}

/** Why a stage cannot be signed yet. */
export function blocksOf({ stage, record, unwaived }: StageView): readonly Block[] {
  const plane = PLANE_OF_STAGE[stage];
  if (record?.proof == null) {
    const found = "it has not been shown yet";
    return [
      { stage, plane, condition: "shown", probe: "next", found, hint: "Run drawbridge offboarding next." },
    ];
  }
  const open = record.proof.conditions.filter(
    ({ verdict }) => verdict === "not_met" || verdict === "unknown",
  );
  return [
    ...open.map(({ condition, probe, found, hint }) => ({ stage, plane, condition, probe, found, hint })),
    ...unwaived.map(({ subject, reason, hint }) => ({
      ...{ stage, plane, condition: "out_of_reach", probe: subject, found: reason },
      hint: `${hint} Or waive it: drawbridge offboarding waive '${subject}' --reason WORD.`,
    })),
  ];
}
