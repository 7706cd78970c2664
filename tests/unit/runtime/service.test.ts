import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { serviceLog } from "../../../src/runtime/service.ts";
import { temporaryFolder } from "../../support/temporary.ts";

describe("the log of a service", () => {
  it("escapes what could act on a terminal, C1 controls included, and stays one JSON object a line", (t) => {
    const file = join(temporaryFolder(t), "log");
    const reason = "a\u001b[31m\u007f\u0080\u009b31m\u009f\u202e\u2028\n\u{e0001} ü 😀";
    const log = serviceLog("bridge", { file });
    log.info({ reason }, "first");
    log.child({ of: "\u0085" }).warn("second");
    const written = readFileSync(file, "utf8");
    assert.doesNotMatch(written.replaceAll("\n", ""), /[\p{Cc}\p{Cf}\p{Zl}]/u);
    const lines = written
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line));
    assert.deepEqual(
      lines.map(({ reason, of, msg }) => ({ reason, of, msg })),
      [
        { reason, of: undefined, msg: "first" },
        { reason: undefined, of: "\u0085", msg: "second" },
      ],
    );
  });
});
