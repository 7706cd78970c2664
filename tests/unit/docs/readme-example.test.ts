// The answer that the README shows is the one that the sample agent gives to the README's question.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { readDocuments } from "../../../examples/docs-qa/search/documents.ts";
import { DocumentSearch } from "../../../examples/docs-qa/search/search.ts";
import { ROOT } from "../../support/temporary.ts";

describe("the README's example", () => {
  it("shows the section that the sample agent quotes first", () => {
    const readme = readFileSync(join(ROOT, "README.md"), "utf8");
    const question = /^\$ \.\/task fed:ask --encrypted "(.+)"$/m.exec(readme)?.[1];
    const [, file, headings] = /^ {2}│ `docs\/(.+)` — \*\*(.+)\*\*/m.exec(readme) ?? [];
    assert.ok(question !== undefined && file !== undefined && headings !== undefined);
    const found = new DocumentSearch(readDocuments(join(ROOT, "docs"))).find(question)[0]?.section;
    assert.deepEqual([found?.file, found?.headings.join(" › ")], [file, headings]);
  });
});
