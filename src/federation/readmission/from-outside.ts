// What was tried as the partner, held against the registry, as a condition of a re-admission's step. Pure.
import { wasNotTried } from "../../records/conditions/evaluate.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { PlaneName } from "../plane-order.ts";
import type { Judged } from "../probes/expected-results.ts";
import { foundIn, type JudgedCondition, notMet } from "../workflow/step-verdict.ts";

export function fromOutside(tried: readonly Judged[], plane: PlaneName): readonly JudgedCondition[] {
  const found = tried.filter(({ item }) => item.plane === plane && !wasNotTried(item));
  if (found.length === 0) return [];
  const counted = found.filter(({ outcome, item }) => outcome === "as_wanted" || !isUpToPartner(item));
  const wrong = counted.find(({ outcome }) => outcome === "otherwise");
  const unclear = wrong ?? counted.find(({ outcome }) => outcome === "unclear");
  const hint = "It was tried as the partner: compare with what the partner's operator sees.";
  if (unclear !== undefined) {
    const { item } = unclear;
    const about = { condition: "from_outside", probe: item.probe, found: foundIn(item), hint };
    return [notMet(about, wrong === undefined ? { verdict: "unknown" } : {})];
  }
  const left = found.length - counted.length;
  const rest = left === 0 ? [] : [`${left} up to the partner's own planes`];
  return [
    {
      ...{ condition: "from_outside", verdict: counted.length === 0 ? "not_applicable" : "met", hint: "" },
      evidence: counted.map(({ item }) => item.digest),
      probe: found[0]?.item.probe ?? "",
      found: [...(counted.length === 0 ? [] : [`${counted.length} as wanted`]), ...rest].join(", "),
    },
  ];
}

/**
 * What we sent has not arrived, and nothing of ours refused it: the partner opens its planes in the same order,
 * and its border comes after its rooms. Were both sides to wait for that, neither would go on.
 */
function isUpToPartner({ probe, layer }: EvidenceItem): boolean {
  return probe.startsWith("message_to_partner") && layer === "not_seen";
}
