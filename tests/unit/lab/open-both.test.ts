import assert from "node:assert/strict";
import { test } from "node:test";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import { requireDeclared } from "../../../src/lab/offboard/open-both.ts";

const KEEPS = {
  rooms: {
    whenContained: "keep",
    whenRemoved: "read_only",
    whenUnclosable: "list",
    whenRestored: "invite",
  },
} as const;
const REPLACES = { rooms: { ...KEEPS.rooms, whenRemoved: "replace", whenUnclosable: "replace" } } as const;

test("OFF-2: a removal that is gone on with takes no other --rooms than it was begun with", () => {
  requireDeclared([KEEPS, KEEPS], "keep");
  requireDeclared([REPLACES, REPLACES], "replace");
  for (const entries of [
    [REPLACES, REPLACES],
    [KEEPS, REPLACES],
  ]) {
    assert.throws(
      () => requireDeclared(entries, "keep"),
      (error: unknown) =>
        error instanceof DrawbridgeError && error.code === "usage" && error.mend !== undefined,
    );
  }
});
