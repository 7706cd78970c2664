import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import { labPaths } from "../../../../lab/layout.ts";
import { signedRecords } from "../../../../lab/offboard/record.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

describe("the signed records of a lab", () => {
  it("the records are found at both organisations, and a removal that is open has none", (t) => {
    const paths = labPaths(temporaryFolder(t));
    assert.deepEqual(signedRecords(paths), []);
    const record = (name: "org-a" | "org-b", run: string) =>
      join(paths.organisation(name).federationState, "offboarding", run, "record.json");
    const files = [record("org-a", "1"), record("org-a", "2"), record("org-b", "1")];
    for (const file of files) {
      mkdirSync(dirname(file), { recursive: true });
      writeFileSync(file, "{}");
    }
    mkdirSync(dirname(record("org-b", "3")), { recursive: true });
    assert.deepEqual(signedRecords(paths), files);
  });
});
