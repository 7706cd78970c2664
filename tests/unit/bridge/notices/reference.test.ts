// docs/reference/notices.md says what is really said.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { describe, it } from "node:test";
import { NOTICE_KINDS } from "../../../../src/bridge/ledger/states.ts";
import { EN } from "../../../../src/bridge/texts/en.ts";

const FILE = new URL("../../../../docs/reference/notices.md", import.meta.url);
const REASONS_TABLE = /(?<=<!-- reasons -->\n)[\s\S]*(?=<!-- \/reasons -->)/;

describe("reference of notices", () => {
  it("the reference lists every kind with its words, and every reason with its text [NOT-1]", () => {
    const text = readFileSync(FILE, "utf8");
    for (const kind of NOTICE_KINDS) assert.match(text, new RegExp(`^\\| \`${kind}\` \\|`, "m"));
    for (const [kind, opening] of Object.entries(EN.openings)) {
      const line = text.split("\n").find((one) => one.startsWith(`| \`${kind}\``));
      assert.ok(line?.endsWith(`| ${opening} |`), `${kind} begins with: ${opening}`);
    }
    assert.ok(text.includes(`\n> ${EN.noLongerRead}\n`), EN.noLongerRead);
    const rows = [
      "| reason | text |\n|---|---|\n",
      ...Object.entries(EN.reasons).map(([reason, words]) => `| \`${reason}\` | ${words} |\n`),
    ];
    if (process.env["UPDATE_GOLDENS"] === "1" && process.env["CI"] !== "true") {
      writeFileSync(FILE, text.replace(REASONS_TABLE, rows.join("")));
      return;
    }
    assert.equal(REASONS_TABLE.exec(text)?.[0], rows.join(""), "run: ./task test --update");
  });
});
