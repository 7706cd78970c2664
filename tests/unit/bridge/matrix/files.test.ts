import assert from "node:assert/strict";
import { createDecipheriv } from "node:crypto";
import { describe, it, type TestContext } from "node:test";
import { createUploader, fileName, verifiedType } from "../../../../src/bridge/matrix/files.ts";
import { Ghosts } from "../../../../src/bridge/matrix/ghosts.ts";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { sha256 } from "../../../../src/domain/digest.ts";
import type { GhostMxid, RoomId } from "../../../../src/domain/identifiers.ts";
import { ghostSide } from "../../../support/ghosts.ts";
import { type ScriptedAnswer, scriptedHomeserver } from "../../../support/http-server.ts";

const PNG = Buffer.from("\x89PNG\r\n\x1a\n rest", "latin1");
const TO = { roomId: "!r" as RoomId, ghost: "@agent_docs:a.test" as GhostMxid };
const SIGNAL = new AbortController().signal;

async function setUp(t: TestContext, isEncrypted: boolean, answer: ScriptedAnswer) {
  const server = await scriptedHomeserver(t, ({ path }) =>
    path.includes("/upload") ? answer : { body: {} },
  );
  const { homeserver, clock } = ghostSide(t, server.url);
  const device = { deviceId: "D", profileDigest: undefined };
  const ghosts = new Ghosts({
    ...{ homeserver, clock, random: systemRandom },
    ledger: { ghosts: { ensureDevice: async () => device, recordProfile: async () => {} } } as never,
  });
  const ledger = { isRoomEncrypted: async () => isEncrypted };
  return { server, upload: createUploader({ homeserver, ghosts, ledger, random: systemRandom }) };
}

const STORED = { body: { content_uri: "mxc://a.test/1" } };

describe("files of an answer", () => {
  it("a file is what its bytes say, and nothing that a browser runs [DEL-6] [AGT-4]", () => {
    const typeOf = (mediaType: string, content: Uint8Array) => verifiedType({ mediaType, content });
    assert.equal(typeOf("text/plain", PNG), "image/png");
    assert.equal(typeOf("image/png", Buffer.from("<script>")), "application/octet-stream");
    assert.equal(typeOf("text/html", Buffer.from("<b>")), "application/octet-stream");
    assert.equal(typeOf("image/svg+xml", Buffer.from("<svg>")), "application/octet-stream");
    assert.equal(typeOf("text/markdown; charset=utf-8", Buffer.from("# x")), "text/markdown");
    assert.equal(typeOf("text/plain", Buffer.from([0x61, 0])), "application/octet-stream");
    assert.equal(typeOf("text/plain", Buffer.from([0xff, 0xfe])), "application/octet-stream");
  });

  it("a file's name is no path and has nothing invisible [AGT-4]", () => {
    assert.equal(fileName("../../etc/passwd"), "passwd");
    assert.equal(fileName("C:\\x\\a\u202e.md"), "a.md");
    assert.equal(fileName(".."), "file");
    assert.equal(fileName(""), "file");
  });

  it("in a plain room the file is uploaded as it is [DEL-6]", async (t) => {
    const { server, upload } = await setUp(t, false, STORED);
    const file = { name: "answer.md", mediaType: "text/markdown", content: Buffer.from("# x") };
    assert.deepEqual(await upload(TO, file, SIGNAL), {
      ...{ msgtype: "m.file", body: "answer.md", filename: "answer.md", "m.mentions": {} },
      ...{ info: { mimetype: "text/markdown", size: 3 }, url: "mxc://a.test/1" },
    });
    assert.ok(server.seen.some(({ path }) => path.includes("/media/v3/upload")));
    const image = await upload(TO, { name: "x", mediaType: "image/png", content: PNG }, SIGNAL);
    assert.equal(image?.["msgtype"], "m.image");
  });

  it("in an encrypted room the homeserver gets ciphertext, which the event's key opens [DEL-6]", async (t) => {
    const { upload } = await setUp(t, true, STORED);
    const content = Buffer.from("the secret answer");
    const said = await upload(TO, { name: "a.txt", mediaType: "text/plain", content }, SIGNAL);
    assert.equal(said?.["url"], undefined);
    const file = said?.["file"] as {
      key: { k: string };
      iv: string;
      hashes: { sha256: string };
      url: string;
    };
    // Counter mode is its own inverse, so what was sent is made again from the key.
    const decipher = createDecipheriv(
      "aes-256-ctr",
      Buffer.from(file.key.k, "base64url"),
      Buffer.from(file.iv, "base64"),
    );
    const sent = Buffer.concat([decipher.update(content), decipher.final()]);
    assert.equal(file.hashes.sha256, sha256(sent).toString("base64").replace(/=+$/, ""));
    assert.equal(file.url, "mxc://a.test/1");
  });

  it("a file that the homeserver does not take is undefined [DEL-6]", async (t) => {
    const { upload } = await setUp(t, false, { status: 413, body: { errcode: "M_TOO_LARGE" } });
    const file = { name: "a", mediaType: "text/plain", content: Buffer.from("x") };
    assert.equal(await upload(TO, file, SIGNAL), undefined);
  });
});
