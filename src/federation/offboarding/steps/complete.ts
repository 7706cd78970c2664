// Completes a removal at the remover: states what both organisations have done and what remains, signs it, and puts the
// record together. Invariants: nothing is stated while a plane is open, a signature is missing or something out of reach is
// not waived; the statement is made once; a removal is complete only when an auditor's verifier has verified its record.
import { isOfPurge, ownerAttested, showsPurge } from "../../../records/format/evidence-item.ts";
import { STAGE_NAMES } from "../../../records/format/stages.ts";
import type {
  CompletionPredicate,
  StagePredicate,
  StageStatement,
} from "../../../records/format/statements.ts";
import {
  assembleRecord,
  byDigest,
  type OwnRemoval,
  stagesIn,
} from "../../../records/sign/held-statements.ts";
import { completionStatement, signOnce } from "../../../records/sign/sign-statements.ts";
import type { Signer } from "../../../records/sign/signer.ts";
import { inOrder, placeOf } from "../../../records/verify/verify-stages.ts";
import type { PlaneName } from "../../plane-order.ts";
import { timestamp } from "../../reconcile/context.ts";
import { recentDrift } from "../../state/plane-records.ts";
import { removalStep } from "../../workflow/procedure.ts";
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
  RECORD_FILE,
  readStage,
  recordFileOf,
  runFile,
  type StageProgress,
} from "../run/run-file.ts";
import {
  envelopeAt,
  type RunStatements,
  readStatements,
  signingKeyOf,
  statementFile,
  withEnvelope,
  writeStatements,
} from "../run/statements.ts";
import { judgeObservation, observeStage } from "../stages/observe-stage.ts";
import { STATIC_TESTS_COMMAND } from "./prove-stage.ts";
import { type RunView, unwaivedIn, viewOf } from "./status.ts";

/** `recordFile` is null while the partner's signature is missing. @throws OffboardingBlocked; RecordRefused */
export function complete(context: OffboardingContext, named?: string) {
  return withRun(context, named, async (context) => {
    const { run, trust } = context;
    const removal = removalOf(context);
    const view = viewOf(run, trust.parties);
    if (view.completion.state === "none") {
      requireOpen(run);
      const missing = missingSignatures(view);
      if (missing.length > 0) throw new OffboardingBlocked("the removal is not completed", missing);
      await recheck(context, "the removal is not completed");
      const residual = await context.residual(context, run);
      const signer = signerOf(context.config);
      const make = () => statementOf(context, removal, signer, residual);
      const envelope = await signOnce(statementFile(run, "completion"), make, removal, signer);
      const at = timestamp(context.clock.now());
      writeStatements(run, withEnvelope(readStatements(run), envelope), at);
    }
    return { run, recordFile: finishRecord(context) };
  });
}

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

function statementOf(context: RunContext, removal: OwnRemoval, signer: Signer, residual: Residual) {
  const { run } = context;
  const statements = readStatements(run);
  const byPlace = stagesIn(statements.envelopes);
  const stages = inOrder(run, byPlace);
  const facts = context.facts(run);
  const other = counterpartyIn(run);
  const [ourPlace, theirPlace] = [placeOfDuties(run.self), placeOfDuties(other)];
  const theirs = byPlace.get(theirPlace)?.predicate;
  if (theirs === undefined) throw new RangeError("the other organisation has not stated its duties");
  const key_id = signingKeyOf(envelopeAt(statements, theirPlace), other, removal.parties) ?? "";
  const purged = byPlace.get(ourPlace)?.predicate.evidence ?? [];
  const ends = stages.map(({ predicate }) => predicate.closed_at);
  const now = [timestamp(context.clock.now()), ...ends].sort().at(-1) ?? "";
  const { run: id, kind, trigger, remover, partner } = run;
  const testedAt = (organisation: string, at: string) => ({
    ...{ organisation, command: STATIC_TESTS_COMMAND, passed: true as const, at },
  });
  return completionStatement(
    {
      ...{ run: id, kind, trigger, remover, partner, completed_at: now },
      ...{ references: facts.references, readmission: facts.readmission, residual },
      attestations: [
        { organisation: run.self, owner: facts.owner, key_id: signer.keyId, attested_at: now },
        { organisation: other, owner: ownerIn(theirs), key_id, attested_at: theirs.closed_at },
      ],
      static_tests: [testedAt(run.self, now), testedAt(other, testedIn(theirs))],
      duties: {
        purge: purgeOf(new Set(purged), statements, facts.purgeWaiver),
        retention: facts.retention,
        backup_expiry: { state: "attested", by: facts.backupsExpireBy },
        replicated_history: "not_retracted",
      },
      out_of_reach: outOfReachOf(stages),
    },
    stages,
    byDigest(statements.evidence),
  );
}

function placeOfDuties(organisation: string): string {
  return placeOf({ organisation, stage: "data_duties" });
}

function ownerIn({ organisation, attested }: StagePredicate): string {
  const owner = ownerAttested(attested);
  if (owner !== undefined) return owner;
  const hint = "It has to name its owner in its private record before it signs stage data_duties.";
  throw unsaid("owner_named", `${organisation} has not said who attests for it`, hint);
}

function testedIn({ organisation, attested, closed_at }: StagePredicate): string {
  if (attested.includes(STATIC_TESTS_COMMAND)) return closed_at;
  const hint = `Its statement of stage data_duties has to attest ${STATIC_TESTS_COMMAND}, as drawbridge offboarding does.`;
  throw unsaid("static_tests_pass", `${organisation} has not said that its static tests pass`, hint);
}

function unsaid(condition: string, found: string, hint: string): OffboardingBlocked {
  const block = { stage: "data_duties", condition, probe: "statement", found, hint } as const;
  return blockedBy("the removal is not completed", block);
}

function purgeOf(
  named: ReadonlySet<string>,
  { evidence }: RunStatements,
  waiver: string | null,
): CompletionPredicate["duties"]["purge"] {
  const shown = evidence.filter((item) => named.has(item.digest) && isOfPurge(item));
  return shown.some(showsPurge)
    ? { state: "done", evidence: shown.map(({ digest }) => digest), waiver: null }
    : { state: "waived", evidence: [], waiver };
}

function outOfReachOf(stages: readonly StageStatement[]): CompletionPredicate["out_of_reach"] {
  const all = stages.flatMap(({ predicate }) => predicate.out_of_reach);
  return [...new Map(all.map((entry) => [`${entry.subject} ${entry.reason}`, entry])).values()];
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
    const observation = await observeStage(context, progress, "observe");
    // Stage 5 restarts the homeserver after stage 4 was shown.
    const judged = judgeObservation(observation).filter(({ condition }) => condition !== "no_restart");
    blocks.push(...blocksIn(stage, judged, unwaivedIn(run, observation.outOfReach)));
  }
  if (blocks.length > 0) throw new OffboardingBlocked(what, blocks);
}

/** Reports what was changed by hand since the stage was shown and repaired by the reconciler; it blocks nothing. */
function reportRepaired({ state, say }: RunContext, { proof }: StageProgress, plane: PlaneName | null): void {
  for (const { plane: changed, subject, kind, at } of recentDrift(state, DRIFT_MAX)) {
    if (changed !== plane || proof === null || at < proof.at) continue;
    say(`NOTE: the ${changed} plane was changed by hand and repaired at ${at}: ${subject} (${kind})`);
  }
}
