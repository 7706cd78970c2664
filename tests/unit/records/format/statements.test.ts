import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { CompletionPredicate, subjectsOf } from "../../../../src/records/format/statements.ts";

describe("subjects of a statement", () => {
  it("two items whose digests begin alike have names of their own, so that nobody can keep a statement from being made [OFF-3]", () => {
    const evidence = ["0", "1"].map((end) => `sha256:${end.padStart(64, "a")}`);
    for (const subjects of [
      subjectsOf({ evidence, render: null }),
      subjectsOf({ evidence, revisions: [], stages: [] }),
    ]) {
      assert.equal(new Set(subjects.map(({ name }) => name)).size, 2);
    }
  });
});

describe("a completion", () => {
  it("names all that a purge of ten thousand rooms, the most that a private record has, is shown by [OFF-3]", () => {
    const evidence = Array.from(
      { length: 10_010 },
      (_, index) => `sha256:${String(index).padStart(64, "0")}`,
    );
    const { purge } = CompletionPredicate.shape.duties.shape;
    assert.ok(purge.safeParse({ state: "done", evidence, waiver: null }).success);
  });
});
