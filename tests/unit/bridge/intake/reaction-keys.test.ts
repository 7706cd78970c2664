import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { sameKey } from "../../../../src/bridge/intake/continued-exchanges.ts";

describe("keys of reactions", () => {
  it("are the same with the marks of an emoji and without, and long texts are no keys [DEL-6]", () => {
    assert.ok(sameKey("1\u{fe0f}\u{20e3}", " 1 "));
    assert.ok(sameKey("Yes", "yes"));
    assert.ok(!sameKey("1", "2"));
    // A file without a caption says "", and chooses no option of which nothing is seen.
    assert.ok(!sameKey("\u{fe0f}", ""));
    for (const invisible of ["\u{200b}", "\u{3164}", "\u{2800}"]) assert.ok(!sameKey(invisible, invisible));
    assert.ok(sameKey("❤\u{fe0f}", "❤"));
    assert.ok(!sameKey("1", `1${"\u{fe0f}".repeat(20_000)}`));
  });
});
