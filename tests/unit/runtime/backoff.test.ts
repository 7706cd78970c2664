import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { jitteredBackoffMs } from "../../../src/runtime/backoff.ts";

const BACKOFF = { firstMs: 500, maxMs: 30_000 };
const random = (bytes: Uint8Array) => ({ bytes: (length: number) => Buffer.from(bytes.subarray(0, length)) });

describe("backoff", () => {
  it("a jittered back-off stays within its bounds", () => {
    fc.assert(
      fc.property(fc.nat(), fc.uint8Array({ minLength: 4, maxLength: 4 }), (attempts, bytes) => {
        const wait = jitteredBackoffMs(BACKOFF, attempts, random(bytes));
        assert.ok(wait >= 250 && wait <= 30_000, String(wait));
      }),
    );
  });

  it("a back-off doubles, and jitter spreads each wait, the first too, over its upper half", () => {
    const least = random(Buffer.alloc(4, 0));
    const most = random(Buffer.alloc(4, 255));
    assert.deepEqual(
      [0, 1, 2, 3, 10].map((attempts) => [
        jitteredBackoffMs(BACKOFF, attempts, least),
        jitteredBackoffMs(BACKOFF, attempts, most),
      ]),
      [
        [250, 500],
        [500, 1_000],
        [1_000, 2_000],
        [2_000, 4_000],
        [15_000, 30_000],
      ],
    );
  });
});
