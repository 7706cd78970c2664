// What a neutral third server still relays, measured on real homeservers after each measure, in rooms that the
// target, the third and the partner have made.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { LEAK_COLUMNS, type LeakColumn } from "../../../src/federation/evidence/leak-rows.ts";
import { type Creator, LeakTable, type Measure } from "../../../src/federation/probes/leaks.ts";
import { measureLeaks } from "../../support/leaks.ts";
import { ROOT } from "../../support/temporary.ts";

const table = LeakTable.parse(await measureLeaks());
const COLUMNS = Object.keys(LEAK_COLUMNS) as LeakColumn[];

function each(measure: Measure, column: LeakColumn, cell: string, creators?: readonly Creator[]): void {
  const rows = table.rows.filter((row) => row.measure === measure);
  assert.equal(rows.length, 6, measure);
  for (const { created_by, room_version, cells } of rows) {
    if (creators !== undefined && !creators.includes(created_by)) continue;
    assert.equal(
      cells[column],
      cell,
      `${measure}, ${column}, room of ${created_by}, version ${room_version}`,
    );
  }
}

describe("leaks", () => {
  it("without any measure everything crosses [OFF-4]", () => {
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

  it("the border alone stops messages, relayed ones too, and leaks state, joins and history [OFF-4]", () => {
    each("border", "partner_to_target", "no");
    each("border", "partner_to_target_via_third", "no");
    each("border", "partner_state_via_third", "yes");
    each("border", "target_to_partner", "yes");
    each("border", "join_via_third", "yes");
    each("border", "history_from_target", "yes");
  });

  it("the whitelist alone stops what comes directly, and leaks everything through a third server [OFF-4]", () => {
    each("transport", "partner_to_target", "no");
    each("transport", "target_to_partner", "no");
    each("transport", "partner_to_target_via_third", "yes");
    each("transport", "partner_state_via_third", "yes");
    each("transport", "target_to_partner_via_third", "yes");
    each("transport", "join_via_third", "yes");
    each("transport", "history_from_third", "yes");
  });

  it("an ACL without bans goes on sending to the partner, and single events are given to it [OFF-4]", () => {
    each("acl", "partner_to_target", "no");
    each("acl", "partner_state_via_third", "no");
    each("acl", "target_to_partner", "yes");
    each("acl", "join_via_third", "no");
    each("acl", "history_from_third", "yes");
  });

  it("a ban and then an ACL close a room whole, unless the partner's user has made it [OFF-4]", () => {
    for (const column of COLUMNS) each("ban_acl", column, "no", ["target", "witness"]);
    each("ban_acl", "target_to_partner", "yes", ["partner"]);
  });

  it("without an ACL the partner's other people join through a third server [OFF-4]", () => {
    each("no_acl", "join_via_third", "yes");
    each("no_acl", "history_from_third", "yes");
  });

  it("the rooms plane alone closes every room, those that the partner's user made by new ones [OFF-4] [PLN-2]", () => {
    for (const column of COLUMNS) each("rooms", column, "no");
  });

  it("the end states leak nothing, in no room of anybody: contained, and removed [OFF-4]", () => {
    for (const measure of ["contained", "all"] as const) {
      for (const column of COLUMNS) each(measure, column, "no");
    }
  });

  it("the table that is published is what was measured [OFF-4]", () => {
    const file = join(ROOT, "docs", "reference", "federation-leaks.json");
    const published = LeakTable.parse(JSON.parse(readFileSync(file, "utf8")));
    assert.deepEqual(published.rows, table.rows, "./task fed:leaks --update");
  });
});
