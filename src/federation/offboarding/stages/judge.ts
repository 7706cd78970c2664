// Whether a stage's exit conditions hold. Pure.
// Invariants: what nobody observed closed is not closed; one item that says open is enough to say no; what is out
// of reach is excused here and must be waived by name elsewhere, never forgotten.
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import { CONDITIONS_OF_STAGE } from "../../../records/format/stages.ts";
import { OUTSIDE_PROBES, wasNotTried } from "../../probes/finding.ts";
import { planeState } from "../../registry/partner.ts";
import type { JudgedCondition } from "../run/progress.ts";
import { STAGE_RULES } from "./exit-conditions.ts";
import { LEFT_ALONE, type Observation, RECONCILED, type Rule } from "./observation.ts";

export function judgeStage(observation: Observation): readonly JudgedCondition[] {
  const { stage, items } = observation;
  const isLeftAlone = items.some(({ probe }) => probe === LEFT_ALONE);
  const rules = isLeftAlone
    ? CONDITIONS_OF_STAGE[stage].map(
        (condition): Rule => ({ condition, probes: [], needs: [], hint: "", shownAbsentBy: LEFT_ALONE }),
      )
    : STAGE_RULES[stage](observation);
  const judged = rules.map((rule) => judgeRule(rule, observation));
  return [isLeftAlone ? undefined : judgeDeclared(observation), ...judged].filter((one) => one !== undefined);
}

/** Whether every condition holds, or does not apply. */
export function allHold(judged: readonly JudgedCondition[]): boolean {
  return judged.every(({ verdict }) => verdict === "met" || verdict === "not_applicable");
}

/** A plane is in force as declared, and it is declared closed; undefined where that needs no judgement. */
function judgeDeclared(observation: Observation): JudgedCondition | undefined {
  const { plane, partner, applied, drift, items, outOfReach } = observation;
  if (plane === null) return undefined;
  const judged = (
    verdict: JudgedCondition["verdict"],
    found: string,
    hint: string,
    evidence: string[] = [],
  ): JudgedCondition => ({ condition: "in_force", verdict, evidence, probe: RECONCILED, found, hint });
  if (partner === undefined) {
    return judged(
      "not_met",
      "the registry has no entry for the counterparty any more",
      "Put its file back, with every plane closed, until the run has ended.",
    );
  }
  if (planeState(partner, plane) === "open" || partner.planes[plane] === "open") {
    return judged("not_met", ...declaredOpen(plane));
  }
  const [changed] = drift;
  if (changed !== undefined) {
    return judged(
      "not_met",
      `the ${plane} plane was changed by hand: ${changed.subject} (${changed.kind})`,
      `Run drawbridge reconcile --once --plane ${plane}, and find out who changed it.`,
    );
  }
  const evidence = items.filter(({ probe, verdict }) => probe === RECONCILED && verdict === "closed");
  if (evidence.length > 0) return judged("met", "closed", "", digestsOf(evidence));
  // The subjects that the plane did not reach are named one by one.
  if (applied?.outcome === "incomplete" && outOfReach.length > 0) return undefined;
  const outcome =
    applied === null
      ? "not applied at this revision"
      : `${applied.outcome} (${applied.reason ?? "no reason"})`;
  return judged(
    "unknown",
    `the ${plane} plane is ${outcome}`,
    "See drawbridge federation status; then run drawbridge offboarding next again.",
  );
}

/** What was found, and the hint, where the registry declares a plane open that must be closed. */
export function declaredOpen(plane: string): readonly [found: string, hint: string] {
  return [
    `the registry declares the ${plane} plane open`,
    `Set planes.${plane}: closed in its file, render and commit; see git log for who opened it.`,
  ];
}

/** Undefined where the rule is optional and no item decides it. */
function judgeRule(rule: Rule, observation: Observation): JudgedCondition | undefined {
  const { condition, probes, needs, hint, shownAbsentBy, excused, objection, optional } = rule;
  const { items, outOfReach, fromOutside } = observation;
  const judged = (
    verdict: JudgedCondition["verdict"],
    probe: string,
    found: string,
    more: Partial<JudgedCondition> = {},
  ): JudgedCondition => ({ condition, verdict, evidence: [], probe, found, hint: "", ...more });
  if (shownAbsentBy !== undefined) {
    const showing = items.filter(({ probe, verdict }) => probe === shownAbsentBy && verdict !== "open");
    const found = showing[0]?.reason ?? "nothing there";
    return judged("not_applicable", shownAbsentBy, found, { evidence: digestsOf(showing) });
  }
  const beyond = new Set(outOfReach.map(({ subject }) => subject));
  const about = items.filter((item) => probes.includes(item.probe) && !wasNotTried(item));
  const reached = about.filter((item) => !beyond.has(item.subject ?? item.probe));
  const open = reached.find((item) => item.verdict === "open" && excused?.(item) !== true);
  if (open !== undefined) return judged("not_met", open.probe, foundIn(open), { hint });
  const unclear = rule.ignoresUnclear === true ? [] : reached.filter(({ verdict }) => verdict === "unknown");
  const closed = about.filter(({ verdict }) => verdict === "closed");
  const missing = needs.find((probe) => !closed.some((item) => item.probe === probe));
  if (optional === true && (unclear.length > 0 || missing !== undefined || closed.length === 0)) {
    return undefined;
  }
  const [first] = unclear;
  if (first !== undefined) return judged("unknown", first.probe, foundIn(first), { hint });
  if (missing !== undefined) {
    const notTried = items.find((item) => item.probe === missing && wasNotTried(item));
    return judged("unknown", missing, ...notObserved(missing, notTried, fromOutside, hint));
  }
  if (objection !== undefined) {
    return judged("not_met", needs[0] ?? "", objection.found, { hint: objection.hint });
  }
  const showing = rule.ignoresUnclear === true ? closed : about.filter(({ verdict }) => verdict !== "open");
  return judged("met", needs[0] ?? probes[0] ?? "", "closed", { evidence: digestsOf(showing) });
}

function digestsOf(items: readonly EvidenceItem[]): string[] {
  return items.map(({ digest }) => digest);
}

function foundIn({ probe, subject, verdict, layer, status, reason }: EvidenceItem): string {
  const answer = [layer, status, reason].filter((part) => part !== null).join(" ");
  return `${probe}${subject === null ? "" : ` on ${subject}`}: ${verdict} (${answer})`;
}

/** What to say of a probe that has shown nothing closed, and what would show it. */
function notObserved(
  probe: string,
  notTried: EvidenceItem | undefined,
  fromOutside: boolean,
  hint: string,
): readonly [found: string, more: { readonly hint: string }] {
  if (notTried !== undefined) {
    return [
      `${probe} was not tried: ${notTried.reason}`,
      { hint: "Add what is missing to the probe file, and run the step again with --probe-config." },
    ];
  }
  if (Object.hasOwn(OUTSIDE_PROBES, probe) && !fromOutside) {
    return [
      `nobody has tried ${probe} as the counterparty`,
      {
        hint: "Run the step again with --probe-config and a probe file (drawbridge federation probe --help).",
      },
    ];
  }
  return [`${probe} has shown nothing closed`, { hint }];
}
