// What leaks through a neutral third server, as leak-measurement.ts measures it, and the published table of it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import { LEAK_COLUMNS, LEAK_TITLES, type LeakCell, type LeakColumn } from "../../../lab/observe/leak-rows.ts";
import { ROOT } from "../../support/temporary.ts";
import { CREATORS, type Creator, MEASURES, type Measure, Measurement, type Row } from "./leak-measurement.ts";

let rows: readonly Row[];
const CELLS: Readonly<Record<LeakCell, string>> = { yes: "**yes**", no: "no", unknown: "?", not_tried: "–" };
const COLUMNS = Object.keys(LEAK_COLUMNS) as LeakColumn[];

function each(measure: Measure, column: LeakColumn, cell: string, creators?: readonly Creator[]): void {
  const measured = rows.filter((row) => row.measure === measure);
  assert.equal(measured.length, 6, measure);
  for (const { createdBy, version, cells } of measured) {
    if (creators !== undefined && !creators.includes(createdBy)) continue;
    assert.equal(cells[column], cell, `${measure}, ${column}, room of ${createdBy}, version ${version}`);
  }
}

/** As Markdown. Rows that came out alike stand in one line. */
function tableOf(measured: readonly Row[]): string {
  const lines = [
    `| measure | rooms made by (version) | ${COLUMNS.map((column) => LEAK_TITLES[column]).join(" | ")} |`,
    `| --- | --- | ${COLUMNS.map(() => "---").join(" | ")} |`,
  ];
  for (const measure of Object.keys(MEASURES) as Measure[]) {
    const alike = new Map<string, string[]>();
    for (const { createdBy, version, cells } of measured.filter((row) => row.measure === measure)) {
      const text = COLUMNS.map((column) => CELLS[cells[column]]).join(" | ");
      alike.set(text, [...(alike.get(text) ?? []), `${CREATORS[createdBy]} (${version})`]);
    }
    for (const [text, rooms] of alike) lines.push(`| ${MEASURES[measure]} | ${rooms.join(", ")} | ${text} |`);
  }
  return `${lines.join("\n")}\n`;
}

describe("leaks through a neutral third server", () => {
  before(async () => {
    rows = await Measurement.run();
  });

  it("every event crosses when no plane is closed [OFF-4]", () => {
    for (const column of [
      "partner_to_target",
      "target_to_partner",
      "join_at_target",
      "join_via_third",
    ] as const) {
      each("none", column, "yes");
    }
    for (const column of ["history_from_target", "history_from_third"] as const) each("none", column, "yes");
  });

  it("the border alone stops messages, relayed ones too, and lets state, joins and history through [OFF-4]", () => {
    each("border", "partner_to_target", "no");
    each("border", "partner_to_target_via_third", "no");
    each("border", "partner_state_via_third", "yes");
    each("border", "target_to_partner", "yes");
    each("border", "join_via_third", "yes");
    each("border", "history_from_target", "yes");
  });

  it("the whitelist alone stops direct events, and lets relayed ones through [OFF-4]", () => {
    each("transport", "partner_to_target", "no");
    each("transport", "target_to_partner", "no");
    each("transport", "partner_to_target_via_third", "yes");
    each("transport", "partner_state_via_third", "yes");
    each("transport", "target_to_partner_via_third", "yes");
    each("transport", "join_via_third", "yes");
    each("transport", "history_from_third", "yes");
  });

  it("an ACL without bans lets events go to the partner, and serves it single events [OFF-4]", () => {
    each("acl", "partner_to_target", "no");
    each("acl", "partner_state_via_third", "no");
    each("acl", "target_to_partner", "yes");
    each("acl", "join_via_third", "no");
    each("acl", "history_from_third", "yes");
  });

  it("a ban and then an ACL close a room, unless the partner's user has made it [OFF-4]", () => {
    for (const column of COLUMNS) each("ban_acl", column, "no", ["target", "witness"]);
    each("ban_acl", "target_to_partner", "yes", ["partner"]);
  });

  it("a ban without an ACL lets the partner's other people join through a third server [OFF-4]", () => {
    each("no_acl", "join_via_third", "yes");
    each("no_acl", "history_from_third", "yes");
  });

  it("the rooms plane alone closes every room, and replaces those that the partner's user made [OFF-4] [PLN-2]", () => {
    for (const column of COLUMNS) each("rooms", column, "no");
  });

  it("no event crosses in any room when the partner is contained or removed [OFF-4]", () => {
    for (const measure of ["contained", "all"] as const) {
      for (const column of COLUMNS) each(measure, column, "no");
    }
  });

  it("the table in docs/reference/federation.md equals the measurement [OFF-4]", () => {
    const page = readFileSync(join(ROOT, "docs", "reference", "federation.md"), "utf8");
    const table = tableOf(rows);
    assert.ok(page.includes(table), `the page should show:\n${table}`);
  });
});
