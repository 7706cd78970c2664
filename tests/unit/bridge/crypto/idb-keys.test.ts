// The oracle is fake-indexeddb, another implementation of the order of keys.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { indexedDB } from "fake-indexeddb";
import fc from "fast-check";
import {
  decodeKey,
  encodeKey,
  IDBKeyRange,
  type IdbKey,
  isWithin,
  sameFirstPart,
} from "../../../../src/bridge/crypto/idb-keys.ts";

const text = fc
  .array(fc.constantFrom("\u0000", "\u0001", "\u0002", "\u001d", "A", "b", "ü", "\uffff"), { maxLength: 5 })
  .map((units) => units.join(""));
const number = fc.oneof(fc.integer(), fc.double({ noNaN: true }), fc.constantFrom(0, -0, 1, 2, 3));
const part = fc.oneof(text, number);
const key: fc.Arbitrary<IdbKey> = fc.oneof(part, fc.array(part, { maxLength: 3 }));

describe("keys of IndexedDB as bytes", () => {
  it("sort as IndexedDB sorts the keys, whatever characters a string has", () => {
    fc.assert(
      fc.property(key, key, (one, other) => {
        assert.equal(Buffer.compare(encodeKey(one), encodeKey(other)), indexedDB.cmp(one, other));
      }),
      { numRuns: 2_000 },
    );
  });

  it("are read back when they are strings", () => {
    fc.assert(
      fc.property(text, (one) => {
        assert.equal(decodeKey(encodeKey(one)), one);
      }),
    );
  });

  it("are within a range by its bounds, open or closed", () => {
    fc.assert(
      fc.property(key, key, key, fc.boolean(), fc.boolean(), (a, b, one, lowerOpen, upperOpen) => {
        const [lower, upper] = indexedDB.cmp(a, b) <= 0 ? [a, b] : [b, a];
        const above = indexedDB.cmp(one, lower);
        const below = indexedDB.cmp(one, upper);
        const expected = (lowerOpen ? above > 0 : above >= 0) && (upperOpen ? below < 0 : below <= 0);
        const range = IDBKeyRange.bound(lower, upper, lowerOpen, upperOpen);
        assert.equal(isWithin(range, encodeKey(one)), expected);
      }),
      { numRuns: 2_000 },
    );
  });

  it("of one room are a range that holds no other room's, and a key without a room has none", () => {
    const range = sameFirstPart(encodeKey("room\u001dsession"));
    assert.ok(range !== undefined);
    for (const [one, expected] of [
      ["room\u001d", true],
      ["room\u001danother", true],
      ["room", false],
      ["room2\u001dsession", false],
      ["roo\u001dsession", false],
    ] as const) {
      assert.equal(isWithin(range, encodeKey(one)), expected, one);
    }
    assert.equal(sameFirstPart(encodeKey("room")), undefined);
  });

  it("of other kinds are refused", () => {
    for (const other of [undefined, null, Number.NaN, new Date(0), Buffer.from("x"), {}]) {
      assert.throws(() => encodeKey(other), { name: "DataError" });
    }
  });
});
