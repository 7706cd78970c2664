// Is this the whole, unaltered record of one removal, signed by both organisations? Invariants: nothing but the file and the
// trust file is read; everything that is wrong is reported at once, except what only follows from something else that is
// wrong; a record verifies only if nothing is wrong.
import * as z from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { strictJsonIn } from "../../domain/strict-json.ts";
import { isSettled } from "../conditions/evaluate.ts";
import { RECORD_BYTES_MAX, RECORD_EVIDENCE_MAX, RECORD_STAGES_MAX } from "../format/fields.ts";
import { PLANE_NAMES, PLANE_OF_STAGE } from "../format/removal-stages.ts";
import { CompletionStatement, RecordFile, StageStatement, type Statement } from "../format/statements.ts";
import type { Trust } from "../format/trust.ts";
import { addProblems, type Problem, problemsOf, type ReasonCode } from "./reasons.ts";
import { type RecordReport, reportOf } from "./report.ts";
import { bindingProblems, completionProblems, evidenceOf, keyProblems } from "./verify-completion.ts";
import { bothSign, PARSE_ONCE, type Signature, verifyDsseEnvelope } from "./verify-signatures.ts";
import type { JudgedStage, Removal } from "./verify-stages.ts";
import { judgeStage, placeOf, readEvidence, sequenceProblems, strayProblems } from "./verify-stages.ts";

/** Verifies a record file's bytes against whom the auditor trusts; it never throws for what the file holds. */
export function verifyRecord(bytes: Uint8Array, trust: Trust): RecordReport {
  const about = { digest: sha256Tagged(bytes), isRunExpected: trust.expect?.run !== undefined };
  const failed = (problem: Problem) =>
    reportOf({ ...about, problems: [problem], judged: [], items: new Map(), signers: [] });
  const value = strictJsonIn(bytes, RECORD_BYTES_MAX);
  if (value === undefined) return failed({ reason: "record_unreadable", where: "file" });
  const shape = Shape.safeParse(value, PARSE_ONCE).data;
  if (shape === undefined) return failed({ reason: "record_malformed", where: "file" });
  // Before any signature or digest is computed: the lengths of these lists are not trusted yet.
  const detail = surplusOf(shape);
  if (detail !== undefined) return failed({ reason: "record_too_many", where: "file", detail });
  const problems: Problem[] = [];
  const add = (more: readonly Problem[]) => addProblems(problems, more);
  if (!Buffer.from(`${canonicalize(value)}\n`, "utf8").equals(bytes)) {
    problems.push({ reason: "record_reformatted", where: "file" });
  }
  const keys = trust.parties.flatMap((party) => [...new Set(party.keys.map(({ keyId }) => keyId))]);
  const shared = new Set(keys.filter((keyId, index) => keys.indexOf(keyId) !== index));
  add([...shared].map((detail) => ({ reason: "key_of_two_parties", where: "trust", detail })));

  const signers: Signature[] = [];
  const open = <S extends Statement<Removal>>(envelope: unknown, schema: z.ZodType<S>, where: string) => {
    const opened = verifyDsseEnvelope(envelope, schema, trust.parties, ({ predicate }) =>
      bothSign(predicate),
    );
    if (opened.valid) signers.push(...opened.signers);
    else add(opened.problems.map((problem) => ({ ...problem, where })));
    return opened.valid ? opened.statement : undefined;
  };
  const completion = open(shape.completion, CompletionStatement, "completion");
  const completionSigners = [...signers];
  const listed = shape.stages.map((stage, index) => open(stage, StageStatement, `stages[${index}]`));
  const stages = listed.filter((stage) => stage !== undefined);
  const evidence = readEvidence(shape.evidence);
  add(evidence.problems);
  const judged = stages.map((stage) => judgeStage(stage, evidence.items, evidence.unusable));
  const isUnilateral = isDoneByRemoverAlone(judged);
  for (const { predicate, problems: found } of judged) {
    // What the partner has not shown is one thing: it has not taken part.
    const isAbsent = isUnilateral && predicate.organisation === predicate.partner;
    add(isAbsent ? found.filter(({ reason }) => !UNSHOWN.includes(reason)) : found);
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
    add(bindingProblems({ ...completion.predicate, bound: stages, items: evidence.items, isWhole }));
  }
  if (isWhole) add(surplusEvidence(evidence.items.keys(), evidenceOf(stages)));
  const { predicate } = completion ?? {};
  return reportOf({ ...about, problems, completion: predicate, judged, items: evidence.items, signers });
}

/** Whether the partner has stated every stage, and shown nothing closed, though there was something to show. */
function isDoneByRemoverAlone(judged: readonly JudgedStage[]): boolean {
  const ofPartner = judged.filter(({ predicate }) => predicate.organisation === predicate.partner);
  const isSilent = ({ isWhole, conditions }: JudgedStage) =>
    isWhole && conditions.every(({ verdict }) => verdict !== "met");
  const onPlanes = ofPartner.filter(({ predicate }) => PLANE_OF_STAGE[predicate.stage] !== null);
  const isOwed = onPlanes.some(({ conditions }) => !conditions.every(isSettled));
  return isOwed && onPlanes.length >= PLANE_NAMES.length && onPlanes.every(isSilent);
}

const UNSHOWN: readonly ReasonCode[] = ["condition_unproved", "condition_refuted", "evidence_shows_nothing"];

/** The outermost shape alone, so that each part is judged and reported by itself. */
const Shape = RecordFile.extend({
  completion: z.unknown().refine((one) => one !== undefined),
  stages: z.array(z.unknown()),
  evidence: z.array(z.unknown()),
});

function surplusOf({ stages, evidence }: z.output<typeof Shape>) {
  if (stages.length > RECORD_STAGES_MAX) return `${stages.length} stages`;
  return evidence.length > RECORD_EVIDENCE_MAX ? `${evidence.length} items` : undefined;
}

function expectationProblems(removal: Removal, { parties, expect }: Trust): Problem[] {
  if (expect === undefined) return [];
  const { run = removal.run, remover, partner } = expect;
  return problemsOf("file", (report) => {
    const trusted = parties.map(({ organisation }) => organisation);
    for (const name of [remover, partner])
      if (!trusted.includes(name)) report("party_untrusted", name, "trust");
    const areExpected = removal.remover === remover && removal.partner === partner;
    if (!areExpected) report("parties_not_expected", `${removal.remover}, ${removal.partner}`);
    if (removal.run !== run) report("run_not_expected", removal.run);
  });
}

export function surplusEvidence(held: Iterable<string>, named: ReadonlySet<string>): Problem[] {
  return [...held]
    .filter((digest) => !named.has(digest))
    .map((detail) => ({ reason: "evidence_extra", where: "evidence", detail }) as const);
}
