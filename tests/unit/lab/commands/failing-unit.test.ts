// Which program the lab gives up waiting for.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { failingUnit } from "../../../../lab/commands/lifecycle.ts";

describe("failingUnit", () => {
  it("counts the restarts since the wait began, and none before", () => {
    const before = [
      { name: "bridge", restarts: 100 },
      { name: "issuer", restarts: 0 },
    ];
    const killed = [
      { name: "bridge", restarts: 101 },
      { name: "issuer", restarts: 7 },
    ];
    assert.equal(failingUnit(killed, before), undefined);
    const failing = { name: "issuer", restarts: 8 };
    assert.equal(failingUnit([...killed, failing], before), failing);
    const added = { name: "witness", restarts: 8 };
    assert.equal(failingUnit([added], before), added);
  });
});
