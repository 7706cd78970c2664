import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parseOptions } from "../../../../lab/commands/options.ts";
import { labDirectory } from "../../../../lab/layout.ts";
import { parseOrganisation } from "../../../../lab/organisations.ts";

describe("command-line options of the lab", () => {
  it("an unknown option or an extra argument is refused with the lines of its usage, and not with the whole help", () => {
    for (const args of [["--nmae", "x"], ["word"], ["--name"]]) {
      assert.throws(() => parseOptions(args, "\nUsage: it\n       it again\n\nWhat it does, at length.\n"), {
        code: "usage",
        hint: "Usage: it\n       it again\n       --help says more.",
      });
    }
  });

  it("a lab's name is part of its folder's path, and cannot point outside it", () => {
    assert.equal(labDirectory("two", { DRAWBRIDGE_STATE: "/srv/state" }), "/srv/state/lab/two");
    for (const name of ["..", "a/b", "", "A", "x".repeat(40)]) {
      assert.throws(() => labDirectory(name, {}), { code: "usage" });
    }
  });

  it("organisations are named in full or by their letter", () => {
    assert.equal(parseOrganisation("org-b"), "org-b");
    assert.equal(parseOrganisation("b"), "org-b");
    assert.equal(parseOrganisation("d"), "org-d");
    assert.equal(parseOrganisation("e"), undefined);
  });
});
