import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { LeakTable, renderLeakTable, replaceLeakTable } from "../../../src/federation/probes/leaks.ts";
import { ROOT } from "../../support/temporary.ts";

const read = (...path: string[]) => readFileSync(join(ROOT, "docs", ...path), "utf8");
const published = LeakTable.parse(JSON.parse(read("reference", "federation-leaks.json")));

describe("leak table", () => {
  for (const page of [
    ["reference", "federation.md"],
    ["operating", "partner-compromised.md"],
  ]) {
    it(`docs/${page.join("/")} shows the leak table as it was measured [OFF-4]`, () => {
      const text = read(...page);
      assert.ok(text.includes(renderLeakTable(published)), "./task fed:leaks --update");
      assert.equal(replaceLeakTable(text, published), text);
    });
  }

  it("a row of the leak table stands for every room that came out alike, and for no other [OFF-4]", () => {
    const [first] = published.rows;
    assert.ok(first !== undefined);
    const other = {
      ...first,
      room_version: "12",
      cells: { ...first.cells, join_at_target: "unknown" as const },
    };
    const same = { ...first, created_by: "partner" as const };
    const lines = renderLeakTable({ ...published, rows: [first, other, same] })
      .trimEnd()
      .split("\n");
    assert.equal(lines.length, 4);
    assert.match(lines[2] ?? "", /\| A \(10\), B \(10\) \|/);
    assert.match(lines[3] ?? "", /\| A \(12\) \|.*\| \? \|/);
  });
});
