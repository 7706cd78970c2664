// The offline check: a repository that is right passes, and every mistake is caught before it does harm.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { checkRepository } from "../../../../src/federation/work-tree/check.ts";
import { outcomeOf, PLANTED_MISTAKES, sampleTree } from "../../../support/planted-mistakes.ts";

describe("checkRepository", () => {
  it("the sample organisation passes every check [CHK-1]", () => {
    const { registry, rendered } = sampleTree();
    assert.deepEqual(
      checkRepository(registry, rendered).filter(({ result }) => result !== "ok"),
      [],
    );
  });

  for (const mistake of PLANTED_MISTAKES) {
    it(`finds ${mistake.what} [CHK-1]`, () => {
      assert.equal(outcomeOf(mistake), undefined);
    });
  }

  it("checks that need a valid registry are unknown when it is invalid [CHK-1]", () => {
    const { registry, rendered } = sampleTree();
    registry.delete("registry/organisation.yaml");
    const results = checkRepository(registry, rendered);
    assert.equal(results.find(({ name }) => name === "registry is valid")?.result, "failed");
    assert.equal(results.filter(({ result }) => result === "unknown").length, 8);
  });

  it("an organisation that nobody admits is in no list that admits [NEG-1]", () => {
    const { rendered } = sampleTree();
    for (const [path, text] of rendered) {
      if (path.endsWith("clients.yaml")) continue;
      assert.ok(!text.includes("matrix.gull.example"), path);
    }
  });
});
