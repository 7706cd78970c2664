// How a command that runs another command of the CLI reports the end of that one.
import assert from "node:assert/strict";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { ROOT, run, temporaryFolder, writeFile } from "../../support/temporary.ts";

const WORDS = ["federation", "contain", "lighthouse"];

/** In a process of its own, because it writes to standard error. */
async function called(script: string, executable = process.execPath) {
  const code = `
    const { runCommand } = await import(${JSON.stringify(join(ROOT, "src/cli/federation/report-abuse.ts"))});
    const code = await runCommand(${JSON.stringify(WORDS)}, ${JSON.stringify([executable, script])});
    process.stdout.write(String(code));`;
  return await run(process.execPath, ["--input-type=module", "-e", code]);
}

describe("runCommand", () => {
  it("a command that cannot be started or is killed is reported with a hint and gives exit code 1 [ABU-1]", async (t) => {
    const script = join(temporaryFolder(t), "script.js");
    const missing = await called(script, "/nonexistent/node");
    assert.deepEqual([missing.code, missing.stdout], [0, "1"]);
    assert.match(
      missing.stderr,
      /^error: drawbridge federation contain lighthouse could not be started: ENOENT\nhint: Give that command/,
    );
    writeFile(script, 'process.kill(process.pid, "SIGKILL"); setInterval(() => {}, 1000);');
    const killed = await called(script);
    assert.equal(killed.stdout, "1");
    assert.match(
      killed.stderr,
      /^error: drawbridge federation contain lighthouse was ended by SIGKILL\nhint: /,
    );
    writeFile(script, "process.exit(5);");
    const incomplete = await called(script);
    assert.deepEqual([incomplete.stdout, incomplete.stderr], ["5", ""]);
  });
});
