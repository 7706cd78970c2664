// What the registry would have each probe find, and whether it was found.
// Invariants: a probe whose way leads through a closed plane is to be refused, and where all are open it is to
// pass; what was not tried proves nothing, so a closed plane needs an item that shows it closed; an open plane
// lets the partner's people into a room and puts nobody there, so that nobody is in it contradicts nothing.

import { wasNotTried } from "../../records/conditions/evaluate.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { PublicationFile } from "../../rendered-files/gateway-files.ts";
import { parseYaml } from "../../runtime/load-yaml.ts";
import type { PlaneName } from "../plane-order.ts";
import { CARD_PUBLICATION } from "../planes/card/render.ts";
import type { DesiredState } from "../reconcile/desired-state.ts";
import { type PartnerEntry, planeState } from "../registry/partner.ts";
import { OUTSIDE_PROBES } from "./finding.ts";

export type Wanted = "open" | "closed";

export interface Judged {
  readonly item: EvidenceItem;
  readonly wanted: Wanted;
  /**
   * `as_wanted`; `otherwise`: the opposite was found; `unclear`: nothing can be said; `nobody_there`: open, and
   * nothing passes because one of the two has no member in the room; `left_out`: not tried.
   */
  readonly outcome: "as_wanted" | "otherwise" | "unclear" | "nobody_there" | "left_out";
}

export interface Judgement {
  readonly items: readonly Judged[];
  /** Closed planes of those asked about that no item shows closed. */
  readonly unproven: readonly PlaneName[];
  /** Whether everything that was tried is as wanted, and every closed plane is shown closed. */
  readonly holds: boolean;
}

/** Agents whose card is public by intent: a card cannot be withdrawn from one partner alone. */
function publishedAgents(desired: DesiredState): ReadonlySet<string> {
  const text = desired.planes.card.files.get(CARD_PUBLICATION);
  if (text === undefined) return new Set();
  return new Set(Object.keys(parseYaml(PublicationFile, text, `rendered/${CARD_PUBLICATION}`).cards));
}

function wantedOf(item: EvidenceItem, { partner }: PartnerEntry, published: ReadonlySet<string>): Wanted {
  if (item.probe === "card_fetch") return published.has(item.subject ?? "") ? "open" : "closed";
  if (item.plane === "gateway") {
    const { gateway } = partner;
    if (gateway === undefined) return "closed";
    if (item.probe === "invoke" && !gateway.invokes.includes(item.subject ?? "")) return "closed";
  }
  const known: Readonly<Record<string, readonly PlaneName[]>> = OUTSIDE_PROBES;
  const way = (Object.hasOwn(known, item.probe) ? known[item.probe] : undefined) ?? [item.plane];
  return way.some((plane) => planeState(partner, plane) === "closed") ? "closed" : "open";
}

function outcomeOf(item: EvidenceItem, wanted: Wanted): Judged["outcome"] {
  if (wasNotTried(item)) return "left_out";
  if (item.verdict === "unknown") return "unclear";
  if (item.verdict === wanted) return "as_wanted";
  return isForWantOfMembers(item) ? "nobody_there" : "otherwise";
}

/**
 * No room is shared; or the partner's own server may have given a room up, and let nobody of its own in any more: so
 * after a removal.
 */
function isForWantOfMembers({ probe, layer, verdict, reason }: EvidenceItem): boolean {
  const isGivenUp = reason === "room_blocked" && probe.startsWith("remote_join");
  const isOfMembers = probe === "room_members" || probe === "rooms_shared";
  return verdict === "closed" && (isOfMembers || layer === "room_membership" || isGivenUp);
}

/** Holds what was found against the registry. */
export function judge(
  found: readonly EvidenceItem[],
  desired: DesiredState,
  partner: PartnerEntry,
  planes: readonly PlaneName[],
): Judgement {
  const published = publishedAgents(desired);
  const items = found.map((item) => {
    const wanted = wantedOf(item, partner, published);
    return { item, wanted, outcome: outcomeOf(item, wanted) };
  });
  const shownClosed = (plane: PlaneName) =>
    found.some((item) => item.plane === plane && item.verdict === "closed");
  const unproven = planes.filter(
    (plane) => planeState(partner.partner, plane) === "closed" && !shownClosed(plane),
  );
  const isGood = ({ outcome }: Judged) => outcome !== "otherwise" && outcome !== "unclear";
  return { items, unproven, holds: unproven.length === 0 && items.every(isGood) };
}
