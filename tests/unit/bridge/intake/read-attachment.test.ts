import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { readAttachment } from "../../../../src/bridge/intake/read-attachment.ts";
import { readEvents } from "../../../../src/bridge/intake/read-events.ts";

const PLAIN = {
  msgtype: "m.file",
  body: "what does it say?",
  filename: "log.txt",
  info: { mimetype: "text/plain", size: 3 },
  url: "mxc://a.test:8448/AbC_d-1",
};
const FILE = {
  v: "v2",
  url: "mxc://a.test/x",
  key: { kty: "oct", alg: "A256CTR", ext: true, key_ops: ["encrypt", "decrypt"], k: "k".repeat(43) },
  iv: "i".repeat(22),
  hashes: { sha256: "h".repeat(43) },
};
const { url: _url, ...REST } = PLAIN;
const SEALED = { ...REST, file: FILE };
const REFERENCE = { server: "a.test", mediaId: "x", name: "log.txt", mediaType: "text/plain" };

describe("the file of a message", () => {
  it("is referred to by the media repository's address, and its caption is the text [INT-6]", () => {
    assert.deepEqual(readAttachment(PLAIN, false), {
      caption: "what does it say?",
      attachment: { ...REFERENCE, server: "a.test:8448", mediaId: "AbC_d-1" },
    });
    for (const isEncrypted of [true, false]) {
      assert.deepEqual(readAttachment(SEALED, isEncrypted)?.attachment, {
        ...REFERENCE,
        encryption: { key: "k".repeat(43), iv: "i".repeat(22), sha256: "h".repeat(43) },
      });
    }
  });

  it("has no caption where the text is its name, and none at all in a text message [INT-6]", () => {
    assert.equal(readAttachment({ ...PLAIN, filename: PLAIN.body }, false)?.caption, "");
    const { filename: _name, ...unnamed } = { ...PLAIN, body: "../a.txt" };
    const read = readAttachment(unnamed, false);
    assert.equal(read?.caption, "");
    assert.partialDeepStrictEqual(read?.attachment, { name: "a.txt" });
    assert.equal(readAttachment({ ...PLAIN, msgtype: "m.text" }, false), undefined);
    assert.equal(readAttachment({ ...PLAIN, msgtype: "m.location" }, false), undefined);
  });

  it("of an encrypted message is itself encrypted, because its homeserver could exchange it [ENC-5]", () => {
    assert.equal(readAttachment(PLAIN, true)?.attachment, "unreadable");
  });

  it("is unreadable when anything of its reference is missing or wrong [INT-6]", () => {
    for (const url of [
      undefined,
      7,
      "",
      "https://a.test/x",
      "mxc://a.test",
      "mxc://a.test/",
      "mxc://a.test/..",
      "mxc://../x",
      "mxc://./x",
      "mxc://a.test/x/y",
      "mxc://a.test/x?y",
      "mxc://a.test/x#y",
      "mxc://a test/x",
      "mxc:///x",
      `mxc://a.test/${"x".repeat(256)}`,
      `mxc://${"a".repeat(256)}/x`,
    ]) {
      assert.equal(readAttachment({ ...PLAIN, url }, false)?.attachment, "unreadable", String(url));
      const sealed = { ...SEALED, file: { ...FILE, url } };
      assert.equal(readAttachment(sealed, true)?.attachment, "unreadable", String(url));
    }
    const wrong: readonly object[] = [
      { v: "v1" },
      { v: undefined },
      { key: undefined },
      { key: { ...FILE.key, kty: "RSA" } },
      { key: { ...FILE.key, alg: "A128CTR" } },
      { key: { ...FILE.key, k: "k".repeat(42) } },
      { key: { ...FILE.key, k: `${"k".repeat(42)}!` } },
      { iv: "i".repeat(21) },
      { iv: 0 },
      { hashes: {} },
      { hashes: { sha256: "h".repeat(44) } },
    ];
    for (const one of wrong) {
      const read = readAttachment({ ...SEALED, file: { ...FILE, ...one } }, true);
      assert.equal(read?.attachment, "unreadable", JSON.stringify(one));
    }
  });

  it("is bounded and complete, or unreadable, whatever somebody writes [INT-6]", () => {
    const other = fc.oneof(
      fc.jsonValue({ maxDepth: 2 }),
      fc.string({ maxLength: 400 }),
      fc.constant(undefined),
    );
    const someWrong = <T extends Record<string, unknown>>(right: T) =>
      fc.record(
        Object.fromEntries(
          Object.entries(right).map(([key, value]) => [
            key,
            fc.oneof({ weight: 4, arbitrary: fc.constant(value) }, { weight: 1, arbitrary: other }),
          ]),
        ),
      );
    const file = fc.oneof(
      someWrong(FILE),
      fc.tuple(fc.constant(FILE), someWrong(FILE.key)).map(([made, key]) => ({ ...made, key })),
      other,
    );
    const info = fc.oneof(fc.record({ mimetype: other }), other);
    const content = fc
      .tuple(someWrong({ ...PLAIN }), info, fc.option(file, { nil: undefined }))
      .map(([made, about, sealed]) => ({ ...made, info: about, file: sealed, msgtype: "m.image" }));
    let whole = 0;
    fc.assert(
      fc.property(content, fc.boolean(), (written, isEncrypted) => {
        const read = readAttachment(written, isEncrypted);
        assert.ok(read !== undefined);
        const { attachment } = read;
        if (attachment === "unreadable") return;
        whole += 1;
        assert.match(attachment.mediaId, /^[A-Za-z0-9_-]{1,255}$/);
        assert.ok(attachment.server.length <= 255 && attachment.mediaType.length <= 127);
        assert.ok(attachment.name !== "" && attachment.name.length <= 200 && !/[/\\]/.test(attachment.name));
        if (isEncrypted) assert.ok(attachment.encryption !== undefined);
        const { key, iv, sha256 } = attachment.encryption ?? {};
        if (key === undefined || iv === undefined || sha256 === undefined) {
          assert.equal(attachment.encryption, undefined);
          return;
        }
        assert.deepEqual(
          [
            Buffer.from(key, "base64url").length,
            Buffer.from(iv, "base64").length,
            Buffer.from(sha256, "base64").length,
          ],
          [32, 16, 32],
        );
      }),
      // An object of this kind cannot be made a string.
      { numRuns: 2_000, examples: [[{ msgtype: "m.image", body: { toString: false } } as never, false]] },
    );
    assert.ok(whole > 100, `${whole} were readable`);
  });

  it("has no type where its declared one is none, or longer than any [INT-6]", () => {
    for (const mimetype of [undefined, 7, {}, "x".repeat(128)]) {
      const read = readAttachment({ ...PLAIN, info: { mimetype } }, false);
      assert.partialDeepStrictEqual(read?.attachment, { mediaType: "" });
    }
  });

  it("a file that cannot be read makes no event malformed [INT-6]", () => {
    const event = {
      type: "m.room.message",
      ...{ event_id: "$q", room_id: "!r:a.test", sender: "@alice:a.test", origin_server_ts: 0 },
      content: { msgtype: "m.image", body: "x.png", info: [null], url: { deep: [] }, file: "no" },
    };
    const { events, malformed } = readEvents([event]);
    assert.deepEqual(malformed, []);
    assert.partialDeepStrictEqual(events[0], { type: "message", body: "", attachment: "unreadable" });
  });
});
