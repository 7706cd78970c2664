// What the data duties of a removal are shown by: which items of evidence show a purge, and who answers for it.
// Invariant: an item shows a purge only by what was really deleted; counts, what is kept by contract and what is
// only attested go with it, and never stand for it.
import type { EvidenceItem } from "./evidence-item.ts";

/** The exit condition of the data duties that a purge meets. */
export const DELETION_RECORDED = "deletion_recorded";
/** Prefix of the word by which an organisation says, in its data duties, who attests for it. */
export const OWNER_WORD = "owner:";
/** Why nothing was deleted. */
export const KEPT_BY_CONTRACT = "kept_by_contract";

const DELETIONS: ReadonlySet<string> = new Set(["purge_media", "purge_room", "purge_history"]);
const ACCOUNTS: ReadonlySet<string> = new Set(["rows_before", "rows_after", "rows_left", "history_kept"]);

/** Whether something was deleted, as somebody has seen. */
export function showsPurge({ probe, verdict, vantage, reason }: EvidenceItem): boolean {
  return DELETIONS.has(probe) && verdict === "closed" && vantage !== "nobody" && reason !== KEPT_BY_CONTRACT;
}

/** Whether an item belongs to a purge: what was deleted, what was kept, and the counts before and after. */
export function isOfPurge({ probe }: EvidenceItem): boolean {
  return DELETIONS.has(probe) || ACCOUNTS.has(probe);
}

/** Who attests for an organisation, as its own statement of the data duties says; undefined when it does not. */
export function ownerAttested(attested: readonly string[]): string | undefined {
  return attested.find((word) => word.startsWith(OWNER_WORD))?.slice(OWNER_WORD.length);
}
