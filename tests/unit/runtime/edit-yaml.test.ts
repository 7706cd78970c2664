// Changing single values of YAML and JSON files in their text.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { editYaml } from "../../../src/runtime/edit-yaml.ts";

const TEXT = `# Admitted on every plane.
planes:
  card: open # since May
card:
  consumes:
    weather: { url: "https://b.test" }
  note: "S-1204" # on call
`;

describe("editYaml", () => {
  it("replaces one word of the text when a plain value changes [PRT-1]", () => {
    const edited = editYaml(TEXT, [{ path: ["planes", "card"], value: "closed" }]);
    assert.equal(edited, TEXT.replace("card: open", "card: closed"));
    assert.equal(editYaml(edited, [{ path: ["planes", "card"], value: "closed" }]), edited);
    assert.equal(editYaml(edited, [{ path: ["planes", "card"], value: "open" }]), TEXT);
  });

  it("removes a key and sets any value while comments and order stay [PRT-1]", () => {
    const edited = editYaml(TEXT, [
      { path: ["card", "consumes", "weather"], value: undefined },
      { path: ["card", "note"], value: "S-9" },
      { path: ["retired", "clients"], value: ["b"] },
    ]);
    assert.deepEqual(parse(edited), {
      planes: { card: "open" },
      card: { consumes: {}, note: "S-9" },
      retired: { clients: ["b"] },
    });
    for (const comment of [/^# Admitted on every plane\.$/m, /# since May$/m, /# on call$/m]) {
      assert.match(edited, comment);
    }
  });

  it("keeps a JSON file JSON", () => {
    const edited = editYaml('{"a": {"b": 1}}', [{ path: ["a", "c"], value: [2] }]);
    assert.deepEqual(JSON.parse(edited), { a: { b: 1, c: [2] } });
  });

  it("refuses a text that is no map, or cannot be read", () => {
    for (const text of ["- a\n", "a: [", ""]) {
      assert.throws(() => editYaml(text, [{ path: ["a"], value: "b" }]), { code: "internal" });
    }
  });
});
