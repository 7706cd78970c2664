// Evidence that a run has gathered for a stage of its own, before it is stated and signed.
// Invariants: an item stands once; it is about the counterparty and intact; none is ever replaced.
import { z } from "zod";
import { EvidenceItem, isIntact } from "../../../records/format/evidence-item.ts";
import { counterpartyOf, type Run, runFile } from "./run.ts";

const FILE = "duties.json";
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
  run.state.write(runFile(run.run, FILE), { version: 1, items: [...all.values()] });
}

/** What was added for the data duties. */
export function dutiesEvidence(run: Run): readonly EvidenceItem[] {
  return run.state.read(DutiesFile, runFile(run.run, FILE))?.items ?? [];
}
