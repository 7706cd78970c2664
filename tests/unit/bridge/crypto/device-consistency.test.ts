// When a ghost's device is opened, made or stopped, from what its store and the homeserver say.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { checkConsistency, type DeviceFacts } from "../../../../src/bridge/crypto/ghost-device.ts";

const OURS = { curve25519: "curve", ed25519: "ed" };
const OTHER = { curve25519: "curve2", ed25519: "ed2" };
const AT = { crossSigned: true, identity: OURS };

const facts = (changes: Partial<DeviceFacts> = {}): DeviceFacts => ({
  deviceId: "DEVICE",
  opened: { kind: "opened", identity: OURS },
  store: { deviceId: "DEVICE", epoch: 3, publishedAt: 1, identity: OURS },
  published: AT,
  record: { deviceId: "DEVICE", epoch: 3 },
  ...changes,
});

const cases: readonly [name: string, changes: Partial<DeviceFacts>, result: string][] = [
  ["all agrees", {}, "consistent"],
  [
    "the homeserver was told a moment before it crashed",
    { record: { deviceId: "DEVICE", epoch: 2 } },
    "consistent",
  ],
  [
    "made, and nothing was published yet",
    {
      published: undefined,
      record: undefined,
      store: { deviceId: "DEVICE", epoch: 0, publishedAt: undefined, identity: OURS },
    },
    "consistent",
  ],
  [
    "the epoch was raised, and the first upload failed",
    {
      published: undefined,
      record: { deviceId: "DEVICE", epoch: 1 },
      store: { deviceId: "DEVICE", epoch: 1, publishedAt: undefined, identity: OURS },
    },
    "consistent",
  ],
  [
    "never was one",
    { opened: { kind: "no_store" }, store: undefined, published: undefined, record: undefined },
    "create",
  ],
  [
    "was reset",
    {
      opened: { kind: "no_store" },
      store: undefined,
      published: undefined,
      record: { deviceId: "DEVICE", epoch: 0 },
    },
    "create",
  ],
  ["the store is gone", { opened: { kind: "no_store" }, store: undefined }, "store_lost"],
  [
    "store and keys are gone",
    { opened: { kind: "no_store" }, store: undefined, published: undefined },
    "store_lost",
  ],
  [
    "the whole database is gone, so the device ID is another",
    {
      opened: { kind: "no_store" },
      store: undefined,
      published: undefined,
      record: { deviceId: "OLD", epoch: 9 },
    },
    "store_lost",
  ],
  ["no key opens it", { opened: { kind: "foreign" } }, "store_foreign"],
  [
    "another device's keys are published",
    { published: { crossSigned: true, identity: OTHER } },
    "store_foreign",
  ],
  [
    "one key of two is another",
    { published: { crossSigned: true, identity: { ...OURS, ed25519: "x" } } },
    "store_foreign",
  ],
  ["a backup was put back", { record: { deviceId: "DEVICE", epoch: 4 } }, "store_behind"],
  ["a backup from before a reset was put back", { record: { deviceId: "NEWER", epoch: 0 } }, "store_behind"],
  ["it was deleted", { published: undefined }, "device_deleted"],
];

describe("checkConsistency of a ghost's device", () => {
  for (const [name, changes, result] of cases) {
    it(`checkConsistency answers ${result}: ${name} [ENC-2]`, () => {
      assert.equal(checkConsistency(facts(changes)), result);
    });
  }

  it("checkConsistency makes no device when the store or the homeserver has any trace of one [ENC-2]", () => {
    const identity = fc.constantFrom(OURS, OTHER);
    const arbitrary = fc.record({
      deviceId: fc.constant("DEVICE"),
      opened: fc.oneof(
        fc.constant({ kind: "no_store" as const }),
        fc.constant({ kind: "foreign" as const }),
        fc.constant({ kind: "store_exists" as const }),
        identity.map((one) => ({ kind: "opened" as const, identity: one })),
      ),
      store: fc.option(
        fc.record({
          deviceId: fc.constantFrom("DEVICE", "OTHER"),
          epoch: fc.integer({ min: 0, max: 5 }),
          publishedAt: fc.option(fc.nat(), { nil: undefined }),
          identity: fc.option(identity, { nil: undefined }),
        }),
        { nil: undefined },
      ),
      published: fc.option(fc.record({ crossSigned: fc.boolean(), identity }), { nil: undefined }),
      record: fc.option(
        fc.record({ deviceId: fc.constantFrom("DEVICE", "OTHER"), epoch: fc.integer({ min: 0, max: 5 }) }),
        {
          nil: undefined,
        },
      ),
    });
    fc.assert(
      fc.property(arbitrary, (one) => {
        const judged = checkConsistency(one);
        if (judged === "create") {
          assert.equal(one.opened.kind, "no_store");
          assert.equal(one.published, undefined);
          assert.equal(one.record?.epoch ?? 0, 0);
        }
        if (judged === "consistent") {
          assert.equal(one.opened.kind, "opened");
          assert.ok((one.record?.epoch ?? 0) <= (one.store?.epoch ?? 0));
          if (one.published !== undefined && one.opened.kind === "opened") {
            assert.deepEqual(one.published.identity, one.opened.identity);
          }
        }
      }),
    );
  });
});
