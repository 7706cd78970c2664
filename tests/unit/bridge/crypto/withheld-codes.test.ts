import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { WithheldCodes } from "../../../../src/bridge/crypto/decrypt-event.ts";

const event = { sender: "@alice:a.test", room: "!r" };
const withheld = (content: object, sender = event.sender) => ({
  ...{ type: "m.room_key.withheld", sender },
  content: { room_id: event.room, session_id: "session", code: "m.unverified", ...content },
});

describe("codes of withheld keys", () => {
  it("count for the events of whoever sent them alone [ENC-6]", () => {
    const codes = new WithheldCodes();
    codes.takeFrom([withheld({}, "@mallory:b.test")]);
    assert.equal(codes.codeOf(event, "session"), undefined);
    codes.takeFrom([withheld({})]);
    assert.equal(codes.codeOf(event, "session"), "m.unverified");
    assert.equal(codes.codeOf({ ...event, room: "!other" }, "session"), undefined);
  });

  it("are not kept for what is no identifier, however much of it another server sends [ENC-10]", () => {
    const codes = new WithheldCodes();
    const long = "s".repeat(256);
    codes.takeFrom([withheld({ session_id: long }), withheld({ room_id: long }), withheld({ code: long })]);
    codes.takeFrom([withheld({ session_id: ["session"] }), withheld({ room_id: { long } })]);
    assert.deepEqual(
      [long, "session"].map((session) => codes.codeOf(event, session)),
      [undefined, undefined],
    );
    assert.equal(codes.codeOf({ ...event, room: long }, "session"), undefined);
  });
});
