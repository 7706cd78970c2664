import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { indexDigest, megolmIndex, WithheldCodes } from "../../../../src/bridge/crypto/decrypt-event.ts";
import type { RoomId } from "../../../../src/domain/identifiers.ts";

function varint(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  while (rest >= 0x80) {
    bytes.push((rest % 0x80) | 0x80);
    rest = Math.floor(rest / 0x80);
  }
  return [...bytes, rest];
}

const message = (index: number) =>
  Buffer.from([3, 8, ...varint(index), 0x12, 2, 1, 2, ...Array(72).fill(7)]).toString("base64");

describe("decrypting an event: message index and digest", () => {
  it("megolmIndex returns the index that a Megolm ciphertext holds", () => {
    const index = fc.nat({ max: 2 ** 32 - 1 });
    fc.assert(fc.property(index, (value) => assert.equal(megolmIndex(message(value)), value)));
  });

  it("megolmIndex returns undefined for anything that is no Megolm message", () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.base64String(),
          fc.uint8Array().map((bytes) => Buffer.from(bytes).toString("base64")),
        ),
        (text) => {
          const index = megolmIndex(text);
          assert.ok(index === undefined || (Number.isInteger(index) && index >= 0 && index < 2 ** 32));
        },
      ),
    );
    assert.equal(megolmIndex(""), undefined);
    assert.equal(megolmIndex(Buffer.from([2, 8, 1]).toString("base64")), undefined, "another version");
    assert.equal(megolmIndex(Buffer.from([3, 0x12, 1]).toString("base64")), undefined, "another field first");
    assert.equal(megolmIndex(Buffer.from([3, 8, 0x80]).toString("base64")), undefined, "cut off");
    assert.equal(
      megolmIndex(Buffer.from([3, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).toString("base64")),
      undefined,
    );
  });

  it("indexDigest depends on room, session and index together [ENC-9]", () => {
    const room = "!room:a.test" as RoomId;
    const digests = [
      indexDigest(room, "session", 1),
      indexDigest(room, "session", 2),
      indexDigest(room, "other", 1),
      indexDigest("!else:a.test" as RoomId, "session", 1),
    ].map((digest) => digest.toString("hex"));
    assert.equal(new Set(digests).size, 4);
    assert.equal(digests[0]?.length, 64);
    assert.deepEqual(indexDigest(room, "session", 1), indexDigest(room, "session", 1));
  });
});

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
