// What a verified record says to an auditor: what is proved and who observed it, what is only attested, what is missing.
// Invariant: the lists draw on statements that verified by themselves alone, and say nothing about the whole, `verified` does.
import type { Evaluated } from "../conditions/evaluate.ts";
import type { EvidenceItem, Vantage } from "../format/evidence-item.ts";
import type { StageName } from "../format/removal-stages.ts";
import type { CompletionPredicate, OutOfReachEntry, StagePredicate } from "../format/statements.ts";
import { type Problem, REASONS } from "./reasons.ts";
import type { Signature } from "./verify-signatures.ts";
import { type JudgedStage, placeOf, type Removal } from "./verify-stages.ts";

const PARTS = [
  "named owners of both organisations attest",
  "kind, trigger, change and rollback references",
  "reviewed revisions and static tests",
  "evidence for every plane",
  "purge, retention and backup expiry; replicated history is not retracted",
  "whether and how the partnership may resume",
] as const;

/** `incomplete`: all that is managed is closed, but not all is managed; `unilateral`: the partner has shown nothing closed. */
type RecordOutcome = "verified" | "incomplete" | "unilateral" | "not_verified";

const NO_RUN_EXPECTED = {
  where: "trust",
  what: "it expects no run, so an earlier removal of the same two would verify as well; compare the run above, or give it to the trust file as expect.run",
};

interface Found {
  readonly digest: string;
  readonly problems: readonly Problem[];
  readonly completion?: CompletionPredicate | undefined;
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
  const removal = completion ?? judged[0]?.predicate;
  const partsLost = new Set<number | undefined>(problems.map(({ reason }) => REASONS[reason].part));
  const isComplete = (part: number) => completion !== undefined && !partsLost.has(part);
  return {
    outcome,
    verified: outcome === "verified",
    digest,
    removal: removal === undefined ? null : aboutOf(removal, completion),
    signers: countSigners(signers),
    statements: judged.length + (completion === undefined ? 0 : 1),
    parts: PARTS.map((title, index) => ({ part: index + 1, title, complete: isComplete(index + 1) })),
    proved: sound.flatMap((stage) => proofsOf(stage, items)),
    unmanaged,
    /** How many subjects were out of reach, and are waived by name. */
    waived: completion?.out_of_reach.length ?? 0,
    attested: [...sound.flatMap(attestedByStage), ...attestedAtTheEnd(completion)],
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
      ...sound.flatMap((own) =>
        own.out_of_reach.map((one) => ({ where: placeOf(own), what: `${one.subject}: ${waiverText(one)}` })),
      ),
      ...problems
        .filter(({ reason }) => REASONS[reason].isMissing)
        .map(({ reason, where, detail }) => ({
          where: detail === undefined ? where : `${where} (${detail})`,
          what: REASONS[reason].sentence,
        })),
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
      const observed: Partial<Record<Vantage, number>> = {};
      const waived = new Set(excused);
      for (const digest of evidence) {
        if (waived.has(digest)) continue;
        const item = items.get(digest);
        if (item !== undefined) observed[item.vantage] = (observed[item.vantage] ?? 0) + 1;
      }
      return { organisation, stage, condition, observed };
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
  const events = residual.rooms.reduce((sum, room) => sum + (room.events ?? 0), 0);
  return [
    ...attestations.map((by) => said(`${by.owner} attests completion at ${by.attested_at}`, by.organisation)),
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
    said(`events of the partner left at the remover: ${events}, in rooms: ${residual.rooms.length}`),
    ...residual.rooms.flatMap((one) =>
      one.events === null ? said(`events not counted in ${one.room}`) : [],
    ),
    said(`device keys that stay: ${residual.device_keys ?? "not counted"}`),
    ...(residual.tokens_live_until === null ? [] : [said(`tokens live until ${residual.tokens_live_until}`)]),
    ...residual.third_servers.map(({ server, rooms }) =>
      said(`rooms that ${server} shares with both: ${rooms}`),
    ),
    said(mayResume(readmission)),
  ];
}

function mayResume({ possible, owner, conditions }: CompletionPredicate["readmission"]): string {
  const decides = owner === null ? "" : `, which ${owner} decides`;
  const when = conditions.length === 0 ? "" : `, on condition of ${conditions.join(", ")}`;
  return possible ? `a re-admission is possible${decides}${when}` : `no re-admission is possible${decides}`;
}

export function waiverText({ reason, waived_by, waiver }: OutOfReachEntry): string {
  return `out of reach (${reason}); ${waived_by === null ? "waived by nobody" : `waived by ${waived_by}: ${waiver ?? "no reason"}`}`;
}
