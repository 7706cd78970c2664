// What probes found, as a table for people: what is not as it should be stands first.
import { CLOSING_ORDER, planeLabel } from "../plane-order.ts";
import type { PartnerEntry } from "../registry/partner.ts";
import type { Judged, Judgement } from "./expected-results.ts";

const MARKS: Readonly<Record<Judged["outcome"], string>> = {
  as_wanted: "ok",
  otherwise: "WRONG",
  unclear: "?",
  nobody_there: "-",
  left_out: "-",
};
const URGENCY: readonly Judged["outcome"][] = [
  "otherwise",
  "unclear",
  "as_wanted",
  "nobody_there",
  "left_out",
];

export const PROBE_HEADER = ["", "plane", "probe", "on", "seen by", "verdict", "what answered"] as const;

/** Rows of the table: what is wrong first, then in the order in which planes are closed. */
export function probeRows({ items }: Judgement): string[][] {
  const order = ({ outcome, item }: Judged) =>
    URGENCY.indexOf(outcome) * CLOSING_ORDER.length + CLOSING_ORDER.indexOf(item.plane);
  return items
    .filter(({ outcome }) => outcome !== "left_out")
    .toSorted((one, other) => order(one) - order(other))
    .map(({ item, outcome }) => [
      MARKS[outcome],
      planeLabel(item.plane),
      item.probe,
      item.subject ?? "",
      item.vantage,
      item.verdict,
      [item.layer, item.status, item.reason].filter((part) => part !== null).join(" "),
    ]);
}

/** The lines below the table. */
export function probeSummary(judgement: Judgement, { name, partner }: PartnerEntry): string {
  const count = (outcome: Judged["outcome"]) =>
    judgement.items.filter((judged) => judged.outcome === outcome).length;
  const lines = [
    judgement.holds
      ? `${name} (${partner.serverName}) is as the registry says: ${count("as_wanted")} probes agree.`
      : `${name} (${partner.serverName}) is NOT shown to be as the registry says: ${count("as_wanted")} agree, ${count("otherwise")} found the opposite, ${count("unclear")} are unclear.`,
  ];
  for (const plane of judgement.unproven) {
    lines.push(`Plane ${planeLabel(plane)} is closed in the registry, and nothing here shows it closed.`);
  }
  const empty = judgement.items.filter(({ outcome }) => outcome === "nobody_there");
  const rooms = new Set(empty.flatMap(({ item }) => item.subject ?? []));
  if (judgement.items.some(({ item }) => item.probe === "rooms_shared")) {
    lines.push(`No room is shared with ${name}, or open to other servers.`);
  }
  if (rooms.size > 0) {
    lines.push(
      `Marked -: nobody of ${name}, or nobody here, is in ${[...rooms].join(", ")}. An open plane lets people in and puts nobody there.`,
    );
  }
  lines.push(...notTried(judgement.items));
  return `${lines.join("\n")}\n`;
}

/** A line a reason: the probes that were left out for it, and on what where one was not left out everywhere. */
function notTried(all: readonly Judged[]): readonly string[] {
  const isRoom = (subject: string | null): subject is string => subject !== null && /^[!#]/.test(subject);
  const rooms = new Set(all.map(({ item }) => item.subject).filter(isRoom));
  const reasons = new Map<string, Map<string, Set<string>>>();
  for (const { item } of all.filter(({ outcome }) => outcome === "left_out")) {
    const why = whyLeftOut(item.reason);
    const probes = reasons.get(why) ?? new Map<string, Set<string>>();
    const subjects = probes.get(item.probe) ?? new Set<string>();
    if (item.subject !== null) subjects.add(item.subject);
    reasons.set(why, probes.set(item.probe, subjects));
  }
  const onWhat = (probe: string, subjects: ReadonlySet<string>) => {
    if (subjects.size === 0) return probe;
    const isEveryRoom = rooms.size > 1 && subjects.size === rooms.size && [...subjects].every(isRoom);
    return isEveryRoom ? `${probe} in all ${rooms.size} rooms` : `${probe} on ${[...subjects].join(" ")}`;
  };
  return [...reasons].map(
    ([why, probes]) =>
      `Not tried (${why}): ${[...probes].map(([probe, subjects]) => onWhat(probe, subjects)).join(", ")}.`,
  );
}

function whyLeftOut(reason: string | null): string {
  const [kind, what = ""] = (reason ?? "").split(":");
  const words = what.replaceAll("_", " ");
  return kind === "not_configured" ? `probe.yaml gives no ${words}` : words;
}
