// The YAML that is rendered reads back as what was meant, by any reader.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { type Plain, yamlDocuments, yamlFile } from "../../../../src/federation/planes/emit-yaml.ts";
import { unicodeText } from "../../../support/arbitraries.ts";

const text = fc.oneof(
  unicodeText({ maxLength: 30 }),
  fc.constantFrom(
    ...[
      "yes",
      "No",
      "on",
      "null",
      "~",
      "",
      " ",
      "1e3",
      "0x1f",
      "2026-11-21",
      "12:30:45",
      "*:org-b.test",
      "- a",
    ],
    ...[
      "a: b",
      "a #b",
      "#",
      "---",
      "...",
      "|",
      "a\nb\n",
      "a\n\nb\n",
      " a\nb\n",
      "a\nb",
      "a \nb\n",
      "%x",
      "@x",
      "\t",
    ],
    ...[
      "matrix.example:8448",
      "https://a.example/b?c=d#e",
      "/rpc",
      "!x",
      "&a",
      "[",
      "{",
      "=",
      "<<",
      "\u0085",
    ],
  ),
);
const { value } = fc.letrec<{ value: Plain }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    text,
    fc.integer(),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie("value"), { maxLength: 4 }),
    fc.dictionary(text, tie("value"), { maxKeys: 4, noNullPrototype: true }),
  ),
}));
const document = fc.dictionary(text, value, { minKeys: 1, maxKeys: 5, noNullPrototype: true });

describe("rendered YAML", () => {
  it("a rendered file reads back as the value, by YAML 1.2 and by YAML 1.1 [GIT-1]", () => {
    fc.assert(
      fc.property(document, (written) => {
        const rendered = yamlFile(written);
        const plain: unknown = JSON.parse(JSON.stringify(written));
        assert.deepEqual(parse(rendered), plain);
        // PyYAML, with which homeservers read, follows YAML 1.1.
        assert.deepEqual(parse(rendered, { version: "1.1" }), plain);
      }),
      { numRuns: 500 },
    );
  });

  it("members that are undefined are left out, and a map of nothing else is empty [GIT-1]", () => {
    const rendered = yamlDocuments([{ a: undefined, b: { c: undefined }, d: [{}] }]);
    assert.equal(rendered.slice(rendered.indexOf("---")), "---\nb: {}\nd:\n  - {}\n");
  });
});
