// What is out of reach stands in a signed statement, whatever a plane calls it.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { subjectWord } from "../../../../src/federation/workflow/observe-plane.ts";
import { Identifier } from "../../../../src/records/format/fields.ts";

describe("subjectWord", () => {
  it("subjectWord makes an identifier that can be signed and waived from any name of a plane [OFF-2]", () => {
    assert.equal(subjectWord("!r:a.test at d.test:8448"), "!r:a.test@d.test:8448");
    assert.equal(subjectWord("!r:a.test"), "!r:a.test");
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", maxLength: 600 }), (named) => {
        const word = subjectWord(named);
        assert.ok(Identifier.safeParse(word).success, word);
        if (Identifier.safeParse(named).success) assert.equal(word, named);
      }),
    );
  });
});
