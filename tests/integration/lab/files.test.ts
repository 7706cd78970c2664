import assert from "node:assert/strict";
import { appendFileSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import * as z from "zod";
import { tailOf } from "../../../lab/ask/logs.ts";
import {
  changeConfiguration,
  keepSecret,
  readJson,
  writeConfiguration,
  writeJson,
} from "../../../lab/files.ts";
import { temporaryFolder } from "../../support/temporary.ts";

describe("the files of a lab", () => {
  it("configuration follows the lab until it is edited by hand; then it is kept and reported", (t) => {
    const folder = temporaryFolder(t);
    const [file, manifest] = [join(folder, "bridge.yaml"), join(folder, "manifest.json")];
    const write = (text: string) => writeConfiguration([{ file, text, mode: 0o644 }], manifest);
    assert.deepEqual(write("one"), []);
    assert.deepEqual(write("two"), []);
    assert.equal(readFileSync(file, "utf8"), "two");
    writeFileSync(file, "mine");
    assert.deepEqual(write("three"), [file]);
    assert.deepEqual(write("four"), [file]);
    assert.equal(readFileSync(file, "utf8"), "mine");
    writeFileSync(file, "two");
    assert.deepEqual(write("five"), []);
    assert.equal(readFileSync(file, "utf8"), "five");
    writeFileSync(file, "a: {b: 1}\n");
    changeConfiguration(file, ["a", "b"], 2, manifest);
    assert.deepEqual(write("six"), [], "what the lab itself has changed is kept, and not reported");
    assert.equal(readFileSync(file, "utf8"), "a: { b: 2 }\n");
    appendFileSync(file, "# mine\n");
    assert.deepEqual(write("seven"), [file]);
  });

  it("a secret is made once, and readable by this user alone", async (t) => {
    const file = join(temporaryFolder(t), "deep", "secret");
    assert.equal(await keepSecret(file, () => "first"), "first");
    assert.equal(await keepSecret(file, () => "second"), "first");
    assert.equal(statSync(file).mode & 0o777, 0o600);
  });

  it("a damaged state file is an error with a hint, and a missing one is not", (t) => {
    const file = join(temporaryFolder(t), "state.json");
    const schema = z.strictObject({ version: z.literal(1) });
    assert.equal(readJson(schema, file), undefined);
    writeJson(file, { version: 1 });
    assert.deepEqual(readJson(schema, file), { version: 1 });
    for (const text of ["{", '{"version":2}', '{"version":1,"more":1}', ""]) {
      writeFileSync(file, text);
      assert.throws(() => readJson(schema, file), { code: "config_invalid" });
    }
  });

  it("a tail gives whole lines only, each once, and starts over with a new file", (t) => {
    const file = join(temporaryFolder(t), "log");
    writeFileSync(file, "old\n");
    const tail = tailOf(file);
    assert.deepEqual(tail(), []);
    appendFileSync(file, "one\ntw");
    assert.deepEqual(tail(), ["one"]);
    appendFileSync(file, "o\n");
    assert.deepEqual(tail(), ["two"]);
    assert.deepEqual(tail(), []);
    writeFileSync(file, "x\n");
    assert.deepEqual(tail(), ["x"]);
  });
});
