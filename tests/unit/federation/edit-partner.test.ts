// Setting `contained` in a partner's file without touching anything else of it.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parse } from "yaml";
import { setContained } from "../../../src/federation/containment/edit-partner.ts";

test("CON-1: the flag is set in place, and every other byte stays", () => {
  const cases: readonly (readonly [string, string])[] = [
    [
      "# Ours.\nversion: 1\ncontained:   false   # until when?\nazp: 'b'\n",
      "# Ours.\nversion: 1\ncontained:   true   # until when?\nazp: 'b'\n",
    ],
    [
      "version: 1\nclassification: internal # agreed\n\nazp: b\n",
      "version: 1\nclassification: internal # agreed\ncontained: true\n\nazp: b\n",
    ],
    ["classification: internal", "classification: internal\ncontained: true\n"],
    [
      "version: 1\r\nclassification: internal\r\nazp: b\r\n",
      "version: 1\r\nclassification: internal\r\ncontained: true\r\nazp: b\r\n",
    ],
    [
      "{version: 1, classification: internal, azp: b}\n",
      "{version: 1, classification: internal, contained: true, azp: b}\n",
    ],
    ['"contained": no\nclassification: internal\n', '"contained": true\nclassification: internal\n'],
    [
      "classification: internal\ncard: {contained: false}\n",
      "classification: internal\ncontained: true\ncard: {contained: false}\n",
    ],
  ];
  for (const [before, after] of cases) assert.equal(setContained(before, true), after);
});

test("CON-1: containing and restoring gives back what was there", () => {
  const text = "# a\nversion: 1\nclassification: internal   # b\ncontained: false # c\nazp: b\n";
  assert.equal(setContained(setContained(text, true), false), text);
});

test("CON-1: whatever else a file holds means the same afterwards", () => {
  const line = fc.constantFrom(
    "azp: b",
    "issuer: https://b.test # x",
    "# only a comment",
    "",
    "card:\n  consumes: {}",
    "rooms: {whenRemoved: retire}",
    "keyIds:\n  - 'a: b'",
  );
  fc.assert(
    fc.property(
      fc.uniqueArray(line, { maxLength: 7 }),
      fc.uniqueArray(line, { maxLength: 7 }),
      fc.constantFrom("", "contained: false\n", "contained: true # why\n"),
      fc.boolean(),
      (before, after, flag, contained) => {
        const seen = new Set(before);
        const rest = after.filter((one) => !seen.has(one));
        const text = [...before, "classification: internal", flag.trim(), ...rest, ""].join("\n");
        const edited = setContained(text, contained);
        const { contained: said, ...others } = parse(edited) as Record<string, unknown>;
        const { contained: _, ...wanted } = parse(text) as Record<string, unknown>;
        assert.equal(said, contained);
        assert.deepEqual(others, wanted);
        const lost = text
          .split("\n")
          .filter((one) => !one.startsWith("contained") && !edited.split("\n").includes(one));
        assert.deepEqual(lost, []);
      },
    ),
  );
});
