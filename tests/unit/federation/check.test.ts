// The offline check: a repository that is right passes, and every mistake is caught before it does harm.
import assert from "node:assert/strict";
import { test } from "node:test";
import { checkRepository } from "../../../src/federation/check.ts";
import { outcomeOf, PLANTED_MISTAKES, sampleTree } from "../../support/planted-mistakes.ts";

test("CHK-1: the sample organisation passes every check", () => {
  const { registry, rendered } = sampleTree();
  assert.deepEqual(
    checkRepository(registry, rendered).filter(({ result }) => result !== "ok"),
    [],
  );
});

for (const mistake of PLANTED_MISTAKES) {
  test(`CHK-1: caught before it does harm: ${mistake.what}`, () => {
    assert.equal(outcomeOf(mistake), undefined);
  });
}

test("CHK-1: with an invalid registry, what depends on it is unknown and not passed", () => {
  const { registry, rendered } = sampleTree();
  registry.delete("registry/organisation.yaml");
  const results = checkRepository(registry, rendered);
  assert.equal(results.find(({ name }) => name === "registry is valid")?.result, "failed");
  assert.equal(results.filter(({ result }) => result === "unknown").length, 7);
});

test("NEG-1: an organisation that nobody admits stands in no list that admits", () => {
  const { rendered } = sampleTree();
  for (const [path, text] of rendered) {
    if (path.endsWith("clients.yaml")) continue;
    assert.ok(!text.includes("matrix.gull.example"), path);
  }
});
