// Whether a stage's conditions hold, for its operator: the evaluation that the record will be verified by, with what was
// found and what to do. Pure.
// Invariant: nothing holds here that an auditor would refuse; an objection only ever takes a verdict away.
import type { Evaluated, Lack } from "../../../records/conditions/condition.ts";
import { isSettled } from "../../../records/conditions/evaluate.ts";
import { evaluateStage } from "../../../records/conditions/stage.ts";
import { OUTSIDE_PROBES, wasNotTried } from "../../probes/finding.ts";
import type { JudgedCondition } from "../run/progress.ts";
import { HINTS } from "./hints.ts";
import type { Observation } from "./observation.ts";

export function judgeStage(observation: Observation): readonly JudgedCondition[] {
  const { work, items, objections } = observation;
  return evaluateStage(work, items).map((evaluated): JudgedCondition => {
    const objection = objections.find(({ condition }) => condition === evaluated.condition);
    if (objection === undefined) return judged(evaluated, observation);
    return { ...objection, verdict: "not_met", evidence: [] };
  });
}

/** Whether every condition holds, does not apply, or is about a part that nobody manages. */
export function allHold(conditions: readonly Pick<JudgedCondition, "verdict">[]): boolean {
  return conditions.every(isSettled);
}

function judged(
  { condition, verdict, evidence, lacks }: Evaluated,
  observation: Observation,
): JudgedCondition {
  const [lack] = lacks;
  const { items } = observation;
  if (lack === undefined) {
    const probe = items.find(({ digest }) => evidence.includes(digest))?.probe ?? "";
    const found = verdict === "met" ? "closed" : verdict;
    return { condition, verdict, evidence: [...evidence], probe, found, hint: "" };
  }
  const { found, hint } = foundOf(lack, observation, HINTS[condition] ?? "");
  return { condition, verdict, evidence: [], probe: lack.probe, found, hint };
}

function foundOf(
  { probe, vantage, subject, item }: Lack,
  { items, fromOutside }: Observation,
  hint: string,
): { readonly found: string; readonly hint: string } {
  const on = subject === null ? "" : ` on ${subject}`;
  if (item !== undefined) {
    const answer = [item.layer, item.status, item.reason].filter((part) => part !== null).join(" ");
    return { found: `${item.probe}${on}: ${item.verdict} (${answer})`, hint };
  }
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
  return { found: `${probe}${on} has shown nothing closed`, hint };
}
