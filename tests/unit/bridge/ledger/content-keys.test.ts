import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";

describe("ContentKeys", () => {
  it("decrypts only with the right key, for the right row, unchanged content", () => {
    const line = (byte: number) => Buffer.alloc(32, byte).toString("base64");
    const keys = ContentKeys.parse(`${line(1)}\n${line(2)}\n`);
    const sealed = keys.seal("the prompt\u0000 \u{1f600}", "row 1");
    assert.equal(keys.open(sealed, "row 1"), "the prompt\u0000 \u{1f600}");
    assert.ok(!sealed.includes("prompt"));
    assert.throws(() => keys.open(sealed, "row 2"), { code: "secret_unavailable" });
    for (const index of [0, 5, 17, sealed.length - 1]) {
      const bent = Buffer.from(sealed);
      bent[index] = (bent[index] ?? 0) ^ 1;
      assert.throws(() => keys.open(bent, "row 1"), { code: "secret_unavailable" });
    }
    const rotated = ContentKeys.parse(`${line(3)}\n${line(1)}`);
    assert.equal(rotated.open(sealed, "row 1"), "the prompt\u0000 \u{1f600}", "an old key still opens");
    assert.throws(() => ContentKeys.parse(line(3)).open(sealed, "row 1"), { code: "secret_unavailable" });
    assert.throws(() => ContentKeys.parse("c2hvcnQ="), { code: "secret_unavailable" });
    assert.throws(() => ContentKeys.parse("\n"), { code: "secret_unavailable" });
  });

  it("seals each value with a nonce of its own", () => {
    const keys = ContentKeys.parse(Buffer.alloc(32, 1).toString("base64"));
    const sealed = Array.from({ length: 300 }, () => keys.seal("the same", "row"));
    assert.equal(new Set(sealed.map((one) => one.subarray(4, 16).toString("hex"))).size, 300);
    for (const one of sealed) assert.equal(keys.open(one, "row"), "the same");
  });
});
