import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import type { Json } from "../../../src/domain/json.ts";
import {
  JSON_DEPTH_MAX,
  JSON_VALUES_MAX,
  JsonFault,
  type JsonFaultReason,
  parseStrictJson,
} from "../../../src/domain/strict-json.ts";
import { anyCharacter } from "../../support/arbitraries.ts";

const BYTES_MAX = 256 * 1024;

const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

function reasonOf(input: string | Uint8Array): JsonFaultReason | undefined {
  try {
    parseStrictJson(typeof input === "string" ? Buffer.from(input) : input, BYTES_MAX);
    return undefined;
  } catch (error) {
    if (error instanceof JsonFault) return error.reason;
    throw error;
  }
}

describe("parseStrictJson", () => {
  it("the output of JSON.stringify is read as JSON.parse reads it", () => {
    fc.assert(
      fc.property(fc.jsonValue({ stringUnit: anyCharacter }), fc.constantFrom(0, 2), (value, indent) => {
        const text = JSON.stringify(value, undefined, indent);
        if (text.includes("\\u0000")) return;
        assert.deepEqual(plain(parseStrictJson(Buffer.from(text), BYTES_MAX)), JSON.parse(text));
      }),
    );
  });

  it("any bytes are either read as JSON.parse reads them or refused, and nothing else is thrown", () => {
    const nearlyJson = fc
      .array(fc.constantFrom(...'{}[]",:\\u0019.eE+-truefalsn \n\té\u0000'), { maxLength: 40 })
      .map((parts) => Buffer.from(parts.join("")));
    fc.assert(
      fc.property(fc.oneof(fc.uint8Array({ maxLength: 64 }), nearlyJson), (bytes) => {
        if (reasonOf(bytes) !== undefined) return;
        const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
        assert.deepEqual(plain(parseStrictJson(bytes, BYTES_MAX)), plain(JSON.parse(text)));
      }),
      { numRuns: 2_000 },
    );
  });

  const REFUSED: readonly (readonly [string, string | Uint8Array, JsonFaultReason])[] = [
    ["nothing", "", "not_json"],
    ["white space alone", " \n", "not_json"],
    ["a byte order mark", "\ufeff{}", "not_utf8"],
    ["UTF-16, little endian", Buffer.from("{}", "utf16le"), "not_json"],
    ["UTF-16 with its mark", Buffer.from("\ufeff{}", "utf16le"), "not_utf8"],
    ["UTF-32, big endian", Buffer.from([0, 0, 0, 0x7b, 0, 0, 0, 0x7d]), "not_json"],
    ["an overlong encoding", Buffer.from([0x22, 0xc0, 0xaf, 0x22]), "not_utf8"],
    ["an encoded surrogate", Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]), "not_utf8"],
    ["a byte past U+10FFFF", Buffer.from([0x22, 0xf4, 0x90, 0x80, 0x80, 0x22]), "not_utf8"],
    ["a truncated sequence", Buffer.from([0x22, 0xe2, 0x82, 0x22]), "not_utf8"],
    ["a lone high surrogate", String.raw`"\ud800"`, "bad_string"],
    ["a lone low surrogate", String.raw`"\udc00x"`, "bad_string"],
    ["swapped surrogates", String.raw`"\ude00\ud83d"`, "bad_string"],
    ["a lone surrogate in a name", String.raw`{"\ud800":1}`, "bad_string"],
    ["an escaped NUL", String.raw`"a\u0000"`, "bad_string"],
    ["an escaped NUL in a name", String.raw`{"name\u0000":1}`, "bad_string"],
    ["a raw NUL", '"a\0"', "not_json"],
    ["a raw line break in a string", '"a\nb"', "not_json"],
    ["a NUL after the value", "{}\0", "not_json"],
    ["a second value", "{}{}", "not_json"],
    ["a trailing comma in an object", '{"a":1,}', "not_json"],
    ["a trailing comma in an array", "[1,]", "not_json"],
    ["a leading comma", "[,1]", "not_json"],
    ["no comma", "[1 2]", "not_json"],
    ["no colon", '{"a" 1}', "not_json"],
    ["no name", "{1:2}", "not_json"],
    ["single quotes", "{'a':1}", "not_json"],
    ["a comment", "{}/* */", "not_json"],
    ["an unknown escape", String.raw`"\x41"`, "not_json"],
    ["a short escape", String.raw`"\u12"`, "not_json"],
    ["an unended string", '"a', "not_json"],
    ["an unended object", '{"a":1', "not_json"],
    ["an unended array", "[[1]", "not_json"],
    ["a plus sign", "+1", "not_json"],
    ["a leading zero", "01", "not_json"],
    ["no digit after the point", "1.", "not_json"],
    ["no digit before the point", ".5", "not_json"],
    ["no digit in the exponent", "1e", "not_json"],
    ["hexadecimal", "0x10", "not_json"],
    ["NaN", "NaN", "not_json"],
    ["Infinity", "-Infinity", "not_json"],
    ["a literal in capitals", "True", "not_json"],
    ["a number too large for a double", "1e400", "bad_number"],
    ["a form feed as white space", "\f{}", "not_json"],
    ["a no-break space as white space", "\u00a0{}", "not_json"],
    ["a duplicate name", '{"a":1,"a":1}', "duplicate_key"],
    ["a duplicate name spelled with an escape", String.raw`{"name":1,"n\u0061me":1}`, "duplicate_key"],
    ["a duplicate name deep inside", '{"a":[{"b":{"c":1,"d":2,"c":1}}]}', "duplicate_key"],
    ["a duplicate __proto__", '{"__proto__":1,"__proto__":2}', "duplicate_key"],
    ["one level too deep", "[".repeat(JSON_DEPTH_MAX + 1) + "]".repeat(JSON_DEPTH_MAX + 1), "too_deep"],
    ["very deep", '{"a":'.repeat(40_000), "too_deep"],
    ["more bytes than allowed", `"${"a".repeat(256 * 1024)}"`, "too_large"],
  ];
  for (const [what, input, reason] of REFUSED) {
    it(`refused as ${reason}: ${what}`, () => {
      assert.equal(reasonOf(input), reason);
    });
  }

  it("the same name at different levels is accepted", () => {
    assert.equal(reasonOf('{"a":{"a":[{"a":1},{"a":2}]}}'), undefined);
  });

  it("the deepest and the largest allowed texts are read", () => {
    assert.equal(reasonOf("[".repeat(JSON_DEPTH_MAX) + "]".repeat(JSON_DEPTH_MAX)), undefined);
    assert.equal(reasonOf(`"${"a".repeat(256 * 1024 - 2)}"`), undefined);
  });

  it("a text of more values than any document has is refused before it is parsed, however long it may be", () => {
    const text = Buffer.from(`[${"{},".repeat(JSON_VALUES_MAX / 2)}{}]`);
    assert.throws(() => parseStrictJson(text, 2 * text.length), { name: "JsonFault", reason: "too_large" });
    const few = Buffer.from(`["${" ".repeat(JSON_VALUES_MAX)}",{}]`);
    assert.equal((parseStrictJson(few, 2 * few.length) as Json[]).length, 2);
  });

  it("numbers are rounded to doubles", () => {
    const [large, tiny, zero] = parseStrictJson(
      Buffer.from("[9007199254740993, 1e-400, -0]"),
      BYTES_MAX,
    ) as number[];
    assert.equal(large, 9_007_199_254_740_992);
    assert.equal(tiny, 0);
    assert.ok(Object.is(zero, -0));
  });
});
