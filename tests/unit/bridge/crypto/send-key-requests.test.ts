import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EncryptedRoomEvent } from "../../../../src/bridge/crypto/decrypt-event.ts";
import { createKeyRequests } from "../../../../src/bridge/crypto/send-key-requests.ts";
import { event, ghost, room } from "../../../support/ledger.ts";

describe("requests for room keys", () => {
  it("a session is requested only by an ID that is no longer than identifiers of Matrix [ENC-4]", async () => {
    const bodies: unknown[] = [];
    const devices = {
      statuses: () => [{ ghost: ghost("docs"), deviceId: "DEVICE", state: "ready" }],
      sendToDevice: async (...[, , messages]: readonly unknown[]) => {
        bodies.push(messages);
        return { kind: "ok", value: undefined };
      },
    } as unknown as Parameters<typeof createKeyRequests>[0];
    const requests = createKeyRequests(devices, () => undefined);
    const ask = (content: object) => {
      const asked = { event: event("q1"), room: room("r"), sender: "@alice:a.test", raw: { content } };
      return requests.request(
        { ghosts: [ghost("docs")], event: asked as unknown as EncryptedRoomEvent },
        0,
        1_000,
      );
    };
    assert.equal(await ask({ session_id: "s".repeat(43), sender_key: "k".repeat(60_000) }), true);
    assert.equal(await ask({ session_id: "s".repeat(60_000) }), false);
    assert.equal(bodies.length, 1);
    assert.ok(JSON.stringify(bodies).length < 1_000);
  });
});
