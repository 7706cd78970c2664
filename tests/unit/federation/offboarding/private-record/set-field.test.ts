// Changing one field of a private record from the command line.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parse } from "yaml";
import {
  fieldValue,
  requireField,
  setField,
} from "../../../../../src/federation/offboarding/private-record/file.ts";
import { COMPLETE_RECORD, recordJson } from "../../../../support/sample-files.ts";

describe("setField and fieldValue", () => {
  it("setField changes one field alone, and keeps comments [OFF-1]", () => {
    const changed = setField(COMPLETE_RECORD, "technical.rollbackOwner", "S-9");
    assert.match(changed, /# the on-call engineer of that night/);
    const before = parse(COMPLETE_RECORD);
    before.technical.rollbackOwner = "S-9";
    assert.deepEqual(parse(changed), before);
    const json = setField(recordJson(), "technical.rollbackOwner", "S-9");
    assert.deepEqual(JSON.parse(json), before);
    assert.equal(
      parse(setField(changed, "technical.rollbackOwner", undefined)).technical.rollbackOwner,
      null,
    );
  });

  it("fieldValue reads the words of a field by its type, or refuses them [OFF-1]", () => {
    assert.deepEqual(fieldValue(requireField("duties.purge.rooms"), ["!a=b:c=room", "!d=keep"]), [
      { room: "!a=b:c", how: "room" },
      { room: "!d", how: "keep" },
    ]);
    assert.equal(fieldValue(requireField("readmission.possible"), ["false"]), false);
    assert.deepEqual(fieldValue(requireField("affected.routes"), ["/a", "/b"]), ["/a", "/b"]);
    for (const [field, words] of [
      ["duties.purge.rooms", ["!a=purge"]],
      ["readmission.possible", ["yes"]],
      ["technical.owner", ["a", "b"]],
    ] as const) {
      assert.throws(() => fieldValue(requireField(field), words), { code: "usage" });
    }
    for (const path of ["technical", "run", "version", "__proto__", "nothing.here"]) {
      assert.throws(() => requireField(path), { code: "usage" });
    }
  });
});
