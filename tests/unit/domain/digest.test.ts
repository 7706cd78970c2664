// Digests, and that one file knows how they are written.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { digestOf, hexOfDigest, isDigest, sha256, sha256Tagged } from "../../../src/domain/digest.ts";
import { ROOT } from "../../support/temporary.ts";

describe("digests", () => {
  it("of a text are the same whole, in pieces and as hexadecimal digits", () => {
    const digest = sha256Tagged("a text");
    assert.equal(digestOf(createHash("sha256").update("a ").update("text")), digest);
    assert.equal(hexOfDigest(digest), sha256("a text").toString("hex"));
    assert.deepEqual([digest, hexOfDigest(digest)].map(isDigest), [true, false]);
  });

  it("are written and read by no file but their own, and the field that checks their form", () => {
    const COMMENT = /^\s*(?:\/\/|\/?\*)/;
    const files = globSync("{src,packages}/**/*.ts", { cwd: ROOT }).filter((file) => {
      const lines = readFileSync(join(ROOT, file), "utf8").split("\n");
      return lines.some((line) => !COMMENT.test(line) && /["'`^]sha256:/.test(line));
    });
    assert.deepEqual(files.sort(), ["src/domain/digest.ts", "src/domain/identifier-fields.ts"]);
  });
});
