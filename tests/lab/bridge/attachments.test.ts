// Files that people attach to a question, on a real Synapse: in plain rooms, and encrypted as other clients encrypt them.
import assert from "node:assert/strict";
import { after, describe, it, type TestContext } from "node:test";
import { Attachment } from "@matrix-org/matrix-sdk-crypto-wasm";
import type { RoomId } from "../../../src/domain/identifiers.ts";
import { databaseText } from "../../support/database.ts";
import { encryptedBridge, eventually, GHOST } from "../../support/encrypted-bridge.ts";
import { EncryptingClient, encryptedRoom, repliesTo } from "../../support/encrypting-client.ts";
import { startSynapse, type TestUser } from "../../support/synapse.ts";
import { serverOfFile } from "../../support/test-server.ts";

const BYTES_MAX = 1_000;
const server = await serverOfFile();
const synapse = await startSynapse();
const bridge = await encryptedBridge({ after: after as TestContext["after"] }, synapse, {
  entry: { attachments: { types: ["text/plain", "image/png"], bytes: BYTES_MAX } },
});
after(async () => {
  await synapse.dispose();
  await server.stop();
});
await bridge.start();
const { behaviour } = bridge.agent;

async function upload(user: TestUser, content: Uint8Array, mediaType: string): Promise<string> {
  const answer = await fetch(`${synapse.url}/_matrix/media/v3/upload`, {
    method: "POST",
    headers: { authorization: `Bearer ${user.accessToken}`, "content-type": mediaType },
    body: Buffer.from(content),
  });
  return ((await answer.json()) as { content_uri: string }).content_uri;
}

const questionOf = (caption: string, more: object) => ({
  ...{ msgtype: "m.file", body: caption, filename: "ship.log" },
  ...{ info: { mimetype: "text/plain" }, "m.mentions": { user_ids: [GHOST] } },
  ...more,
});

/** The file of an encrypted event, by the library that Element uses. */
async function sealed(user: TestUser, content: Uint8Array) {
  const encrypted = Attachment.encrypt(content);
  const url = await upload(user, encrypted.encryptedData, "application/octet-stream");
  return { ...JSON.parse(encrypted.mediaEncryptionInfo ?? ""), url } as Record<string, unknown>;
}

async function assertNothingKept(content: string): Promise<void> {
  const open = "SELECT FROM bridge_delegations WHERE terminal_at IS NULL";
  await eventually("nothing is open", async () =>
    (await bridge.rows(open)).length === 0 ? true : undefined,
  );
  for (const [table, text] of await databaseText((query) => bridge.rows(query))) {
    assert.ok(!text.includes(content), table);
  }
  assert.ok(!bridge.logged.join("").includes(content));
}

let people = 0;
const person = () => synapse.user(`person${++people}`);

async function replyIn(user: TestUser, room: RoomId, to: string): Promise<string> {
  return await eventually("a reply", async () => {
    const found = (await user.messages(room)).find((one) => repliesTo(one) === to);
    return found && String(found.content["body"]);
  });
}

describe("a file that came with a question, on a real homeserver", () => {
  it("goes from a plain room to the agent, and no trace of it stays [DEL-6] [AUD-2]", async () => {
    const alice = await person();
    const room = await alice.createRoom({ invite: [GHOST] });
    await bridge.settled(room);
    const url = await upload(alice, Buffer.from("ahoy from a plain room"), "text/plain");
    const content = questionOf("what does the plain log say?", { url });
    const path = `/rooms/${encodeURIComponent(room)}/send/m.room.message/t1`;
    const { event_id: question } = await alice.call("PUT", path, content);
    assert.equal(await replyIn(alice, room, String(question)), "the answer");
    assert.equal(behaviour.prompts.at(-1), "what does the plain log say?");
    assert.deepEqual(behaviour.files.at(-1), {
      ...{ name: "ship.log", mediaType: "text/plain", text: "ahoy from a plain room" },
    });
    await assertNothingKept(url.split("/").at(-1) ?? "");
    await assertNothingKept("ahoy from a plain room");
  });

  it("is decrypted in an encrypted room, where it was encrypted as Element does [DEL-6] [ENC-5]", async (t) => {
    const alice = await EncryptingClient.start(await person());
    t.after(() => alice.close());
    const room = await encryptedRoom(alice.user, [GHOST]);
    await bridge.settled(room);
    const file = await sealed(alice.user, Buffer.from("ahoy from an encrypted room"));
    const question = await alice.send(room, questionOf("what does the secret log say?", { file }));
    assert.equal((await alice.reply(room, question)).content["body"], "the answer");
    assert.equal(behaviour.prompts.at(-1), "what does the secret log say?");
    assert.equal(behaviour.files.at(-1)?.text, "ahoy from an encrypted room");
    await assertNothingKept(String((file["key"] as { k: string }).k));
    await assertNothingKept("ahoy from an encrypted room");
  });

  it("a file that is damaged, gone, too large or of another type ends its question with a notice [DEL-6] [NOT-1]", async (t) => {
    const alice = await EncryptingClient.start(await person());
    t.after(() => alice.close());
    const room = await encryptedRoom(alice.user, [GHOST]);
    await bridge.settled(room);
    const file = await sealed(alice.user, Buffer.from("right"));
    const other = await upload(alice.user, Buffer.from("wrong"), "application/octet-stream");
    const cases: readonly (readonly [object, RegExp])[] = [
      [{ file: { ...file, url: other } }, /gone, or it is damaged/],
      [{ file: { ...file, url: "mxc://a.test/NothingIsHere" } }, /gone, or it is damaged/],
      [{ url: other }, /gone, or it is damaged/],
      [
        { file: await sealed(alice.user, Buffer.alloc(BYTES_MAX + 1, "x")) },
        /larger than this agent may get/,
      ],
      [{ file: await sealed(alice.user, Buffer.from([0, 1, 2])) }, /gets no files of this kind/],
    ];
    const before = bridge.agent.requests.length;
    for (const [more, expected] of cases) {
      const question = await alice.send(room, questionOf("what is this?", more));
      const notice = await alice.reply(room, question);
      assert.equal(notice.content["msgtype"], "m.notice");
      assert.match(String(notice.content["body"]), expected);
    }
    assert.equal(bridge.agent.requests.length, before);
  });
});
