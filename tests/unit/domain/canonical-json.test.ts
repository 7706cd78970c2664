import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { canonicalize } from "../../../src/domain/canonical-json.ts";
import type { Json } from "../../../src/domain/json.ts";
import { parseStrictJson } from "../../../src/domain/strict-json.ts";

const parse = (text: string): Json => parseStrictJson(Buffer.from(text), 4096);
const wellFormed = fc.string({ unit: "grapheme" }).filter((text) => !text.includes("\0"));
const json = fc.jsonValue({ noUnicodeString: false, stringUnit: "grapheme" }) as fc.Arbitrary<Json>;

describe("canonicalize (RFC 8785)", () => {
  it("primitive values are written as in section 3.2.2", () => {
    const text = String.raw`{
    "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
    "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
    "literals": [null, true, false]
  }`;
    const expected = String.raw`{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`;
    assert.equal(canonicalize(parse(text)), expected);
  });

  it("the sample has the bytes of section 3.2.4", () => {
    const bytes = Buffer.from(
      canonicalize(parse(String.raw`"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"`)),
    );
    assert.equal(bytes.toString("hex"), "22e282ac245c75303030665c6e4127425c225c5c5c5c5c222f22");
  });

  it("each character of ASCII is written as ECMAScript writes it (section 3.2.2.2)", () => {
    for (let code = 0; code < 0x80; code++) {
      const text = `a${String.fromCharCode(code)}`;
      assert.equal(canonicalize(text), JSON.stringify(text));
    }
  });

  it("members are sorted by UTF-16 code units (section 3.2.3)", () => {
    const text = String.raw`{
    "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
    "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"
  }`;
    const names = [...canonicalize(parse(text)).matchAll(/":"([^"]+)"/g)].map((match) => match[1]);
    assert.deepEqual(names, [
      "Carriage Return",
      "One",
      "Control",
      "Latin Small Letter O With Diaeresis",
      "Euro Sign",
      "Emoji: Grinning Face",
      "Hebrew Letter Dalet With Dagesh",
    ]);
  });

  it("numbers are written as in appendix B", () => {
    const samples: readonly (readonly [string, string])[] = [
      ["0000000000000000", "0"],
      ["8000000000000000", "0"],
      ["0000000000000001", "5e-324"],
      ["8000000000000001", "-5e-324"],
      ["7fefffffffffffff", "1.7976931348623157e+308"],
      ["ffefffffffffffff", "-1.7976931348623157e+308"],
      ["4340000000000000", "9007199254740992"],
      ["c340000000000000", "-9007199254740992"],
      ["4430000000000000", "295147905179352830000"],
      ["44b52d02c7e14af5", "9.999999999999997e+22"],
      ["44b52d02c7e14af6", "1e+23"],
      ["44b52d02c7e14af7", "1.0000000000000001e+23"],
      ["444b1ae4d6e2ef4e", "999999999999999700000"],
      ["444b1ae4d6e2ef4f", "999999999999999900000"],
      ["444b1ae4d6e2ef50", "1e+21"],
      ["3eb0c6f7a0b5ed8c", "9.999999999999997e-7"],
      ["3eb0c6f7a0b5ed8d", "0.000001"],
      ["41b3de4355555553", "333333333.3333332"],
      ["41b3de4355555554", "333333333.33333325"],
      ["41b3de4355555555", "333333333.3333333"],
      ["41b3de4355555556", "333333333.3333334"],
      ["41b3de4355555557", "333333333.33333343"],
      ["becbf647612f3696", "-0.0000033333333333333333"],
      ["43143ff3c1cb0959", "1424953923781206.2"],
    ];
    for (const [bits, text] of samples) {
      assert.equal(canonicalize(Buffer.from(bits, "hex").readDoubleBE()), text, bits);
    }
  });

  it("NaN, infinities and lone surrogates are refused", () => {
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY, "\ud800", { "\udc00": 1 }, ["a\ud83d"]]) {
      assert.throws(() => canonicalize(value), RangeError);
    }
  });

  it("a canonical text is its own canonical form", () => {
    fc.assert(
      fc.property(json, (value) => {
        const once = canonicalize(value);
        assert.equal(
          canonicalize(parse(once.replaceAll("\\u0000", "\\u0001"))),
          once.replaceAll("\\u0000", "\\u0001"),
        );
      }),
    );
  });

  it("values with another order of members or white space have one canonical form", () => {
    fc.assert(
      fc.property(fc.dictionary(wellFormed, json), fc.infiniteStream(fc.nat()), (members, random) => {
        const shuffled = Object.entries(members)
          .map((member) => ({ member, rank: random.next().value ?? 0 }))
          .sort((one, other) => one.rank - other.rank)
          .map(({ member }) => member);
        assert.equal(canonicalize(Object.fromEntries(shuffled)), canonicalize(members));
      }),
    );
  });

  it("a member named __proto__ is written like any other", () => {
    assert.equal(
      canonicalize(parse('{"b":{"__proto__":{"x":1}},"a":2}')),
      '{"a":2,"b":{"__proto__":{"x":1}}}',
    );
  });
});
