// Is this the whole, unaltered record of one removal, signed by both organisations? And what does it say to an auditor: what
// is proved and who observed it, what is only attested, what is missing? Invariants: nothing but the file and the trust file
// is read; everything that is wrong is reported at once, except what only follows from something else that is wrong; a
// record verifies only if nothing is wrong; the lists draw on statements that verified by themselves alone.

import * as z from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { strictJsonIn } from "../../domain/strict-json.ts";
import type { Evaluated } from "../conditions/evaluate.ts";
import type { EvidenceItem, Vantage } from "../format/evidence-item.ts";
import { RECORD_BYTES_MAX, RECORD_EVIDENCE_MAX, RECORD_STAGES_MAX } from "../format/fields.ts";
import { PLANE_NAMES, PLANE_OF_STAGE, type StageName } from "../format/stages.ts";
import {
  type CompletionPredicate,
  CompletionStatement,
  type OutOfReachEntry,
  RecordFile,
  type StagePredicate,
  StageStatement,
  type Statement,
} from "../format/statements.ts";
import type { Trust, TrustedParty } from "../format/trust.ts";
import { addProblems, type Problem, problemsOf, REASONS, type ReasonCode } from "./reasons.ts";
import { bindingProblems, completionProblems, evidenceOf, keyProblems } from "./verify-completion.ts";
import { PARSE_ONCE, type Signature, verifyDsseEnvelope } from "./verify-dsse-envelope.ts";
import {
  type JudgedStage,
  judgeStage,
  placeOf,
  type Removal,
  readEvidence,
  sequenceProblems,
  strayProblems,
} from "./verify-stages.ts";

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
  const shared = keysOfTwoParties(trust.parties);
  add(shared.map((detail) => ({ reason: "key_of_two_parties", where: "trust", detail })));

  const signers: Signature[] = [];
  const open = <S extends Statement<Removal>>(envelope: unknown, schema: z.ZodType<S>, where: string) => {
    const opened = verifyDsseEnvelope(envelope, schema, trust.parties, ({ predicate }) => {
      const both = [predicate.remover, predicate.partner];
      return { must: both, may: both };
    });
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
    add(isAbsent ? found.filter(({ reason }) => !ABOUT_EVIDENCE.includes(reason)) : found);
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
  return reportOf({ ...about, problems, completion, judged, items: evidence.items, signers });
}

/** Whether the partner has stated every stage, and shown nothing closed on any plane. */
function isDoneByRemoverAlone(judged: readonly JudgedStage[]): boolean {
  const ofPartner = judged.filter(
    ({ predicate: { organisation, partner, stage } }) =>
      organisation === partner && PLANE_OF_STAGE[stage] !== null,
  );
  const isSilent = ({ isWhole, conditions }: JudgedStage) =>
    isWhole && conditions.every(({ verdict }) => verdict !== "met");
  return ofPartner.length >= PLANE_NAMES.length && ofPartner.every(isSilent);
}

const ABOUT_EVIDENCE: readonly ReasonCode[] = [
  "condition_unproved",
  "condition_refuted",
  "evidence_shows_nothing",
];

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

function keysOfTwoParties(parties: readonly TrustedParty[]): string[] {
  const all = parties.flatMap(({ keys }) => [...new Set(keys.map(({ keyId }) => keyId))]);
  return [...new Set(all.filter((keyId, index) => all.indexOf(keyId) !== index))];
}

function expectationProblems(removal: Removal, { parties, expect }: Trust): Problem[] {
  if (expect === undefined) return [];
  const { run = removal.run, remover, partner } = expect;
  return problemsOf("file", (report) => {
    for (const name of [remover, partner]) {
      if (!parties.some(({ organisation }) => organisation === name))
        report("party_untrusted", name, "trust");
    }
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

const PARTS = [
  "named owners of both organisations attest",
  "kind, trigger, change and rollback references",
  "reviewed revisions and static tests",
  "evidence for every plane",
  "purge, retention and backup expiry; replicated history is not retracted",
  "whether and how the partnership may resume",
] as const;

/** `incomplete`: all that is managed is closed, but not all is managed; `unilateral`: the partner has shown nothing closed. */
export type RecordOutcome = "verified" | "incomplete" | "unilateral" | "not_verified";

const NO_RUN_EXPECTED = {
  where: "trust",
  what: "it expects no run, so an earlier removal of the same two would verify as well; compare the run above, or give it to the trust file as expect.run",
};

interface Found {
  readonly digest: string;
  readonly problems: readonly Problem[];
  readonly completion?: CompletionStatement | undefined;
  readonly judged: readonly JudgedStage[];
  readonly items: ReadonlyMap<string, EvidenceItem>;
  readonly signers: readonly Signature[];
  readonly isRunExpected: boolean;
}

export type RecordReport = ReturnType<typeof reportOf>;

export function reportOf({ digest, problems, completion, judged, items, signers, isRunExpected }: Found) {
  const faulty = new Set(problems.map(({ where }) => where));
  const sound = judged.flatMap(({ predicate, conditions }) =>
    faulty.has(placeOf(predicate)) ? [] : [{ ...predicate, conditions }],
  );
  const unmanaged = sound.flatMap((stage) => ofVerdict(stage, "unmanaged"));
  const outcome = outcomeOf(problems, completion !== undefined, unmanaged.length > 0);
  const removal = completion?.predicate ?? judged[0]?.predicate;
  const partsLost = new Set<number | undefined>(problems.map(({ reason }) => REASONS[reason].part));
  return {
    outcome,
    verified: outcome === "verified",
    digest,
    removal: removal === undefined ? null : aboutOf(removal, completion?.predicate),
    signers: countSigners(signers),
    statements: judged.length + (completion === undefined ? 0 : 1),
    parts: PARTS.map((title, index) => {
      const part = index + 1;
      const complete = completion !== undefined && !partsLost.has(part);
      return { part, title, complete };
    }),
    proved: sound.flatMap((stage) => proofsOf(stage, items)),
    unmanaged,
    attested: [...sound.flatMap(attestedByStage), ...attestedAtTheEnd(completion?.predicate)],
    missing: [
      ...(isRunExpected ? [] : [NO_RUN_EXPECTED]),
      ...unmanaged.map((one) => ({
        where: placeOf(one),
        what: `${one.condition} is not shown: ${one.organisation} does not manage the part that enforces it`,
      })),
      ...sound.flatMap((stage) =>
        stage.conditions.filter(isAllWaived).map(({ condition }) => ({
          where: placeOf(stage),
          what: `${condition} is not shown: everything that it is about is waived`,
        })),
      ),
      ...notReached(completion?.predicate),
      ...missingBy(problems),
    ],
    problems: problems.map((problem) => {
      const { sentence, hint } = REASONS[problem.reason];
      return { ...problem, sentence, hint };
    }),
  };
}

function aboutOf({ run, kind, remover, partner }: Removal, completion: CompletionPredicate | undefined) {
  const { trigger = null, completed_at: completedAt = null } = completion ?? {};
  return { run, kind, trigger, remover, partner, completedAt };
}

function countSigners(signers: readonly Signature[]) {
  const counted = new Map<string, Signature & { statements: number }>();
  for (const { organisation, keyId } of signers) {
    const id = `${organisation} ${keyId}`;
    counted.set(id, { organisation, keyId, statements: (counted.get(id)?.statements ?? 0) + 1 });
  }
  return [...counted.values()];
}

type SoundStage = StagePredicate & Pick<JudgedStage, "conditions">;

function outcomeOf(problems: readonly Problem[], isCompleted: boolean, hasUnmanaged: boolean): RecordOutcome {
  const isUnilateral = problems.length === 1 && problems[0]?.reason === "unilateral";
  if (isCompleted && isUnilateral) return "unilateral";
  if (problems.length > 0 || !isCompleted) return "not_verified";
  return hasUnmanaged ? "incomplete" : "verified";
}

function ofVerdict({ organisation, stage, conditions }: SoundStage, wanted: Evaluated["verdict"]) {
  return conditions
    .filter(({ verdict }) => verdict === wanted)
    .map(({ condition }) => ({ organisation, stage, condition }));
}

function proofsOf({ organisation, stage, conditions }: SoundStage, items: Found["items"]) {
  return conditions
    .filter((one) => one.verdict === "met" && !isAllWaived(one))
    .map(({ condition, evidence, excused }) => {
      const seen: Partial<Record<Vantage, number>> = {};
      const waived = new Set(excused);
      for (const digest of evidence) {
        if (waived.has(digest)) continue;
        const item = items.get(digest);
        if (item !== undefined) seen[item.vantage] = (seen[item.vantage] ?? 0) + 1;
      }
      return { organisation, stage, condition, seen };
    });
}

/** Whether a condition holds only because everything that it is about is out of reach, and waived by name. */
function isAllWaived({ evidence, excused }: Evaluated): boolean {
  return excused.length > 0 && excused.length === evidence.length;
}

function said(what: string, organisation: string | null = null, stage: StageName | null = null) {
  return { organisation, stage, what };
}

function attestedByStage(stated: SoundStage) {
  const { organisation, stage } = stated;
  const without = ofVerdict(stated, "not_applicable").map(({ condition }) => `${condition} does not apply`);
  return [...without, ...stated.attested].map((what) => said(what, organisation, stage));
}

function attestedAtTheEnd(completion: CompletionPredicate | undefined) {
  if (completion === undefined) return [];
  const { attestations, static_tests, references, duties, residual, readmission } = completion;
  const { purge, retention, backup_expiry } = duties;
  const events = residual.rooms.reduce((sum, room) => sum + room.events, 0);
  return [
    ...attestations.map(({ organisation, owner, attested_at }) =>
      said(`${owner} attests completion at ${attested_at}`, organisation),
    ),
    ...static_tests.map(({ organisation, command, at }) => said(`${command} passed at ${at}`, organisation)),
    said(`change ${references.change}`),
    said(`rollback ${references.rollback}`),
    said(
      retention.state === "kept"
        ? `data is kept until ${retention.until ?? "nobody knows when"}`
        : "no duty to keep data is left",
    ),
    said(`backups have expired by ${backup_expiry.by}`),
    ...(purge.state === "waived" ? [said(`nothing is purged: ${purge.waiver ?? "no reason"}`)] : []),
    said(`${events} events in ${residual.rooms.length} rooms stay with the other organisation's server`),
    said(`device keys that stay: ${residual.device_keys ?? "not counted"}`),
    ...(residual.tokens_live_until === null ? [] : [said(`tokens live until ${residual.tokens_live_until}`)]),
    ...residual.third_servers.map(({ server, rooms }) => said(`${server} shares ${rooms} rooms with both`)),
    said(mayResume(readmission)),
  ];
}

function mayResume({ possible, owner, conditions }: CompletionPredicate["readmission"]): string {
  const decides = owner === null ? "" : `, which ${owner} decides`;
  const when = conditions.length === 0 ? "" : `, on condition of ${conditions.join(", ")}`;
  return possible ? `a re-admission is possible${decides}${when}` : `no re-admission is possible${decides}`;
}

function notReached(completion: CompletionPredicate | undefined) {
  return (completion?.out_of_reach ?? []).map((one) => ({ where: one.subject, what: waiverText(one) }));
}

export function waiverText({ reason, waived_by, waiver }: OutOfReachEntry): string {
  return `out of reach (${reason}); ${waived_by === null ? "waived by nobody" : `waived by ${waived_by}: ${waiver ?? "no reason"}`}`;
}

function missingBy(problems: readonly Problem[]) {
  return problems
    .filter(({ reason }) => REASONS[reason].isMissing)
    .map(({ reason, where, detail }) => ({
      where: detail === undefined ? where : `${where} (${detail})`,
      what: REASONS[reason].sentence,
    }));
}
