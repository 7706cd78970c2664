// What an organisation remembers of one of its own stages. Invariants: it is written before anything is
// changed; a proof is replaced as long as nothing is stated from it, and never afterwards.
import { z } from "zod";
import { EvidenceItem } from "../../../records/format/evidence-item.ts";
import { Digest, GitRevision, Identifier, Instant, Word } from "../../../records/format/fields.ts";
import { STAGE_NAMES, type StageName } from "../../../records/format/stages.ts";
import { type Run, runFile } from "./run.ts";

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
