// What an organisation remembers of a run's stages before it states them. Invariants: a stage's file is written before
// anything is changed; a proof may be replaced until a statement is made from it; no item of evidence is ever replaced.

import { z } from "zod";
import { Sha256Digest } from "../../../domain/digest.ts";
import { EvidenceItem, isIntact } from "../../../records/format/evidence-item.ts";
import { GitRevision, Identifier, Instant, Scope, Word } from "../../../records/format/fields.ts";
import { STAGE_NAMES, type StageName } from "../../../records/format/stages.ts";
import { JudgedCondition } from "../../workflow/step-verdict.ts";
import { counterpartyIn, type Run, runFile } from "./run-file.ts";

const StageProof = z.strictObject({
  at: Instant,
  revision: GitRevision.nullable(),
  render: Sha256Digest.nullable(),
  conditions: z.array(JudgedCondition),
  out_of_reach: z.array(z.strictObject({ subject: Identifier, reason: Word, hint: z.string() })),
  items: z.array(EvidenceItem),
  attested: z.array(Word),
});
export type StageProof = z.output<typeof StageProof>;

const StageProgress = z.strictObject({
  version: z.literal(1),
  stage: z.enum(STAGE_NAMES),
  opened_at: Instant,
  /** Why it was opened before both had signed the stage before it; null where both had. */
  countersignature_skipped: Word.nullable(),
  scope: Scope,
  /** The commit that closes the plane; null before it is known to be there, and where there is no plane. */
  commit: GitRevision.nullable(),
  proof: StageProof.nullable(),
});
export type StageProgress = z.output<typeof StageProgress>;

export function readStage({ run, state }: Run, stage: StageName): StageProgress | undefined {
  return state.read(StageProgress, runFile(run, `stages/${stage}.json`));
}

export function writeStage({ run, state }: Run, progress: StageProgress): StageProgress {
  // A file that cannot be read again would end the run for good.
  state.write(runFile(run, `stages/${progress.stage}.json`), StageProgress.parse(progress));
  return progress;
}

const DUTIES_FILE = "duties.json";
const DutiesFile = z.strictObject({ version: z.literal(1), items: z.array(EvidenceItem) });

/** Adds evidence of the data duties, an item once. @throws RangeError for one of another partner, or not intact */
export function addDutiesEvidence(run: Run, items: readonly EvidenceItem[]): void {
  const other = counterpartyIn(run);
  if (items.some((item) => item.partner !== other || !isIntact(item))) {
    throw new RangeError("this evidence is not about the counterparty of the run, or not intact");
  }
  const all = new Map([...readDutiesEvidence(run), ...items].map((item) => [item.digest, item]));
  run.state.write(runFile(run.run, DUTIES_FILE), { version: 1, items: [...all.values()] });
}

export function readDutiesEvidence(run: Run): readonly EvidenceItem[] {
  return run.state.read(DutiesFile, runFile(run.run, DUTIES_FILE))?.items ?? [];
}

const WAIVERS_FILE = "waivers.json";
/** Names its subject exactly, and counts only once it stands in a signed statement. */
const Waiver = z.strictObject({ subject: Identifier, by: Identifier, reason: Word, at: Instant });
export type Waiver = z.output<typeof Waiver>;
const WaiversFile = z.strictObject({ version: z.literal(1), waivers: z.array(Waiver) });

export function readWaivers(run: Run): ReadonlyMap<string, Waiver> {
  const waivers = run.state.read(WaiversFile, runFile(run.run, WAIVERS_FILE))?.waivers ?? [];
  return new Map(waivers.map((waiver) => [waiver.subject, waiver]));
}

export function writeWaiver(run: Run, waiver: Waiver): void {
  const waivers = new Map([...readWaivers(run), [waiver.subject, waiver]]);
  run.state.write(runFile(run.run, WAIVERS_FILE), { version: 1, waivers: [...waivers.values()] });
}

const CONTAINMENT_FILE = "containment.json";
const Containment = z.strictObject({ version: z.literal(1), at: Instant });

/** Of an emergency: when the first four planes were closed at once; null before, and for other kinds. */
export function containedAt(run: Run): string | null {
  return run.state.read(Containment, runFile(run.run, CONTAINMENT_FILE))?.at ?? null;
}

export function writeContainedAt(run: Run, at: string): void {
  run.state.write(runFile(run.run, CONTAINMENT_FILE), { version: 1, at });
}
