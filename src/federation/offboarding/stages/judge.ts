// Do a stage's exit conditions hold? Pure (section 8.7 of the offboarding specification).
// Invariants: what nobody saw closed is not closed; one item that says open is enough to say no; what is out
// of reach is excused here and asked for by name elsewhere, never forgotten.
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import { CONDITIONS_OF_STAGE } from "../../../records/format/stages.ts";
import { OUTSIDE_PROBES, wasLeftOut } from "../../probes/finding.ts";
import { planeState } from "../../registry/partner.ts";
import type { Judged, Observation, Rule } from "./observation.ts";
import { LEFT_ALONE, RECONCILED } from "./observation.ts";
import { STAGE_RULES } from "./rules.ts";

export function judgeStage(observation: Observation): readonly Judged[] {
  const { stage, items } = observation;
  if (items.some(({ probe }) => probe === LEFT_ALONE)) {
    return CONDITIONS_OF_STAGE[stage].flatMap((condition) => {
      const rule = { condition, probes: [], needs: [], hint: "", shownAbsentBy: LEFT_ALONE };
      return judgeRule(rule, observation) ?? [];
    });
  }
  const declared = judgeDeclared(observation);
  const rules = STAGE_RULES[observation.stage](observation);
  return [...declared, ...rules.flatMap((rule) => judgeRule(rule, observation) ?? [])];
}

/** A plane is in force as declared, and it is declared closed. */
function judgeDeclared(observation: Observation): readonly Judged[] {
  const { plane, partner, applied, drift, items, outOfReach } = observation;
  if (plane === null) return [];
  const no = (found: string, hint: string, verdict: Judged["verdict"] = "not_met"): readonly Judged[] => [
    { condition: "in_force", verdict, evidence: [], probe: RECONCILED, found, hint },
  ];
  if (partner === undefined) {
    return no(
      "the registry has no entry for the counterparty any more",
      "Put its file back, with every plane closed, until the run has ended.",
    );
  }
  if (planeState(partner, plane) === "open" || partner.planes[plane] === "open") {
    return no(
      `the registry declares the ${plane} plane open`,
      `Set planes.${plane}: closed in its file, render and commit; see git log for who opened it.`,
    );
  }
  const [changed] = drift;
  if (changed !== undefined) {
    return no(
      `the ${plane} plane was changed by hand: ${changed.subject} (${changed.kind})`,
      `Run drawbridge reconcile --once --plane ${plane}, and find out who changed it.`,
    );
  }
  const evidence = items.filter(({ probe, verdict }) => probe === RECONCILED && verdict === "closed");
  if (evidence.length > 0) {
    const digests = evidence.map(({ digest }) => digest);
    return [
      {
        condition: "in_force",
        verdict: "met",
        evidence: digests,
        probe: RECONCILED,
        found: "closed",
        hint: "",
      },
    ];
  }
  // What it did not reach is named item by item.
  if (applied?.outcome === "incomplete" && outOfReach.length > 0) return [];
  const why =
    applied === null
      ? "not applied at this revision"
      : `${applied.outcome} (${applied.reason ?? "no reason"})`;
  return no(
    `the ${plane} plane is ${why}`,
    "See drawbridge federation status; then run drawbridge offboarding next again.",
    "unknown",
  );
}

function judgeRule(rule: Rule, { items, outOfReach, fromOutside }: Observation): Judged | undefined {
  const { condition, probes, needs, hint, shownAbsentBy, excused, objection, optional } = rule;
  const ignoresUnclear = rule.ignoresUnclear === true;
  const judged = (verdict: Judged["verdict"], probe: string, found: string, what = ""): Judged => ({
    ...{ condition, verdict, evidence: [], probe, found, hint: what },
  });
  if (shownAbsentBy !== undefined) {
    const showing = items.filter(({ probe, verdict }) => probe === shownAbsentBy && verdict !== "open");
    const evidence = showing.map(({ digest }) => digest);
    return { ...judged("not_applicable", shownAbsentBy, showing[0]?.reason ?? "nothing there"), evidence };
  }
  const beyond = new Set(outOfReach.map(({ subject }) => subject));
  const isBeyond = (item: EvidenceItem) => beyond.has(item.subject ?? item.probe);
  const speaking = items.filter((item) => probes.includes(item.probe) && !wasLeftOut(item));
  const against = speaking.find(
    (item) => item.verdict === "open" && !isBeyond(item) && excused?.(item) !== true,
  );
  if (against !== undefined) return judged("not_met", against.probe, foundIn(against), hint);
  const unclear = ignoresUnclear
    ? undefined
    : speaking.find((item) => item.verdict === "unknown" && !isBeyond(item));
  if (unclear !== undefined) {
    return optional === true ? undefined : judged("unknown", unclear.probe, foundIn(unclear), hint);
  }
  const closed = speaking.filter(({ verdict }) => verdict === "closed");
  const missing = needs.find((probe) => !closed.some((item) => item.probe === probe));
  if (missing !== undefined) {
    const left = items.find((item) => item.probe === missing && wasLeftOut(item));
    if (optional === true) return undefined;
    return judged(
      "unknown",
      missing,
      notSeen(missing, left, fromOutside),
      howToSee(missing, left, fromOutside) ?? hint,
    );
  }
  if (closed.length === 0 && optional === true) return undefined;
  if (objection !== undefined) {
    return judged(objection.verdict, needs[0] ?? "", objection.found, objection.hint);
  }
  const told = ignoresUnclear ? closed : speaking.filter(({ verdict }) => verdict !== "open");
  const evidence = told.map(({ digest }) => digest);
  return { ...judged("met", needs[0] ?? probes[0] ?? "", "closed"), evidence };
}

function foundIn({ probe, subject, verdict, layer, status, reason }: EvidenceItem): string {
  const answer = [layer, status, reason].filter((part) => part !== null).join(" ");
  return `${probe}${subject === null ? "" : ` on ${subject}`}: ${verdict} (${answer})`;
}

function notSeen(probe: string, left: EvidenceItem | undefined, fromOutside: boolean): string {
  if (left !== undefined) return `${probe} was not tried: ${left.reason}`;
  if (isOutside(probe) && !fromOutside) return `nobody has tried ${probe} as the counterparty`;
  return `${probe} has shown nothing closed`;
}

function howToSee(probe: string, left: EvidenceItem | undefined, fromOutside: boolean): string | undefined {
  if (left !== undefined)
    return "Add what is missing to the probe file, and run the step again with --probe-config.";
  if (isOutside(probe) && !fromOutside)
    return "Run the step again with --probe-config and a probe file (drawbridge federation probe --help).";
  return undefined;
}

function isOutside(probe: string): boolean {
  return Object.hasOwn(OUTSIDE_PROBES, probe);
}

/** Whether every condition holds, or does not apply. */
export function allHold(judged: readonly Judged[]): boolean {
  return judged.every(({ verdict }) => verdict === "met" || verdict === "not_applicable");
}
