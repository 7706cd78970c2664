// What stands where a rendered file is to be need not be a file.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { applyFile, fileDrift } from "../../../../src/federation/planes/file-target.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

describe("applyFile and fileDrift", () => {
  it("a pipe in a rendered file's place is reported as drift, replaced, and never waited for [GIT-1]", (t) => {
    const target = join(temporaryFolder(t), "policy.json");
    execFileSync("mkfifo", [target]);
    assert.deepEqual(fileDrift(target, "new"), { subject: target, kind: "edited", found: null });
    assert.equal(applyFile(target, "new"), true);
    assert.equal(readFileSync(target, "utf8"), "new");
  });

  it("a folder in a rendered file's place is an error with a hint [GIT-1]", (t) => {
    const target = join(temporaryFolder(t), "policy.json");
    mkdirSync(target);
    assert.equal(fileDrift(target, "new")?.found, null);
    assert.throws(() => applyFile(target, "new"), {
      code: "config_invalid",
      hint: /federation\.yaml/,
    });
  });
});
