// The leak table: what of a partner still crosses after each measure, measured with a neutral third server in
// rooms that the target, the third and the partner have made.
// Invariant: a cell is what was measured; nothing is filled in.
import { z } from "zod";
import {
  LEAK_COLUMNS,
  LEAK_TITLES,
  type LeakCell,
  LeakCells,
  type LeakColumn,
} from "../evidence/leak-rows.ts";

/**
 * What was done, in the order in which it is told: planes alone as federation control closes them, parts of the
 * rooms plane done by hand, and the end states.
 */
export const MEASURES = {
  none: "nothing",
  transport: "plane 1 (whitelist) alone",
  border: "plane 3 (border) alone",
  acl: "by hand: ACL, B's member still joined",
  ban_acl: "by hand: ban, then ACL",
  no_acl: "by hand: ban, no ACL; planes 1 and 3",
  rooms: "plane 2 (rooms) alone",
  contained: "planes 2 and 3: contained",
  all: "planes 2, 3 and 1: removed",
} as const;
export type Measure = keyof typeof MEASURES;

export const CREATORS = { target: "A", witness: "D", partner: "B" } as const;
export type Creator = keyof typeof CREATORS;

const names = <Name extends string>(of: Readonly<Record<Name, unknown>>) =>
  z.enum(Object.keys(of) as [Name, ...Name[]]);

const LeakRow = z.strictObject({
  measure: names<Measure>(MEASURES),
  created_by: names<Creator>(CREATORS),
  room_version: z.string().regex(/^[0-9]{1,3}$/),
  cells: LeakCells,
});
export type LeakRow = z.output<typeof LeakRow>;

/** svc.federation.leak_table.v1 */
export const LeakTable = z.strictObject({
  schema: z.literal("svc.federation.leak_table.v1"),
  measured_at: z.iso.datetime(),
  homeserver: z.string().regex(/^[A-Za-z0-9._/-]{1,64}$/),
  rows: z.array(LeakRow),
});
export type LeakTable = z.output<typeof LeakTable>;

const CELLS: Readonly<Record<LeakCell, string>> = { yes: "**yes**", no: "no", unknown: "?", not_tried: "–" };

const TABLE_ON_PAGE = /^\| measure \| rooms made by .*\n(?:\|.*\n)+/m;

/** A page with this table in the place of the one that it shows. */
export function replaceLeakTable(page: string, table: LeakTable): string {
  return page.replace(TABLE_ON_PAGE, () => renderLeakTable(table));
}

/** As Markdown. Rows that came out alike stand in one line. */
export function renderLeakTable(table: LeakTable): string {
  const columns = Object.keys(LEAK_COLUMNS) as LeakColumn[];
  const lines = [
    `| measure | rooms made by (version) | ${columns.map((column) => LEAK_TITLES[column]).join(" | ")} |`,
    `| --- | --- | ${columns.map(() => "---").join(" | ")} |`,
  ];
  for (const measure of Object.keys(MEASURES) as Measure[]) {
    const alike = new Map<string, string[]>();
    for (const { created_by, room_version, cells } of table.rows.filter((row) => row.measure === measure)) {
      const text = columns.map((column) => CELLS[cells[column]]).join(" | ");
      alike.set(text, [...(alike.get(text) ?? []), `${CREATORS[created_by]} (${room_version})`]);
    }
    for (const [text, rooms] of alike) lines.push(`| ${MEASURES[measure]} | ${rooms.join(", ")} | ${text} |`);
  }
  return `${lines.join("\n")}\n`;
}
