import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { describe, it } from "node:test";
import { placeFile } from "../../../src/gateway/envoy-files.ts";
import { temporaryFolder } from "../../support/temporary.ts";

describe("live files", () => {
  it("a file is replaced by another file, never written in place, and nothing else stands beside it", (t) => {
    const folder = temporaryFolder(t);
    assert.equal(placeFile(folder, "live/rds.json", "one"), true);
    const before = statSync(`${folder}/live/rds.json`).ino;
    assert.equal(placeFile(folder, "live/rds.json", "two"), true);
    assert.notEqual(statSync(`${folder}/live/rds.json`).ino, before);
    assert.equal(readFileSync(`${folder}/live/rds.json`, "utf8"), "two");
    assert.deepEqual(readdirSync(`${folder}/live`), ["rds.json"]);
  });

  it("a file with the same content is left alone", (t) => {
    const folder = temporaryFolder(t);
    placeFile(folder, "live/lds.json", "one");
    const before = statSync(`${folder}/live/lds.json`).ino;
    assert.equal(placeFile(folder, "live/lds.json", "one"), false);
    assert.equal(statSync(`${folder}/live/lds.json`).ino, before);
  });
});
