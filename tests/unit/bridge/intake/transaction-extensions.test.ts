import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { createNamespace } from "../../../../src/bridge/intake/namespace.ts";
import { readDevicePart } from "../../../../src/bridge/intake/transaction-extensions.ts";
import type { GhostMxid, ServerName } from "../../../../src/domain/identifiers.ts";

const DOCS = "@agent_docs:a.test" as GhostMxid;
const OTHER = "@agent_other:a.test" as GhostMxid;
const DEVICES = new Map([
  [DOCS, "DOCSDEVICE"],
  [OTHER, "OTHERDEVICE"],
]);
const NAMESPACE = createNamespace({
  serverName: "a.test" as ServerName,
  ghostPrefix: "agent_",
  senderLocalpart: "drawbridge",
});
const read = (body: Record<string, unknown>) => readDevicePart(body, NAMESPACE, DEVICES);

const message = (changes: Record<string, unknown> = {}) => ({
  sender: "@alice:a.test",
  type: "m.room.encrypted",
  content: { ciphertext: {} },
  to_user_id: DOCS,
  to_device_id: "DOCSDEVICE",
  ...changes,
});

describe("device part of a transaction", () => {
  it("to-device messages reach their ghost in order, under either name of the field", () => {
    for (const field of ["de.sorunome.msc2409.to_device", "to_device"]) {
      const changes = read({
        [field]: [
          message({ type: "first" }),
          message({ to_user_id: OTHER, to_device_id: "OTHERDEVICE" }),
          message(),
        ],
      });
      assert.deepEqual(
        changes.get(DOCS)?.toDevice.map(({ type }) => type),
        ["first", "m.room.encrypted"],
      );
      assert.deepEqual(changes.get(DOCS)?.toDevice[1], {
        sender: "@alice:a.test",
        type: "m.room.encrypted",
        content: { ciphertext: {} },
      });
      assert.equal(changes.get(OTHER)?.toDevice.length, 1);
      assert.equal(changes.get(DOCS)?.oneTimeKeyCounts, undefined, "nothing was said of it");
    }
  });

  it("messages for a person, another device or nobody are left out", () => {
    const changes = read({
      "de.sorunome.msc2409.to_device": [
        message({ to_user_id: "@alice:a.test" }),
        message({ to_user_id: "@agent_docs:b.test" }),
        message({ to_device_id: "ANOTHER" }),
        message({ sender: 7 }),
        message({ content: [] }),
        "no object",
      ],
    });
    assert.equal(changes.get(DOCS)?.toDevice.length ?? 0, 0);
  });

  it("key counts are read under either name, and an empty count is ignored", () => {
    for (const field of ["device_one_time_keys_count", "device_one_time_key_counts"]) {
      const changes = read({
        [`org.matrix.msc3202.${field}`]: {
          [DOCS]: { DOCSDEVICE: { signed_curve25519: 42 }, ANOTHER: { signed_curve25519: 1 } },
          [OTHER]: { OTHERDEVICE: {} },
        },
        "org.matrix.msc3202.device_unused_fallback_key_types": { [OTHER]: { OTHERDEVICE: [] } },
      });
      assert.deepEqual(changes.get(DOCS)?.oneTimeKeyCounts, { signed_curve25519: 42 });
      assert.equal(changes.get(OTHER)?.oneTimeKeyCounts, undefined);
      assert.deepEqual(changes.get(OTHER)?.unusedFallbackKeys, [], "the fallback key was used");
      assert.equal(changes.get(DOCS)?.unusedFallbackKeys, undefined);
    }
  });

  it("changed device lists apply to every ghost's device", () => {
    const changes = read({
      "org.matrix.msc3202.device_lists": {
        changed: ["@alice:a.test", "@alice:a.test", 7],
        left: ["@bob:b.test"],
      },
    });
    for (const ghost of [DOCS, OTHER]) {
      assert.deepEqual(changes.get(ghost)?.changedUsers, ["@alice:a.test"]);
      assert.deepEqual(changes.get(ghost)?.leftUsers, ["@bob:b.test"]);
    }
  });

  it("reading never throws, whatever the fields contain", () => {
    const fields = [
      "to_device",
      "de.sorunome.msc2409.to_device",
      "org.matrix.msc3202.device_lists",
      "org.matrix.msc3202.device_one_time_keys_count",
      "org.matrix.msc3202.device_unused_fallback_key_types",
    ];
    const leaf = fc.oneof(
      fc.jsonValue({ maxDepth: 3 }),
      fc.constantFrom<unknown>(
        DOCS,
        "DOCSDEVICE",
        { [DOCS]: { DOCSDEVICE: { signed_curve25519: -1 } } },
        message(),
      ),
    );
    const body = fc.dictionary(
      fc.constantFrom(...fields),
      fc.oneof(
        leaf,
        fc.array(leaf),
        fc.dictionary(fc.constantFrom(DOCS, "changed", "left", "__proto__"), leaf),
      ),
    );
    fc.assert(
      fc.property(body, (any) => {
        for (const [ghost, { toDevice, oneTimeKeyCounts }] of read(any)) {
          assert.ok(DEVICES.has(ghost) || NAMESPACE.isGhost(ghost));
          assert.ok(toDevice.every(({ content }) => typeof content === "object" && content !== null));
          assert.ok(Object.values(oneTimeKeyCounts ?? {}).every((count) => count >= 0));
        }
      }),
    );
  });
});
