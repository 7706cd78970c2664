import assert from "node:assert/strict";
import { createCipheriv, createDecipheriv } from "node:crypto";
import { describe, it, type TestContext } from "node:test";
import {
  createDownloader,
  createUploader,
  fileName,
  verifiedType,
} from "../../../../src/bridge/matrix/files.ts";
import { Ghosts } from "../../../../src/bridge/matrix/ghosts.ts";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { sha256 } from "../../../../src/domain/digest.ts";
import type { GhostMxid, RoomId, ServerName } from "../../../../src/domain/identifiers.ts";
import { ghostSide, memoryGhostLedger } from "../../../support/ghosts.ts";
import { type ScriptedAnswer, scriptedHomeserver } from "../../../support/http-server.ts";

const PNG = Buffer.from("\x89PNG\r\n\x1a\n rest", "latin1");
const TO = { roomId: "!r" as RoomId, ghost: "@agent_docs:a.test" as GhostMxid };
const SIGNAL = new AbortController().signal;

const NO_STATE = { status: 404, body: { errcode: "M_NOT_FOUND" } };

async function setUp(
  t: TestContext,
  isEncrypted: boolean,
  answer: ScriptedAnswer,
  state: ScriptedAnswer = NO_STATE,
) {
  const server = await scriptedHomeserver(t, ({ path }) => {
    if (path.includes("/state/m.room.encryption")) return state;
    return path.includes("/upload") || path.includes("/download") ? answer : { body: {} };
  });
  const { homeserver, clock } = ghostSide(t, server.url);
  const ghosts = new Ghosts({ homeserver, clock, random: systemRandom, ledger: memoryGhostLedger() });
  const ledger = { isRoomEncrypted: async () => isEncrypted };
  const upload = createUploader({ homeserver, ghosts, ledger, random: systemRandom, clock });
  return { server, clock, upload, download: createDownloader({ homeserver, ghosts }) };
}

const STORED = { body: { content_uri: "mxc://a.test/1" } };

describe("files of an answer", () => {
  it("a file is what its bytes say, and nothing that a browser runs [DEL-6] [AGT-4]", () => {
    const typeOf = (mediaType: string, content: Uint8Array) => verifiedType({ mediaType, content });
    assert.equal(typeOf("text/plain", PNG), "image/png");
    assert.equal(typeOf("image/png", Buffer.from("RIFF\0\0\0\0WEBPVP8 ")), "image/webp");
    assert.equal(typeOf("image/webp", Buffer.from("<script>WEBP")), "application/octet-stream");
    assert.equal(typeOf("image/webp", Buffer.from("RIFF\0\0\0\0WAVEfmt ")), "application/octet-stream");
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
    assert.equal(fileName("a\u3164\u2800.md"), "a.md");
    assert.equal(fileName(".."), "file");
    assert.equal(fileName(""), "file");
  });

  it("in a plain room the file is uploaded as it is [DEL-6]", async (t) => {
    const { server, upload } = await setUp(t, false, STORED);
    const file = { name: "answer.md", mediaType: "text/markdown", content: Buffer.from("# x") };
    assert.deepEqual(await upload(TO, file, SIGNAL, 0), {
      ...{ msgtype: "m.file", body: "answer.md", filename: "answer.md", "m.mentions": {} },
      ...{ info: { mimetype: "text/markdown", size: 3 }, url: "mxc://a.test/1" },
    });
    assert.ok(server.requests.some(({ path }) => path.includes("/media/v3/upload")));
    const image = await upload(TO, { name: "x", mediaType: "image/png", content: PNG }, SIGNAL, 0);
    assert.equal(image?.["msgtype"], "m.image");
  });

  it("a file is encrypted where the room's state says so before it is recorded, and kept back where that cannot be read [DEL-6]", async (t) => {
    const file = { name: "a.txt", mediaType: "text/plain", content: Buffer.from("the secret answer") };
    const state = { status: 200, body: { algorithm: "m.megolm.v1.aes-sha2" } };
    const said = await (await setUp(t, false, STORED, state)).upload(TO, file, SIGNAL, 0);
    assert.deepEqual([said?.["url"], typeof said?.["file"]], [undefined, "object"]);
    const away = { status: 500, body: { errcode: "M_UNKNOWN" } };
    const { server, upload } = await setUp(t, false, STORED, away);
    assert.equal(await upload(TO, file, SIGNAL, 0), undefined);
    assert.ok(server.requests.every(({ path }) => !path.includes("/upload")));
  });

  it("in an encrypted room the homeserver gets ciphertext, which the event's key opens [DEL-6]", async (t) => {
    const { upload } = await setUp(t, true, STORED);
    const content = Buffer.from("the secret answer");
    const said = await upload(TO, { name: "a.txt", mediaType: "text/plain", content }, SIGNAL, 0);
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

  it("a file is uploaded again while the homeserver is away, as long as there is time [DEL-6]", async (t) => {
    const { server, clock, upload } = await setUp(t, false, STORED);
    t.mock.method(clock, "sleep", async (ms: number) => await clock.advance(ms));
    const file = { name: "a", mediaType: "text/plain", content: Buffer.from("x") };
    const { script } = server;
    let tries = 0;
    server.script = (request) => {
      if (!request.path.includes("/upload") || ++tries === 3) return script(request);
      return tries === 1 ? "reset" : { status: 502, body: "no homeserver" };
    };
    const saidWithin = async (ms: number) => (await upload(TO, file, SIGNAL, clock.now() + ms))?.["url"];
    assert.equal(await saidWithin(1_500), undefined);
    assert.equal(tries, 2);
    tries = 0;
    assert.equal(await saidWithin(2_500), "mxc://a.test/1");
  });

  it("a file that the homeserver does not take is undefined [DEL-6]", async (t) => {
    const { upload } = await setUp(t, false, { status: 413, body: { errcode: "M_TOO_LARGE" } });
    const file = { name: "a", mediaType: "text/plain", content: Buffer.from("x") };
    assert.equal(await upload(TO, file, SIGNAL, 0), undefined);
  });
});

const REFERENCE = {
  ...{ server: "b.test:8448" as ServerName, mediaId: "AbC", name: "a.txt", mediaType: "text/plain" },
};

function sealed(content: string) {
  const [key, iv] = [Buffer.alloc(32, 1), Buffer.alloc(16, 2)];
  const cipher = createCipheriv("aes-256-ctr", key, iv);
  const bytes = Buffer.concat([cipher.update(content), cipher.final()]);
  const unpadded = (value: Buffer) => value.toString("base64").replace(/=+$/, "");
  return {
    bytes,
    reference: {
      ...REFERENCE,
      encryption: { key: key.toString("base64url"), iv: unpadded(iv), sha256: unpadded(sha256(bytes)) },
    },
  };
}

describe("the file of a question", () => {
  it("is downloaded from the homeserver as the ghost, by the authenticated media API [DEL-6]", async (t) => {
    const { server, download } = await setUp(t, false, { body: Buffer.from([0, 255, 1]) });
    const result = await download(TO.ghost, REFERENCE, 3, SIGNAL);
    assert.deepEqual(result, { kind: "ok", value: Buffer.from([0, 255, 1]) });
    const request = server.requests.find(({ path }) => path.includes("/download"));
    assert.equal(request?.path, "/_matrix/client/v1/media/download/b.test:8448/AbC");
    assert.equal(request?.query.get("user_id"), TO.ghost);
  });

  it("a file that is longer than allowed is not read to its end [DEL-6]", async (t) => {
    const { download } = await setUp(t, false, { body: Buffer.alloc(4) });
    assert.deepEqual(await download(TO.ghost, REFERENCE, 3, SIGNAL), { kind: "ok", value: "too_large" });
  });

  it("is never looked for where a redirect leads [DEL-6]", async (t) => {
    const elsewhere = await scriptedHomeserver(t, () => ({ body: "secret" }));
    const { download } = await setUp(t, false, { status: 307, headers: { location: elsewhere.url } });
    const result = await download(TO.ghost, REFERENCE, 100, SIGNAL);
    assert.partialDeepStrictEqual(result, { kind: "retry", cause: "malformed" });
    assert.deepEqual(elsewhere.requests, []);
  });

  it("a file that the homeserver does not have is refused, and one that it cannot get now is tried again [DEL-6]", async (t) => {
    const gone = await setUp(t, false, { status: 404, body: { errcode: "M_NOT_FOUND" } });
    assert.partialDeepStrictEqual(await gone.download(TO.ghost, REFERENCE, 9, SIGNAL), { kind: "refused" });
    const away = await setUp(t, false, { status: 502, body: { errcode: "M_UNKNOWN" } });
    assert.partialDeepStrictEqual(await away.download(TO.ghost, REFERENCE, 9, SIGNAL), { kind: "retry" });
  });

  it("is decrypted only if its digest is the one that the sender named [DEL-6] [ENC-5]", async (t) => {
    const { bytes, reference } = sealed("the secret file");
    const whole = await setUp(t, true, { body: bytes });
    const opened = await whole.download(TO.ghost, reference, 100, SIGNAL);
    assert.deepEqual(opened, { kind: "ok", value: Buffer.from("the secret file") });
    const bent = Buffer.from(bytes);
    bent[0] = (bent[0] ?? 0) ^ 1;
    const changed = await setUp(t, true, { body: bent });
    assert.deepEqual(await changed.download(TO.ghost, reference, 100, SIGNAL), {
      ...{ kind: "ok", value: "damaged" },
    });
  });
});
