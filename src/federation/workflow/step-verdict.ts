// The verdict of a step, of any procedure: its conditions, evaluated, with what was found and what to do. Pure.
// Invariant: nothing holds here that an auditor would refuse; a finding besides the table only ever takes a verdict away.
import * as z from "zod";
import { Sha256Digest } from "../../domain/digest.ts";
import type { Evaluated, Lack, Verdict } from "../../records/conditions/condition.ts";
import { isSettled, wasNotTried } from "../../records/conditions/evaluate.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { Word } from "../../records/format/fields.ts";
import { OUTSIDE_PROBES } from "../probes/read-answers.ts";
import { HINTS } from "./hints.ts";

export const JudgedCondition = z.strictObject({
  condition: Word,
  verdict: z.enum(["met", "not_met", "unknown", "not_applicable", "unmanaged"]),
  evidence: z.array(Sha256Digest),
  /** The last probe that was tried, or the one that is missing. */
  probe: z.string(),
  found: z.string(),
  hint: z.string(),
});
export type JudgedCondition = z.output<typeof JudgedCondition>;

/** A condition that does not hold whatever the evidence says. */
export type Objection = Omit<JudgedCondition, "verdict" | "evidence">;

/** What was observed, as far as it explains why a condition does not hold. */
export interface Seen {
  readonly items: readonly EvidenceItem[];
  readonly fromOutside: boolean;
}

/** Takes a verdict away from the conditions that something speaks against. */
export function objectTo(
  conditions: readonly JudgedCondition[],
  objections: readonly Objection[],
): readonly JudgedCondition[] {
  return conditions.map((one) => {
    const objection = objections.find(({ condition }) => condition === one.condition);
    return objection === undefined || one.verdict === "unmanaged" ? one : notMet(objection);
  });
}

/** @param more what else there is to say of it, such as `unknown` in the place of `not_met` */
export function notMet(objection: Objection, more: Partial<JudgedCondition> = {}): JudgedCondition {
  return { ...objection, verdict: "not_met", evidence: [], ...more };
}

/** The verdict of a whole step: a plane that nobody manages, or with nothing for the partner on it, is not met. */
export function verdictOf(conditions: readonly Pick<JudgedCondition, "condition" | "verdict">[]): Verdict {
  const has = (verdict: Verdict) => conditions.some((one) => one.verdict === verdict);
  const besides = conditions.filter(({ condition }) => condition !== "in_force");
  if (
    conditions.every(isSettled) &&
    besides.length > 0 &&
    besides.every((one) => one.verdict === "not_applicable")
  )
    return "not_applicable";
  for (const verdict of ["not_met", "unknown", "met", "not_applicable"] as const)
    if (has(verdict)) return verdict;
  return "unmanaged";
}

export function judged({ condition, verdict, evidence, lacks }: Evaluated, seen: Seen): JudgedCondition {
  const [lack] = lacks;
  if (lack === undefined) {
    const item = seen.items.find(({ digest }) => evidence.includes(digest));
    const found = verdict === "met" ? (item?.reason ?? item?.verdict ?? verdict) : verdict;
    return { condition, verdict, evidence: [...evidence], probe: item?.probe ?? "", found, hint: "" };
  }
  return {
    condition,
    verdict,
    evidence: [],
    probe: lack.probe,
    ...foundOf(lack, seen, HINTS[condition] ?? ""),
  };
}

function foundOf({ probe, vantage, subject, item }: Lack, { items, fromOutside }: Seen, hint: string) {
  if (item !== undefined) return { found: foundIn(item), hint };
  const notTried = items.find((one) => one.probe === probe && one.vantage === vantage && wasNotTried(one));
  if (notTried !== undefined) {
    return {
      found: `${probe} was not tried: ${notTried.reason}`,
      hint: "Add what is missing to the probe file, and run the step again with --probe-config.",
    };
  }
  if (vantage === "partner" && Object.hasOwn(OUTSIDE_PROBES, probe) && !fromOutside) {
    return {
      found: `nobody has tried ${probe} as the counterparty`,
      hint: "Run the step again with --probe-config and a probe file (drawbridge federation probe --help).",
    };
  }
  // Where a plane could not be asked at all, one item says so in the place of all the others.
  const failed = items.find((one) => one.probe === "plane");
  if (failed !== undefined) return { found: foundIn(failed), hint };
  return { found: `${probe}${on(subject)} has shown nothing`, hint };
}

export function foundIn({ probe, subject, verdict, layer, status, reason }: EvidenceItem): string {
  const answer = [layer, status, reason].filter((part) => part !== null).join(" ");
  return `${probe}${on(subject)}: ${verdict} (${answer})`;
}

function on(subject: string | null): string {
  return subject === null ? "" : ` on ${subject}`;
}
