import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { requireDeclared } from "../../../../lab/offboard/open.ts";
import { completeSinceOf } from "../../../../lab/readmit/open.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";

const KEEPS = {
  rooms: {
    whenContained: "keep",
    whenRemoved: "read_only",
    whenUnclosable: "list",
    whenRestored: "invite",
  },
} as const;
const REPLACES = { rooms: { ...KEEPS.rooms, whenRemoved: "replace", whenUnclosable: "replace" } } as const;

describe("open both", () => {
  it("a removal that is gone on with takes no other --rooms than it was begun with [OFF-2]", () => {
    requireDeclared([KEEPS, KEEPS], "keep");
    requireDeclared([REPLACES, REPLACES], "replace");
    for (const entries of [
      [REPLACES, REPLACES],
      [KEEPS, REPLACES],
    ]) {
      assert.throws(
        () => requireDeclared(entries, "keep"),
        (error: unknown) =>
          error instanceof DrawbridgeError && error.code === "usage" && error.hint !== undefined,
      );
    }
  });

  it("a re-admission is complete since the later of both sides, and not while one is open or removed again [RDM-1]", () => {
    const side = (at: string, isRemoved = false, done = true) => ({
      isRemoved,
      last: { gate: "g", done, touched: null, stages: [], completion: { at } },
    });
    const [first, later] = ["2026-01-02T10:00:00.000Z", "2026-01-02T10:00:05.000Z"];
    assert.equal(completeSinceOf([side(later), side(first)]), later);
    assert.equal(completeSinceOf([side(later), side(first, false, false)]), null);
    assert.equal(completeSinceOf([side(later), side(first, true)]), null);
    assert.equal(completeSinceOf([side(later), { isRemoved: false, last: undefined }]), null);
  });
});
