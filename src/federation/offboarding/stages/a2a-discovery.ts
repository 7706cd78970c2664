// Stage 2 closes plane 4: the public card is gone, and our bridge trusts the counterparty's no more.
// Invariant: a card is public or not for everybody. One that others lawfully consume stays; then what must
// hold is that the counterparty's use of it is refused.
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import type { Observation, Rule } from "./observation.ts";
import { CARD_USE, NO_PINS, NOTHING_THERE } from "./stated-probes.ts";

const FOR_OTHERS: ReadonlySet<string | null> = new Set(["published_always", "consumed_by_others"]);

/** Agents of ours whose card lawfully stays public, as the operator's own look says. */
export function publicForOthers(items: readonly EvidenceItem[]): ReadonlySet<string> {
  const staying = items.filter(
    ({ probe, vantage, verdict, reason }) =>
      probe === "card_fetch" && vantage === "operator" && verdict === "open" && FOR_OTHERS.has(reason),
  );
  return new Set(staying.flatMap(({ subject }) => subject ?? []));
}

export function discoveryRules({ partner, runs, items }: Observation): readonly Rule[] {
  const invokes = partner?.gateway?.invokes ?? [];
  const hasCards = runs.gateway && invokes.length > 0;
  const hasPins = runs.bridge && Object.keys(partner?.card.consumes ?? {}).length > 0;
  const staying = publicForOthers(items);
  const allStay = hasCards && invokes.every((agent) => staying.has(agent));
  return [
    {
      condition: "card_gone",
      probes: ["card_fetch"],
      needs: ["card_fetch"],
      hint: "The gateway still publishes it: drawbridge reconcile --once --plane card.",
      excused: ({ subject }) => staying.has(subject ?? ""),
      ...(!hasCards && { shownAbsentBy: NOTHING_THERE }),
      ...(allStay && { shownAbsentBy: CARD_USE }),
    },
    ...(staying.size === 0
      ? []
      : [
          {
            condition: "use_refused",
            probes: [CARD_USE],
            needs: [CARD_USE],
            hint: "Sign stage 1 first: the card stays public, so its use has to be seen refused.",
          },
        ]),
    {
      condition: "agent_card_untrusted",
      probes: ["card_trust"],
      needs: ["card_trust"],
      hint: "See that the bridge runs and follows agents.yaml; its audit must say agent_card_untrusted.",
      ...(!hasPins && { shownAbsentBy: NO_PINS }),
    },
  ];
}
