import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { createFile, PRIVATE, replacePrivateFile, writeWhole } from "../../../src/runtime/write-file.ts";
import { ROOT, temporaryFolder } from "../../support/temporary.ts";

const modeOf = (file: string) => statSync(file).mode & 0o777;

describe("writing files", () => {
  it("a private file is readable by its user alone, even when it replaces one that was readable by all", (t) => {
    const directory = temporaryFolder(t);
    const file = join(directory, "deep", "secret");
    createFile(file, "one");
    assert.equal(modeOf(file), 0o600);
    chmodSync(file, 0o644);
    replacePrivateFile(file, "two");
    assert.equal(modeOf(file), 0o600);
    assert.equal(readFileSync(file, "utf8"), "two");
    assert.deepEqual(readdirSync(join(directory, "deep")), ["secret"], "nothing is left beside it");
  });

  it("a file below a folder in which none can be made is refused at once", () => {
    assert.throws(() => createFile("/proc/none/deep/secret", "one"), {
      ...{ code: "usage", message: "cannot write /proc/none/deep/secret: ENOENT" },
    });
  });

  it("a private file is written although a killed process of the same ID has left a staging copy", (t) => {
    const directory = temporaryFolder(t);
    const file = join(directory, "secret");
    writeFileSync(`${file}.${process.pid}.new`, "half", { mode: 0o644 });
    replacePrivateFile(file, "whole");
    assert.equal(readFileSync(file, "utf8"), "whole");
    assert.equal(modeOf(file), 0o600);
    assert.deepEqual(readdirSync(directory), ["secret"]);
  });

  it("a private file takes the place of no device, pipe or link", (t) => {
    const directory = temporaryFolder(t);
    const [pipe, link] = [join(directory, "pipe"), join(directory, "link")];
    assert.equal(spawnSync("mkfifo", [pipe]).status, 0);
    symlinkSync("elsewhere", link);
    for (const file of [pipe, link]) {
      assert.throws(() => replacePrivateFile(file, "lost"), { code: "usage", message: /no regular file/ });
    }
    assert.ok(statSync(pipe).isFIFO());
    assert.equal(readlinkSync(link), "elsewhere");
  });

  it("the first write in a folder removes staging copies of killed processes, and nothing else", (t) => {
    const directory = temporaryFolder(t);
    const file = join(directory, "state.json");
    writeFileSync(join(directory, "run.json"), "whole");
    const old = ["state.json.12.new", "run.json.34.new", "state.json.new", "other.json.12.new"];
    for (const name of [...old, "state.json.56.new"]) writeFileSync(join(directory, name), "half");
    const before = statSync(join(directory, "state.json.12.new")).mtimeMs / 1_000 - 7_200;
    for (const name of old) utimesSync(join(directory, name), before, before);
    writeWhole(file, "whole", PRIVATE);
    const left = ["other.json.12.new", "run.json", "state.json", "state.json.56.new", "state.json.new"];
    assert.deepEqual(readdirSync(directory).sort(), left);

    // Ten thousand writes in a folder do not look through ten thousand names each.
    writeFileSync(join(directory, "state.json.78.new"), "half");
    utimesSync(join(directory, "state.json.78.new"), before, before);
    writeWhole(file, "again", PRIVATE);
    assert.deepEqual(readdirSync(directory).sort(), [...left, "state.json.78.new"].sort());
  });

  it("nothing is left of a private file that could not be written whole", (t) => {
    const directory = temporaryFolder(t);
    const file = join(directory, "secret");
    const module = join(ROOT, "src/runtime/write-file.ts");
    const program = `import { createFile } from ${JSON.stringify(module)};
      createFile(${JSON.stringify(file)}, "x".repeat(4096));`;
    // Files of at most a kilobyte, as on a disk that is full.
    const limited = 'ulimit -f 1; exec "$0" --input-type=module --eval "$1"';
    const { status, stderr } = spawnSync("bash", ["-c", limited, process.execPath, program], {
      encoding: "utf8",
    });
    assert.match(stderr, /cannot write .*secret: EFBIG/);
    assert.equal(status, 1);
    assert.deepEqual(readdirSync(directory), []);
  });

  it("creating keeps an existing file, and names a folder that is in the way", (t) => {
    const directory = temporaryFolder(t);
    const file = join(directory, "secret");
    writeFileSync(file, "kept");
    assert.throws(() => createFile(file, "lost"), { code: "usage", hint: /Move it away first/ });
    assert.equal(readFileSync(file, "utf8"), "kept");
    assert.throws(() => replacePrivateFile(directory, "lost"), { code: "usage" });
    const below = join(file, "export.json");
    assert.throws(() => replacePrivateFile(below, "lost"), { code: "usage", hint: /^Check the path/ });
    assert.deepEqual(readdirSync(directory), ["secret"]);
  });
});
