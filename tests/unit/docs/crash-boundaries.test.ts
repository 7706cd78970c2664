// The page about crash boundaries and the failpoints in the tests name the same fifteen.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { FAILPOINTS } from "../../support/failpoints.ts";
import { ROOT } from "../../support/temporary.ts";

describe("the page about crash boundaries", () => {
  it("has a row of each failpoint, in its order, with the change that it was seen to fail with [CRA-1]", () => {
    const page = readFileSync(join(ROOT, "docs/reference/crash-boundaries.md"), "utf8");
    const rows = page.split("\n").flatMap((line) => {
      const [, name, dies, rooms, change] =
        /^\| `(\w+)` \| (.+) \| (both|encrypted) \| (.+) \|$/.exec(line) ?? [];
      return name && dies && rooms && change?.startsWith("`") ? name : [];
    });
    assert.equal(rows.length, 15);
    assert.deepEqual(rows, Object.keys(FAILPOINTS));
  });
});
