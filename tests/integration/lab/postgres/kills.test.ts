// What crash tests do to the programs that they kill, and to the machine.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { runUntilKilled } from "../../../support/kills.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

describe("a program that a test kills", () => {
  it("a program that is killed at work leaves nothing in the temporary directory", async (t) => {
    const program = join(temporaryFolder(t), "program.ts");
    writeFile(
      program,
      `import { mkdtempSync } from "node:fs";
    import { tmpdir } from "node:os";
    console.log(mkdtempSync(tmpdir() + "/left-"));
    console.log("begun");
    setInterval(() => {}, 1_000);`,
    );
    const { killed, stdout } = await runUntilKilled([], 1, program);
    const [left] = stdout.split("\n");
    assert.ok(killed && left?.includes("left-") === true);
    assert.equal(existsSync(left), false);
  });
});
