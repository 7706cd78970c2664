import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { describe, it, type TestContext } from "node:test";
import { inMemory } from "../../../tasks/memory-folder.ts";

const MEMORY = "/dev/shm";

/** Without a temporary folder of the machine's, as a shell usually is. */
function withoutTmpdir(t: TestContext): void {
  const before = process.env["TMPDIR"];
  delete process.env["TMPDIR"];
  t.after(() => {
    if (before !== undefined) process.env["TMPDIR"] = before;
  });
}

describe("memory folder", () => {
  it("a run's temporary folder goes with it, and what a killed run has left goes with the next", async (t) => {
    withoutTmpdir(t);
    const { pid } = spawnSync(process.execPath, ["--version"]);
    const left = join(MEMORY, `drawbridge-${pid}-killed`);
    const other = join(MEMORY, `drawbridge-${process.pid}-atwork`);
    if (existsSync(MEMORY)) for (const folder of [left, other]) mkdirSync(folder);
    t.after(() => rmSync(other, { recursive: true, force: true }));
    let used = "";
    await assert.rejects(
      inMemory(async () => {
        used = tmpdir();
        writeFileSync(join(used, "drawbridge-written"), "");
        throw new Error("the tests failed");
      }),
      /the tests failed/,
    );
    if (used.startsWith(MEMORY)) {
      assert.ok(!existsSync(used) && !existsSync(left) && existsSync(other));
      assert.equal(process.env["TMPDIR"], undefined);
    }
  });

  it("TMPDIR says where instead", async (t) => {
    withoutTmpdir(t);
    process.env["TMPDIR"] = "/somewhere";
    t.after(() => delete process.env["TMPDIR"]);
    assert.equal(await inMemory(async () => tmpdir()), "/somewhere");
  });
});
