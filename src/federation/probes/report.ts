// What probes found, held against the registry, and as a table for people. Invariants: a probe whose way leads through a
// closed plane is to be refused; a closed plane needs an item that shows it closed; an open plane puts nobody into a room, so
// that nobody is there contradicts nothing.
import { conditionsOf } from "../../records/conditions/condition-table.ts";
import { wasNotTried } from "../../records/conditions/evaluate.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { Part } from "../../records/format/fields.ts";
import { CLOSING_ORDER, type PlaneName, planeLabel } from "../plane-order.ts";
import { publishedAgents } from "../planes/card/render.ts";
import type { DesiredState } from "../reconcile/desired-state.ts";
import { type PartnerEntry, planeState } from "../registry/partner.ts";
import { OUTSIDE_PROBES } from "./read-answers.ts";

type Wanted = "open" | "closed";

export interface Judged {
  readonly item: EvidenceItem;
  readonly wanted: Wanted;
  /** `otherwise`: the opposite was found; `nobody_there`: open, and nothing passes for want of a member in the room. */
  readonly outcome: "as_wanted" | "otherwise" | "unclear" | "nobody_there" | "left_out";
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

/** No room is shared, or the partner's own server has given it up and lets nobody in any more, as after a removal. */
function isForWantOfMembers({ probe, layer, verdict, reason }: EvidenceItem): boolean {
  const isGivenUp = reason === "room_blocked" && probe.startsWith("remote_join");
  const isOfMembers = probe === "room_members" || probe === "rooms_shared";
  return verdict === "closed" && (isOfMembers || layer === "room_membership" || isGivenUp);
}

export type Judgement = ReturnType<typeof judge>;

/** `unproven`: closed planes of those asked about that no item shows closed; `unmanaged`: parts of the others that none is about. */
export function judge(
  found: readonly EvidenceItem[],
  desired: DesiredState,
  partner: PartnerEntry,
  planes: readonly PlaneName[],
  parts?: readonly Part[],
) {
  // Cards that are public by intent: a card cannot be withdrawn from one partner alone.
  const published = new Set(publishedAgents(desired.registry).map(([agent]) => agent));
  const items = found.map((item): Judged => {
    const wanted = wantedOf(item, partner, published);
    return { item, wanted, outcome: outcomeOf(item, wanted) };
  });
  const shown = new Set(found.flatMap(({ plane, verdict }) => (verdict === "closed" ? plane : [])));
  const closed = planes.filter((plane) => planeState(partner.partner, plane) === "closed");
  const unproven = closed.filter((plane) => !shown.has(plane));
  const unmanaged = closed
    .filter((plane) => shown.has(plane))
    .flatMap((plane) => {
      const needed = new Set(conditionsOf(plane, "closed").flatMap((condition) => condition.parts));
      return [...needed].filter((part) => parts?.includes(part) === false).map((part) => ({ plane, part }));
    });
  const isGood = ({ outcome }: Judged) => outcome !== "otherwise" && outcome !== "unclear";
  return { items, unproven, unmanaged, holds: unproven.length === 0 && items.every(isGood) };
}

const MARKS: Readonly<Record<Judged["outcome"], string>> = {
  otherwise: "WRONG",
  unclear: "?",
  as_wanted: "ok",
  nobody_there: "-",
  left_out: "-",
};
const URGENCY = Object.keys(MARKS);

export const PROBE_HEADER = ["", "plane", "probe", "on", "seen by", "verdict", "what answered"] as const;

export function probeRows({ items }: Judgement): string[][] {
  const order = ({ outcome, item }: Judged) =>
    URGENCY.indexOf(outcome) * CLOSING_ORDER.length + CLOSING_ORDER.indexOf(item.plane);
  const tried = items.filter(({ outcome }) => outcome !== "left_out");
  return tried
    .toSorted((one, other) => order(one) - order(other))
    .map(({ item, outcome }) => {
      const { plane, probe, subject, vantage, verdict, layer, status, reason } = item;
      const answered = [layer, status, reason].filter((part) => part !== null).join(" ");
      return [MARKS[outcome], planeLabel(plane), probe, subject ?? "", vantage, verdict, answered];
    });
}

export function probeSummary(judgement: Judgement, { name, partner }: PartnerEntry): string {
  const { items, holds, unproven, unmanaged } = judgement;
  const count = (outcome: Judged["outcome"]) => items.filter((one) => one.outcome === outcome).length;
  const lines = [
    holds
      ? `${name} (${partner.serverName}) is as the registry says: ${count("as_wanted")} probes agree.`
      : `${name} (${partner.serverName}) is NOT shown to be as the registry says: ${count("as_wanted")} agree, ${count("otherwise")} found the opposite, ${count("unclear")} are unclear.`,
  ];
  for (const plane of unproven)
    lines.push(`Plane ${planeLabel(plane)} is closed in the registry, and nothing here shows it closed.`);
  for (const { plane, part } of unmanaged) {
    const managed = `Plane ${planeLabel(plane)} is closed as far as it is managed here`;
    lines.push(`${managed}: the ${part} is not, and nothing is known of it.`);
  }
  const empty = items.filter(({ outcome }) => outcome === "nobody_there");
  const rooms = new Set(empty.flatMap(({ item }) => item.subject ?? []));
  if (items.some(({ item }) => item.probe === "rooms_shared"))
    lines.push(`No room is shared with ${name}, or open to other servers.`);
  const marked = `Marked -: nobody of ${name}, or nobody here, is in ${[...rooms].join(", ")}.`;
  if (rooms.size > 0) lines.push(`${marked} An open plane lets people in and puts nobody there.`);
  lines.push(...notTried(items));
  return `${lines.join("\n")}\n`;
}

/** A line a reason: the probes that were left out for it, and on what where one was not left out everywhere. */
function notTried(all: readonly Judged[]): readonly string[] {
  const isRoom = (subject: string) => /^[!#]/.test(subject);
  const rooms = new Set(all.flatMap(({ item }) => item.subject ?? []).filter(isRoom));
  const leftOut = all.filter(({ outcome }) => outcome === "left_out").map(({ item }) => item);
  return [...Map.groupBy(leftOut, ({ reason }) => whyLeftOut(reason))].map(([why, items]) => {
    const probes = [...Map.groupBy(items, ({ probe }) => probe)].map(([probe, some]) => {
      const subjects = [...new Set(some.flatMap(({ subject }) => subject ?? []))];
      if (subjects.length === 0) return probe;
      const isEveryRoom = rooms.size > 1 && subjects.length === rooms.size && subjects.every(isRoom);
      return isEveryRoom ? `${probe} in all ${rooms.size} rooms` : `${probe} on ${subjects.join(" ")}`;
    });
    return `Not tried (${why}): ${probes.join(", ")}.`;
  });
}

function whyLeftOut(reason: string | null): string {
  const [kind, what = ""] = (reason ?? "").split(":");
  const words = what.replaceAll("_", " ");
  return kind === "not_configured" ? `probe.yaml gives no ${words}` : words;
}
