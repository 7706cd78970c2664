import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { waivedIn } from "../../../../lab/offboard/record.ts";

describe("waived entries of a record", () => {
  it("waived entries are listed once for each organisation, and blocking ones are not [OFF-2]", () => {
    const rows = { subject: "rows", reason: "no_interface", waived_by: "duty", waiver: "server_keeps_it" };
    const blocking = { subject: "!room:c.test", reason: "no_power", waived_by: null, waiver: null };
    const stated = { subject: "rows", found: "no_interface", by: "duty", reason: "server_keeps_it" };
    assert.deepEqual(
      waivedIn([
        { organisation: "org-a", outOfReach: [rows, blocking] },
        { organisation: "org-b", outOfReach: [rows] },
        { organisation: "org-a", outOfReach: [rows] },
      ]),
      [
        { organisation: "org-a", ...stated },
        { organisation: "org-b", ...stated },
      ],
    );
  });
});
