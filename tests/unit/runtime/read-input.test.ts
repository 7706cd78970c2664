// Files that an operator names: read whole, or refused by name.
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, it } from "node:test";
import { readInput } from "../../../src/runtime/read-input.ts";
import { temporaryFolder, writeFile } from "../../support/temporary.ts";

describe("readInput", () => {
  it("readInput reads a file, and refuses a folder, what is absent and a device that has no end", (t) => {
    const folder = temporaryFolder(t);
    const file = join(folder, "input");
    writeFile(file, "one");
    assert.equal(readInput(file).toString(), "one");
    const refused = (path: string, why: RegExp) =>
      assert.throws(() => readInput(path, "Name another."), {
        ...{ code: "config_unreadable", message: why, hint: "Name another." },
      });
    refused(join(folder, "absent"), /absent: ENOENT$/);
    refused(folder, /: EISDIR$/);
    refused("/dev/zero", /cannot read \/dev\/zero: it is a device$/);
  });
});
