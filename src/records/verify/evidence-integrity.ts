// The items of evidence that a file holds: which are whole, and which are not what they should be.
import { EvidenceItem, isIntact } from "../format/evidence-item.ts";
import { type Problem, printable } from "./reasons.ts";
import { fieldOf, PARSE_ONCE } from "./verify-dsse-envelope.ts";

/** Reads a list of which nothing is presumed: whole items by digest, and the digests of those that are not whole. */
export function readEvidence(values: readonly unknown[]) {
  const items = new Map<string, EvidenceItem>();
  const unusable = new Set<string>();
  const problems: Problem[] = [];
  const digests: string[] = [];
  for (const [index, value] of values.entries()) {
    const claimed = (value as { readonly digest?: unknown } | null)?.digest;
    const digest = typeof claimed === "string" ? claimed : "";
    digests.push(digest);
    const parsed = EvidenceItem.safeParse(value, PARSE_ONCE);
    if (parsed.success && isIntact(parsed.data)) {
      items.set(digest, parsed.data);
      continue;
    }
    unusable.add(digest);
    problems.push({
      reason: parsed.success ? "evidence_altered" : "evidence_malformed",
      where: `evidence[${index}]`,
      detail: parsed.success ? printable(digest) : fieldOf(parsed.error),
    });
  }
  if (!isAscending(digests)) problems.push({ reason: "evidence_out_of_order", where: "evidence" });
  return { items, unusable, problems };
}

/** Whether each value is greater than the one before, so that none stands twice. */
export function isAscending<T extends string | number>(values: readonly T[]): boolean {
  return values.every((value, index) => {
    const before = values[index - 1];
    return before === undefined || before < value;
  });
}
