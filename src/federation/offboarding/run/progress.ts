// What an organisation remembers of one of its own stages. Invariants: it is written before anything is
// changed; a proof is replaced as long as nothing is stated from it, and never afterwards.
import { z } from "zod";
import { EvidenceItem, isIntact } from "../../../records/format/evidence-item.ts";
import { Digest, GitRevision, Identifier, Instant, Word } from "../../../records/format/fields.ts";
import { STAGE_NAMES, type StageName } from "../../../records/format/stages.ts";
import { counterpartyOf, type Run, runFile } from "./run.ts";

const JudgedCondition = z.strictObject({
  condition: Word,
  verdict: z.enum(["met", "not_met", "unknown", "not_applicable"]),
  evidence: z.array(Digest),
  probe: z.string(),
  found: z.string(),
  hint: z.string(),
});

const Proof = z.strictObject({
  at: Instant,
  /** What was in force as it was looked at; null where there is no plane. */
  revision: GitRevision.nullable(),
  /** Digest of the plane's rendered files at that revision. */
  render: Digest.nullable(),
  conditions: z.array(JudgedCondition),
  outOfReach: z.array(z.strictObject({ subject: Identifier, reason: Word, hint: z.string() })),
  items: z.array(EvidenceItem),
  attested: z.array(Word),
});
export type Proof = z.output<typeof Proof>;

const StageRecord = z.strictObject({
  version: z.literal(1),
  stage: z.enum(STAGE_NAMES),
  openedAt: Instant,
  /** Why it was opened before both had signed the stage before it; null where both had. */
  ahead: Word.nullable(),
  /** When the homeserver that ran as the stage was opened was started. */
  startedBefore: z.string().nullable(),
  /** The commit that closes the plane; null before it is known to be there, and where there is no plane. */
  commit: GitRevision.nullable(),
  proof: Proof.nullable(),
});
export type StageRecord = z.output<typeof StageRecord>;

function fileOf(run: Run, stage: StageName): string {
  return runFile(run.run, `stages/${stage}.json`);
}

export function readStage(run: Run, stage: StageName): StageRecord | undefined {
  return run.state.read(StageRecord, fileOf(run, stage));
}

export function writeStage(run: Run, record: StageRecord): StageRecord {
  // What could not be read again would end the run for good.
  run.state.write(fileOf(run, record.stage), StageRecord.parse(record));
  return record;
}

// Evidence that a run has gathered for a stage of its own, before it is stated and signed.
// Invariants: an item stands once; it is about the counterparty and intact; none is ever replaced.

const DUTIES_FILE = "duties.json";
const DutiesFile = z.strictObject({ version: z.literal(1), items: z.array(EvidenceItem) });

/**
 * Adds what was seen of the data duties (stage 6), such as a purge.
 * @throws RangeError for an item that is not about the counterparty, or not intact
 */
export function addEvidence(run: Run, items: readonly EvidenceItem[]): void {
  const other = counterpartyOf(run);
  if (items.some((item) => item.partner !== other || !isIntact(item))) {
    throw new RangeError("this evidence is not about the counterparty of the run, or not intact");
  }
  const all = new Map([...dutiesEvidence(run), ...items].map((item) => [item.digest, item]));
  run.state.write(runFile(run.run, DUTIES_FILE), { version: 1, items: [...all.values()] });
}

/** What was added for the data duties. */
export function dutiesEvidence(run: Run): readonly EvidenceItem[] {
  return run.state.read(DutiesFile, runFile(run.run, DUTIES_FILE))?.items ?? [];
}

// What could not be reached and is waived by somebody who answers for it. Invariant: a waiver names its
// subject exactly and has a reason; it counts only once it stands in a signed statement.

const WAIVERS_FILE = "waivers.json";

const Waiver = z.strictObject({ subject: Identifier, by: Identifier, reason: Word, at: Instant });
export type Waiver = z.output<typeof Waiver>;
const WaiversFile = z.strictObject({ version: z.literal(1), waivers: z.array(Waiver) });

export function readWaivers(run: Run): ReadonlyMap<string, Waiver> {
  const waivers = run.state.read(WaiversFile, runFile(run.run, WAIVERS_FILE))?.waivers ?? [];
  return new Map(waivers.map((waiver) => [waiver.subject, waiver]));
}

export function keepWaiver(run: Run, waiver: Waiver): void {
  const waivers = new Map([...readWaivers(run), [waiver.subject, waiver]]);
  run.state.write(runFile(run.run, WAIVERS_FILE), { version: 1, waivers: [...waivers.values()] });
}
