import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { CATALOGUES, textsBy } from "../../../../src/bridge/texts/language-of-room.ts";
import type { RoomId } from "../../../../src/domain/identifiers.ts";

/** Every text by its path. */
function leaves(value: unknown, path = ""): [string, string][] {
  if (typeof value === "string") return [[path, value]];
  if (typeof value === "function") return [[path, String(value("{value}"))]];
  return Object.entries(value as object).flatMap(([key, below]) => leaves(below, `${path}/${key}`));
}

const valuesIn = (text: string) => (text.match(/\{[a-z]+\}/g) ?? []).sort();

describe("the texts of the bridge", () => {
  it("every language has the same texts with the same values, and no text is left in English [NOT-1]", () => {
    const english = leaves(CATALOGUES.en);
    for (const [language, texts] of Object.entries(CATALOGUES)) {
      const own = new Map(leaves(texts));
      assert.deepEqual([...own.keys()].sort(), english.map(([path]) => path).sort(), language);
      for (const [path, text] of english) {
        assert.deepEqual(valuesIn(own.get(path) ?? ""), valuesIn(text), `${language} ${path}`);
        if (language !== "en") assert.notEqual(own.get(path), text, path);
      }
    }
  });

  it("a room gets the language that it is configured for, or the default [NOT-1]", () => {
    const textsOf = textsBy({ default: "en", rooms: { "!harbour": "de" } });
    assert.equal(textsOf("!other" as RoomId), CATALOGUES.en);
    assert.equal(textsOf("!harbour" as RoomId), CATALOGUES.de);
  });
});
