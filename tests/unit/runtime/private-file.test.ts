import assert from "node:assert/strict";
import { chmodSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createPrivateFile, replacePrivateFile } from "../../../src/runtime/private-file.ts";
import { temporaryFolder } from "../../support/temporary.ts";

const modeOf = (file: string) => statSync(file).mode & 0o777;

test("a private file is readable by its user alone, also in the place of one that was open to all", (t) => {
  const directory = temporaryFolder(t);
  const file = join(directory, "deep", "secret");
  createPrivateFile(file, "one");
  assert.equal(modeOf(file), 0o600);
  chmodSync(file, 0o644);
  replacePrivateFile(file, "two");
  assert.equal(modeOf(file), 0o600);
  assert.equal(readFileSync(file, "utf8"), "two");
  assert.deepEqual(readdirSync(join(directory, "deep")), ["secret"], "nothing is left beside it");
});

test("creating never touches a file that is there, and a folder in the way is named", (t) => {
  const directory = temporaryFolder(t);
  const file = join(directory, "secret");
  writeFileSync(file, "kept");
  assert.throws(() => createPrivateFile(file, "lost"), { code: "usage", mend: /Move it away first/ });
  assert.equal(readFileSync(file, "utf8"), "kept");
  assert.throws(() => replacePrivateFile(directory, "lost"), { code: "usage" });
  assert.deepEqual(readdirSync(directory), ["secret"]);
});
