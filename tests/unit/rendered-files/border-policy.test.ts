// The policies that the border module's own tests read too (border/tests/test_parse_policy.py): both languages must
// agree on what is a policy, and on its digest.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { PolicyFile, policyDigest } from "../../../src/rendered-files/border-policy.ts";
import { ROOT } from "../../support/temporary.ts";

interface Fixture {
  readonly valid: readonly { readonly name: string; readonly text: string; readonly digest: string }[];
  readonly refused: readonly { readonly name: string; readonly text: string }[];
}
const fixture = JSON.parse(
  readFileSync(join(ROOT, "tests/fixtures/border/policies.json"), "utf8"),
) as Fixture;

function read(text: string): PolicyFile | undefined {
  try {
    const parsed = PolicyFile.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : undefined;
  } catch {
    return undefined;
  }
}

describe("border policy", () => {
  describe("read by renderer and module", () => {
    for (const { name, text, digest } of fixture.valid) {
      it(`the renderer's digest is the module's: ${name} [PLN-3]`, () => {
        const policy = read(text);
        assert.ok(policy !== undefined);
        assert.equal(policyDigest(policy), digest);
      });
    }

    for (const { name, text } of fixture.refused) {
      it(`what the module refuses, the renderer refuses: ${name} [PLN-3]`, () => {
        assert.equal(read(text), undefined);
      });
    }

    it("policies with one meaning have one digest, and others have another [PLN-3]", () => {
      const digests = new Map(fixture.valid.map(({ name, digest }) => [name, digest]));
      const same = [...digests].filter(
        ([name]) => name.startsWith("the same") || name.startsWith("white space"),
      );
      assert.equal(new Set(same.map(([, digest]) => digest)).size, 1);
      // Four of them are one policy, and two are another.
      assert.equal(new Set(digests.values()).size, digests.size - 4);
    });
  });
});
