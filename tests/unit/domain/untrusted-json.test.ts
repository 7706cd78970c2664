import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { isTooDeep, measureJson, parseUntrustedJson } from "../../../src/domain/strict-json.ts";

const lists = (depth: number, inside = "1") => "[".repeat(depth) + inside + "]".repeat(depth);
const objects = (depth: number, name = "a") => `{"${name}":`.repeat(depth).concat("1", "}".repeat(depth));

describe("JSON from outside", () => {
  it("is what JSON.parse makes of it up to 256 levels", () => {
    const text = fc.json({ maxDepth: 20 });
    fc.assert(fc.property(text, (one) => assert.deepEqual(parseUntrustedJson(one), JSON.parse(one))));
    for (const one of [lists(256), objects(256), objects(256, "__proto__")]) {
      assert.equal(JSON.stringify(parseUntrustedJson(one)), one);
    }
    assert.equal(parseUntrustedJson("[1"), undefined);
  });

  it("is measured by its text alone", () => {
    const measured = (value: unknown): { levels: number; values: number } => {
      if (typeof value !== "object" || value === null) return { levels: 0, values: 0 };
      const inside = Object.values(value).map(measured);
      return {
        levels: 1 + Math.max(0, ...inside.map(({ levels }) => levels)),
        values: inside.reduce(
          (sum, { values }) => sum + values,
          Array.isArray(value) ? 1 : 1 + Object.keys(value).length,
        ),
      };
    };
    const examples: [unknown][] = [[{ '"': '\\"[', "{": ["\\", ":"] }]];
    fc.assert(
      fc.property(fc.jsonValue(), (one) =>
        assert.deepEqual(measureJson(JSON.stringify(one)), measured(JSON.parse(JSON.stringify(one)))),
      ),
      { examples: examples as never },
    );
  });

  it("can be serialised and cloned however deep it was, and what stands beside the deep part is kept", () => {
    for (const depth of [257, 3_300, 100_000]) {
      for (const deep of [lists(depth), objects(depth), objects(depth, "__proto__")]) {
        const value = parseUntrustedJson(`{"__proto__":{"x":1},"deep":${deep},"after":[{"b":[]}]}`);
        structuredClone(value);
        const text = JSON.stringify(value);
        assert.ok(text.startsWith('{"__proto__":{"x":1},"deep":'));
        assert.ok(text.endsWith(',"after":[{"b":[]}]}'));
        assert.ok(text.includes("null"));
      }
    }
  });

  it("a part is too deep above 128 levels, also after the cut and inside what carries it", () => {
    const isPartTooDeep = (part: string) => {
      const { events } = parseUntrustedJson(`{"events":[${part}]}`) as { events: unknown[] };
      return isTooDeep(events[0]);
    };
    const depths = fc.tuple(fc.integer({ min: 1, max: 20_000 }), fc.constantFrom(lists, objects));
    fc.assert(
      fc.property(depths, ([depth, made]) => assert.equal(isPartTooDeep(made(depth)), depth > 128)),
      { examples: [[[128, lists]], [[129, objects]]], numRuns: 60 },
    );
    assert.equal(isTooDeep("text"), false);
  });
});
