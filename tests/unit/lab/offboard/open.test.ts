import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { requireDeclared } from "../../../../lab/offboard/open.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";

const KEEPS = {
  rooms: {
    whenContained: "keep",
    whenRemoved: "read_only",
    whenUnclosable: "list",
  },
} as const;
const REPLACES = { rooms: { ...KEEPS.rooms, whenRemoved: "replace", whenUnclosable: "replace" } } as const;

describe("opening a removal", () => {
  it("an open removal refuses another --rooms than it was begun with [OFF-2]", () => {
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
});
