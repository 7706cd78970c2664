import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { splitSections } from "../../../../examples/docs-qa/search/documents.ts";
import { unicodeText } from "../../../support/arbitraries.ts";

const split = (markdown: string) =>
  splitSections("a.md", markdown).map(({ headings, text }) => [headings.join(" / "), text]);

describe("splitting Markdown into sections", () => {
  it("a document is cut at its headings, each under those above it", () => {
    assert.deepEqual(
      split("intro\n# A\ntext a\n## B ##\ntext b\n### C\ntext c\n## D\ntext d\n# E\ntext e\n"),
      [
        ["", "intro"],
        ["A", "text a"],
        ["A / B", "text b"],
        ["A / B / C", "text c"],
        ["A / D", "text d"],
        ["E", "text e"],
      ],
    );
  });

  it("underlined headings count, and a rule or a list does not make one", () => {
    assert.deepEqual(split("Title\n=====\none\n\nSub\n---\ntwo\n\n---\nthree\n- item\n---\nfour"), [
      ["Title", "one"],
      ["Title / Sub", "two\n\n---\nthree\n- item\n---\nfour"],
    ]);
  });

  it("a line inside fenced code that looks like a heading is text", () => {
    assert.deepEqual(split("# A\n```sh\n# not a heading\n~~~\n```\n~~~~\n# nor this\n~~~\n~~~~\n# B\nx"), [
      ["A", "```sh\n# not a heading\n~~~\n```\n~~~~\n# nor this\n~~~\n~~~~"],
      ["B", "x"],
    ]);
  });

  it("a heading is shown without its inline marks", () => {
    assert.deepEqual(split("## The `azp` **rule** of [RFC 7519](https://example.org)\nx"), [
      ["The azp rule of RFC 7519", "x"],
    ]);
  });

  it("windows line ends and a heading without text are taken", () => {
    assert.deepEqual(split("# A\r\ntext\r\n#\r\nmore\r\n"), [
      ["A", "text"],
      ["", "more"],
    ]);
  });

  it("no line of text is lost or invented, whatever the input", () => {
    // Lines that are text wherever they stand, among lines that may be anything.
    const mark = fc.constantFrom("# A", "## B ##", "", "```", "~~~", "- x", "    code", "> q", "#x");
    const text = fc.nat(999).map((number) => `text ${number}`);
    fc.assert(
      fc.property(fc.array(fc.oneof(mark, text), { maxLength: 20 }), (lines) => {
        const kept = splitSections("a.md", lines.join("\n")).flatMap((section) => section.text.split("\n"));
        const isText = (line: string) => line.startsWith("text ");
        assert.deepEqual(kept.filter(isText), lines.filter(isText));
        for (const line of kept) assert.ok(lines.includes(line) || lines.includes(`    ${line}`), line);
      }),
    );
  });

  it("any input is cut without an error", () => {
    fc.assert(
      fc.property(unicodeText(), (markdown) => {
        for (const { text } of splitSections("a.md", markdown)) assert.notEqual(text, "");
      }),
    );
  });
});
