// The sample agent's command line.
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { ROOT, run } from "../../../support/temporary.ts";

describe("the sample agent's command line", () => {
  it("help and what is wrong are said without a stack", async () => {
    for (const [words, code, said] of [
      [["--help"], 0, /main\.ts --config FILE/],
      [["--nope"], 2, /^error: .*'--nope'/],
      [["--config", "/nonexistent.yaml"], 2, /^error: cannot read \/nonexistent\.yaml: ENOENT\nhint: /],
    ] as const) {
      const ended = await run(process.execPath, [join(ROOT, "examples/docs-qa/main.ts"), ...words]);
      assert.equal(ended.code, code);
      assert.match(`${ended.stdout}${ended.stderr}`, said);
      assert.doesNotMatch(ended.stderr, /\n +at /);
    }
  });
});
