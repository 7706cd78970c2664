import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { completeSinceOf } from "../../../../lab/readmit/open.ts";

describe("opening a re-admission", () => {
  it("a re-admission is complete since the later of both sides, and not while one side is open or removed again [RDM-1]", () => {
    const side = (at: string, isRemoved = false, done = true) => ({
      isRemoved,
      last: { approval: "g", done, touched: null, steps: [], completedAt: at },
    });
    const [first, later] = ["2026-01-02T10:00:00.000Z", "2026-01-02T10:00:05.000Z"];
    assert.equal(completeSinceOf([side(later), side(first)]), later);
    assert.equal(completeSinceOf([side(later), side(first, false, false)]), null);
    assert.equal(completeSinceOf([side(later), side(first, true)]), null);
    assert.equal(completeSinceOf([side(later), { isRemoved: false, last: undefined }]), null);
  });
});
