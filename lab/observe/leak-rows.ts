// What of a partner still crosses in a room, directly and by what a third server relays: one row a room, from
// evidence items. Invariant: `no` is said only where an item is closed; what was not tried is `not_tried`.
import type { EvidenceItem } from "../../src/records/format/evidence-item.ts";

/** Columns, and the probes that answer them: one that passed is enough for `yes`. */
export const LEAK_COLUMNS = {
  partner_to_target: ["message_to_target"],
  partner_to_target_via_third: ["message_to_target_via_witness"],
  partner_state_via_third: ["state_to_target_via_witness"],
  target_to_partner: ["message_to_partner"],
  target_to_partner_via_third: ["message_to_partner_via_witness"],
  join_at_target: ["make_join", "remote_join"],
  join_via_third: ["make_join_at_witness", "remote_join_via_witness"],
  history_from_target: ["event_at_target", "backfill_at_target"],
  history_from_third: ["event_at_witness", "backfill_at_witness"],
} as const satisfies Readonly<Record<string, readonly string[]>>;
export type LeakColumn = keyof typeof LEAK_COLUMNS;

export const LEAK_TITLES: Readonly<Record<LeakColumn, string>> = {
  partner_to_target: "B→A",
  partner_to_target_via_third: "B→A via D",
  partner_state_via_third: "B's state→A via D",
  target_to_partner: "A→B",
  target_to_partner_via_third: "A→B via D",
  join_at_target: "join at A",
  join_via_third: "join at D",
  history_from_target: "history from A",
  history_from_third: "history from D",
};

/** What is observed without a third server. */
export const DIRECT_COLUMNS = (Object.keys(LEAK_COLUMNS) as LeakColumn[]).filter(
  (column) => !column.endsWith("_third"),
);

export type LeakCell = "yes" | "no" | "unknown" | "not_tried";
export type LeakCells = Readonly<Record<LeakColumn, LeakCell>>;

const NOT_TRIED = "none";

function cellOf(items: readonly EvidenceItem[], probes: readonly string[]): LeakCell {
  const tried = items.filter(({ probe, layer }) => probes.includes(probe) && layer !== NOT_TRIED);
  if (tried.some(({ verdict }) => verdict === "open")) return "yes";
  if (tried.length === 0) return "not_tried";
  return tried.every(({ verdict }) => verdict === "closed") ? "no" : "unknown";
}

/** The cells of one room's items. */
export function leakCells(items: readonly EvidenceItem[]): LeakCells {
  const columns = Object.entries(LEAK_COLUMNS) as [LeakColumn, readonly string[]][];
  return Object.fromEntries(columns.map(([column, probes]) => [column, cellOf(items, probes)])) as LeakCells;
}

/** A row a room, in the order of the items. */
export function leakRows(items: readonly EvidenceItem[]): readonly { room: string; cells: LeakCells }[] {
  const rooms = new Map<string, EvidenceItem[]>();
  for (const item of items) {
    if (item.plane !== "rooms" || item.subject?.startsWith("!") !== true) continue;
    rooms.set(item.subject, [...(rooms.get(item.subject) ?? []), item]);
  }
  return [...rooms].map(([room, own]) => ({ room, cells: leakCells(own) }));
}

/**
 * What the rows say together, for people.
 * @param columns of these alone; of all when absent
 */
export function leakSummary(
  rows: readonly { readonly room: string; readonly cells: LeakCells }[],
  columns = Object.keys(LEAK_COLUMNS) as readonly LeakColumn[],
): string {
  const columnsWith = (cell: LeakCell) =>
    columns.filter((column) => rows.some(({ cells }) => cells[column] === cell));
  const titles = (named: readonly LeakColumn[]) => named.map((column) => LEAK_TITLES[column]).join(", ");
  const rooms = rows.length === 1 ? "the one room" : `the ${rows.length} rooms`;
  const [open, unclear] = [columnsWith("yes"), columnsWith("unknown")];
  const untried = columnsWith("not_tried").filter((column) => !open.includes(column));
  const leaking = rows.filter(({ cells }) => columns.some((column) => cells[column] === "yes")).length;
  return [
    leaking === 0
      ? `Nothing crossed in ${rooms} probed.`
      : `Still crossing in ${leaking} of ${rooms} probed: ${titles(open)}.`,
    ...(unclear.length === 0 ? [] : [`Unknown in some rooms: ${titles(unclear)}.`]),
    ...untriedIn(rows, untried).map(([where, left]) => `Not tried in ${where}: ${titles(left)}.`),
  ].join(" ");
}

/** The columns by the rooms in which they were not tried. */
function untriedIn(
  rows: readonly { readonly room: string; readonly cells: LeakCells }[],
  columns: readonly LeakColumn[],
): readonly (readonly [where: string, LeakColumn[]])[] {
  const found = new Map<string, LeakColumn[]>();
  for (const column of columns) {
    const rooms = rows.filter(({ cells }) => cells[column] === "not_tried").map(({ room }) => room);
    const where = rooms.length === rows.length ? "any of them" : rooms.join(", ");
    found.set(where, [...(found.get(where) ?? []), column]);
  }
  return [...found];
}
