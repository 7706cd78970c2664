// Is this the whole, unaltered record of one removal, signed by both organisations?
// Invariants: nothing but the file and the trust file is read; everything that is wrong is reported at once,
// except what only follows from something else that is wrong; a record verifies only if nothing is wrong.

import type { z } from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { isList, isObject, type Json, type JsonObject } from "../../domain/json.ts";
import { strictJsonIn } from "../../domain/strict-json.ts";
import { RECORD_BYTES_MAX, RECORD_EVIDENCE_MAX, RECORD_STAGES_MAX } from "../format/fields.ts";
import { CompletionStatement, StageStatement } from "../format/predicates.ts";
import { RECORD_SCHEMA, RecordFile } from "../format/record-file.ts";
import { PLANE_NAMES, PLANE_OF_STAGE } from "../format/stages.ts";
import type { Statement } from "../format/statement.ts";
import type { Trust, TrustedParty } from "../format/trust.ts";
import { readEvidence } from "./evidence-integrity.ts";
import type { Problem, ReasonCode } from "./reasons.ts";
import { type RecordReport, reportOf } from "./report.ts";
import { type Removal, sequenceProblems, strayProblems } from "./stage-sequence.ts";
import { bindingProblems, completionProblems, evidenceOf, keyProblems } from "./verify-completion.ts";
import { verifyDsseEnvelope } from "./verify-dsse-envelope.ts";
import { type JudgedStage, judgeStage, placeOf } from "./verify-stage.ts";
import { byBothParties, type Signature } from "./who-must-sign.ts";

/**
 * Verifies a record file's bytes against whom the auditor trusts.
 * It never throws for what the file holds.
 */
export function verifyRecord(bytes: Uint8Array, trust: Trust): RecordReport {
  const about = { digest: sha256Tagged(bytes), isRunExpected: trust.expect?.run !== undefined };
  const failed = (problem: Problem) =>
    reportOf({ ...about, problems: [problem], stages: [], judged: [], items: new Map(), signers: [] });
  const value = strictJsonIn(bytes, RECORD_BYTES_MAX);
  if (value === undefined) return failed({ reason: "record_unreadable", where: "file" });
  const shape = shapeOf(value);
  if (shape === undefined) return failed({ reason: "record_malformed", where: "file" });
  // Before any signature or digest is computed: the lengths of these lists are not trusted yet.
  const tooMany = lengthProblem(shape);
  if (tooMany !== undefined) return failed(tooMany);
  const problems: Problem[] = [];
  // A list of items may be longer than a call has arguments.
  const add = (more: readonly Problem[]) => {
    for (const problem of more) problems.push(problem);
  };
  if (!Buffer.from(`${canonicalize(value)}\n`, "utf8").equals(bytes)) {
    problems.push({ reason: "record_reformatted", where: "file" });
  }
  const shared = keysOfTwoParties(trust.parties);
  add(shared.map((detail) => ({ reason: "key_of_two_parties", where: "trust", detail })));

  const signers: Signature[] = [];
  const gathered = { parties: trust.parties, problems, signers };
  const completion = open(shape.completion, CompletionStatement, "completion", gathered);
  const completionSigners = [...signers];
  const listed = shape.stages.map((stage, index) =>
    open(stage, StageStatement, `stages[${index}]`, gathered),
  );
  const stages = listed.filter((stage) => stage !== undefined);
  const evidence = readEvidence(shape.evidence);
  add(evidence.problems);
  const judged = stages.map((stage) => judgeStage(stage, evidence.items, evidence.unusable));
  const isUnilateral = isDoneByRemoverAlone(stages, judged);
  for (const [index, { problems: found }] of judged.entries()) {
    const { organisation, partner } = stages[index]?.predicate ?? {};
    // What the partner has not shown is one thing: it has not taken part.
    add(isUnilateral && organisation === partner ? found.filter(isNotAboutEvidence) : found);
  }
  if (isUnilateral) add([{ reason: "unilateral", where: "partner" }]);

  const isWhole = stages.length === listed.length;
  const removal: Removal | undefined = completion?.predicate ?? stages[0]?.predicate;
  if (removal !== undefined) {
    add(expectationProblems(removal, trust));
    for (const stage of stages) add(strayProblems(removal, stage, placeOf(stage.predicate)));
    add(sequenceProblems(removal, listed));
  }
  if (completion !== undefined) {
    add(keyProblems(completion.predicate, completionSigners));
    add(completionProblems(completion));
    add(bindingProblems(completion.predicate, stages, evidence.items, isWhole));
  }
  if (isWhole) add(surplusEvidence(evidence.items.keys(), evidenceOf(stages)));
  return reportOf({ ...about, problems, completion, stages, judged, items: evidence.items, signers });
}

/** Whether the partner has stated every stage, and shown nothing closed on any plane. */
function isDoneByRemoverAlone(stages: readonly StageStatement[], judged: readonly JudgedStage[]): boolean {
  const ofPartner = judged.filter((_, index) => {
    const { organisation, partner, stage = "data_duties" } = stages[index]?.predicate ?? {};
    return organisation === partner && PLANE_OF_STAGE[stage] !== null;
  });
  const isSilent = ({ isWhole, conditions }: JudgedStage) =>
    isWhole && conditions.every(({ verdict }) => verdict !== "met");
  return ofPartner.length >= PLANE_NAMES.length && ofPartner.every(isSilent);
}

const ABOUT_EVIDENCE: ReadonlySet<string> = new Set<ReasonCode>([
  "condition_unproved",
  "condition_refuted",
  "evidence_shows_nothing",
]);

function isNotAboutEvidence({ reason }: Problem): boolean {
  return !ABOUT_EVIDENCE.has(reason);
}

interface Shape {
  readonly completion: Json;
  readonly stages: readonly Json[];
  readonly evidence: readonly Json[];
}

/** The outermost shape alone, so that each part is judged and reported by itself. */
function shapeOf(value: Json): Shape | undefined {
  if (!isObject(value) || value["schema"] !== RECORD_SCHEMA) return undefined;
  const { completion, stages, evidence }: JsonObject = value;
  if (completion === undefined || !isList(stages) || !isList(evidence)) return undefined;
  if (Object.keys(value).length !== Object.keys(RecordFile.shape).length) return undefined;
  return { completion, stages, evidence };
}

function lengthProblem({ stages, evidence }: Shape): Problem | undefined {
  const where = "file";
  if (stages.length > RECORD_STAGES_MAX) {
    return { reason: "record_too_many", where, detail: `${stages.length} stages` };
  }
  if (evidence.length > RECORD_EVIDENCE_MAX) {
    return { reason: "record_too_many", where, detail: `${evidence.length} items` };
  }
  return undefined;
}

function keysOfTwoParties(parties: readonly TrustedParty[]): string[] {
  const all = parties.flatMap(({ keys }) => [...new Set(keys.map(({ keyId }) => keyId))]);
  return [...new Set(all.filter((keyId, index) => all.indexOf(keyId) !== index))];
}

/** Verifies one envelope; what is wrong with it, and who signed it, are added to the lists. */
function open<S extends Statement<Removal>>(
  value: Json,
  schema: z.ZodType<S>,
  where: string,
  { parties, problems, signers }: Gathered,
): S | undefined {
  const opened = verifyDsseEnvelope(value, schema, parties, byBothParties);
  if (!opened.valid) {
    problems.push(...opened.problems.map((problem) => ({ ...problem, where })));
    return undefined;
  }
  signers.push(...opened.signers);
  return opened.statement;
}

interface Gathered {
  readonly parties: readonly TrustedParty[];
  readonly problems: Problem[];
  readonly signers: Signature[];
}

function expectationProblems(removal: Removal, { parties, expect }: Trust): Problem[] {
  if (expect === undefined) return [];
  const problems: Problem[] = [];
  for (const name of [expect.remover, expect.partner]) {
    if (!parties.some(({ organisation }) => organisation === name)) {
      problems.push({ reason: "party_untrusted", where: "trust", detail: name });
    }
  }
  if (removal.remover !== expect.remover || removal.partner !== expect.partner) {
    const detail = `${removal.remover}, ${removal.partner}`;
    problems.push({ reason: "parties_not_expected", where: "file", detail });
  }
  if (expect.run !== undefined && removal.run !== expect.run) {
    problems.push({ reason: "run_not_expected", where: "file", detail: removal.run });
  }
  return problems;
}

function surplusEvidence(held: Iterable<string>, named: ReadonlySet<string>): Problem[] {
  return [...held]
    .filter((digest) => !named.has(digest))
    .map((detail) => ({ reason: "evidence_extra", where: "evidence", detail }) as const);
}
