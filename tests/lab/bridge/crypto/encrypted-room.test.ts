// Encrypted rooms, from a person's encrypting client to the agent and back, on a real Synapse.
import assert from "node:assert/strict";
import { after, describe, it, type TestContext } from "node:test";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import { databaseText } from "../../../support/database.ts";
import {
  devicesOf,
  encryptedBridge,
  eventually,
  GHOST,
  questionTo,
  toDeviceOf,
} from "../../../support/encrypted-bridge.ts";
import { EncryptingClient, encryptedRoom, repliesTo } from "../../../support/encrypting-client.ts";
import { startSynapse } from "../../../support/synapse.ts";
import { serverOfFile } from "../../../support/test-server.ts";

const server = await serverOfFile();
const synapse = await startSynapse();
const bridge = await encryptedBridge({ after: after as TestContext["after"] }, synapse);
after(async () => {
  await synapse.dispose();
  await server.stop();
});
await bridge.start();
const { behaviour } = bridge.agent;

let people = 0;
async function person(t: TestContext): Promise<EncryptingClient> {
  people += 1;
  const client = await EncryptingClient.start(await synapse.user(`person${people}`));
  t.after(() => client.close());
  return client;
}

/** A room of a person and the ghost, in which the ghost is. */
async function roomOf(client: EncryptingClient, encryption = {}): Promise<RoomId> {
  const room = await encryptedRoom(client.user, [GHOST], encryption);
  await bridge.settled(room);
  return room;
}

/** Starts the bridge again, on the same state, with other settings for one test. */
async function configured(t: TestContext, encryption: Record<string, unknown>, limits = {}): Promise<void> {
  await bridge.stop();
  bridge.configure(encryption, limits);
  await bridge.start();
  t.after(async () => {
    await bridge.stop();
    bridge.configure({});
    await bridge.start();
  });
}

const outcome = (name: string) => bridge.metric(`drawbridge_encrypted_events_total{outcome="${name}"}`);
const envelopes = (room: RoomId) =>
  bridge.rows<{ state: string; reason: string | null; waited: number }>(
    `SELECT state, terminal_reason AS reason,
       extract(epoch FROM terminal_at - admitted_at)::float8 AS waited
     FROM bridge_encrypted_intake WHERE room_id = $1 ORDER BY room_seq`,
    [room],
  );
const keysMissing = (room: RoomId) =>
  bridge.rows("SELECT FROM bridge_notices WHERE room_id = $1 AND kind = 'keys_missing'", [room]);

describe("a bridge in encrypted rooms", () => {
  it("a question in an encrypted room is answered at once, and encrypted [ENC-5] [ENC-7]", async (t) => {
    const alice = await person(t);
    const room = await roomOf(alice);
    const before = await outcome("at_once");
    const question = await alice.send(room, questionTo("when does the ferry leave?"));
    const reply = await alice.reply(room, question);
    assert.equal(reply.content["body"], "the answer");
    assert.equal(reply.sender, GHOST);
    assert.equal(behaviour.prompts.at(-1), "when does the ferry leave?");
    assert.equal(await outcome("at_once"), before + 1);
    const plain = await alice.user.messages(room);
    assert.deepEqual(plain, [], "nothing in the room is in plain text");
    assert.deepEqual(await envelopes(room), []);
  });

  it("threads and the list of agents work in an encrypted room, and edits and reactions ask nothing", async (t) => {
    const alice = await person(t);
    const room = await roomOf(alice);
    const question = await alice.send(room, questionTo("the first"));
    await alice.reply(room, question);
    const inThread = {
      msgtype: "m.text",
      body: "the second",
      "m.relates_to": { rel_type: "m.thread", event_id: question },
    };
    const asked = behaviour.prompts.length;
    const edit = { rel_type: "m.replace", event_id: question };
    await alice.send(room, {
      ...questionTo("* edited"),
      "m.new_content": questionTo("edited"),
      "m.relates_to": edit,
    });
    await alice.sendRaw(
      room,
      { "m.relates_to": { rel_type: "m.annotation", event_id: question, key: "+" } },
      "m.reaction",
    );
    const further = await alice.send(room, inThread);
    const directory = await alice.send(room, { msgtype: "m.text", body: "!agents" });
    await alice.reply(room, further);
    const list = await alice.reply(room, directory);
    assert.equal(list.content["msgtype"], "m.notice");
    assert.match(String(list.content["body"]), /@agent_docs:a\.test/);
    assert.deepEqual(behaviour.prompts.slice(asked), ["the second"]);
  });

  it("a question is answered when the transaction with its key was refused with 502 [ENC-8]", async (t) => {
    const alice = await person(t);
    const room = await roomOf(alice);
    let lost = 0;
    bridge.onTransaction = (body) => {
      if (lost > 0 || toDeviceOf(body).length === 0) return "pass";
      lost += 1;
      return "fail";
    };
    t.after(() => {
      bridge.onTransaction = () => "pass";
    });
    const question = await alice.send(room, questionTo("the key is lost"));
    const reply = await alice.reply(room, question);
    assert.equal(reply.content["body"], "the answer");
    assert.equal(lost, 1, "the transaction with the key was refused");
    const [envelope] = await envelopes(room);
    if (envelope !== undefined)
      t.diagnostic(`opened ${Math.round(envelope.waited * 1_000)} ms after it came in`);
  });

  it("a key that comes late is used in room order, and later messages are held back until then [ENC-10]", async (t) => {
    const alice = await person(t);
    const bob = await person(t);
    const room = await encryptedRoom(alice.user, [GHOST, bob.user.userId]);
    await bob.user.call("POST", `/rooms/${encodeURIComponent(room)}/join`, {});
    await bridge.settled(room);
    const asked = behaviour.prompts.length;
    const before = await alice.send(room, questionTo("one"));
    await alice.reply(room, before);
    const late = await alice.send(room, questionTo("two"), { withhold: true, rotate: true });
    const behind = await bob.send(room, questionTo("three"));
    await eventually("its key is waited for", async () =>
      (await envelopes(room)).length > 0 ? true : undefined,
    );
    await systemClock.sleep(3_000);
    assert.deepEqual(behaviour.prompts.slice(asked), ["one"]);
    assert.equal(
      (await alice.messages(room)).some((message) => repliesTo(message) === behind),
      false,
    );
    const released = systemClock.now();
    await alice.release();
    await alice.reply(room, late);
    t.diagnostic(`answered ${systemClock.now() - released} ms after its key was shared`);
    await alice.reply(room, behind);
    assert.deepEqual(behaviour.prompts.slice(asked), ["one", "two", "three"]);
    assert.deepEqual(
      (await envelopes(room)).map(({ state }) => state),
      ["derived"],
    );
  });

  it("the room gets one notice with the remedy, one audit record is written and the room goes on when a key is never shared [ENC-6]", async (t) => {
    await configured(t, { keyWait: "4s", keyRequests: { firstAfter: "500ms", attempts: 2 } });
    const alice = await person(t);
    const room = await roomOf(alice);
    const expired = await outcome("expired");
    const asked = behaviour.prompts.length;
    for (const text of ["lost", "lost as well"]) await alice.send(room, questionTo(text), { withhold: true });
    const next = await alice.send(room, questionTo("the room goes on"), { rotate: true });
    await alice.reply(room, next);
    assert.deepEqual(behaviour.prompts.slice(asked), ["the room goes on"]);
    assert.deepEqual(
      (await envelopes(room)).map(({ state, reason }) => [state, reason]),
      [
        ["expired", "key_requests_exhausted"],
        ["expired", "key_requests_exhausted"],
      ],
    );
    const notice = await alice.until("the notice", room, ({ content }) => content["msgtype"] === "m.notice");
    assert.match(String(notice.content["body"]), /invite me again.*share the room's keys/);
    assert.equal((await keysMissing(room)).length, 1);
    const audit = await bridge.rows(
      "SELECT FROM bridge_audit WHERE schema = 'svc.encrypted_intake.v1' AND record->>'room_id' = $1",
      [room],
    );
    assert.equal(audit.length, 2, "one record for each event");
    assert.equal(await outcome("expired"), expired + 2);
  });

  it("a ciphertext that is sent again as another event is refused [ENC-9]", async (t) => {
    const alice = await person(t);
    const room = await roomOf(alice);
    await alice.share(room);
    const sealed = await alice.encrypt(room, "m.room.message", questionTo("only once"));
    const asked = behaviour.prompts.length;
    const first = await alice.sendRaw(room, sealed);
    await alice.reply(room, first);
    const again = await alice.sendRaw(room, sealed);
    const [row] = await eventually("it is refused", async () => {
      const rows = await bridge.rows(
        "SELECT state, terminal_reason AS reason FROM bridge_delegations WHERE matrix_event_id = $1",
        [again],
      );
      return rows.length > 0 ? rows : undefined;
    });
    assert.deepEqual(row, { state: "denied", reason: "event_replayed" });
    assert.deepEqual(behaviour.prompts.slice(asked), ["only once"]);
  });

  it("a device that is not cross-signed is refused with a notice where policy requires it, and answered once it is [ENC-9]", async (t) => {
    await configured(t, { senderDevices: "cross_signed" });
    const alice = await person(t);
    const room = await roomOf(alice);
    const refused = await alice.send(room, questionTo("from a device that nobody signed"));
    const notice = await alice.reply(room, refused);
    assert.equal(notice.content["msgtype"], "m.notice");
    assert.match(String(notice.content["body"]), /device that this bridge does not trust/);
    assert.deepEqual(
      (await envelopes(room)).map(({ reason }) => reason),
      ["device_not_trusted"],
    );
    await alice.crossSign();
    const heard = await alice.send(room, questionTo("from a signed device"), { rotate: true });
    assert.equal((await alice.reply(room, heard)).content["body"], "the answer");
    // Plain text would go past the policy.
    const plain = await alice.sendRaw(room, questionTo("in plain text"), "m.room.message");
    const last = await alice.send(room, questionTo("encrypted again"));
    await alice.reply(room, last);
    assert.equal(
      (await alice.messages(room)).some((message) => repliesTo(message) === plain),
      false,
    );
  });

  it("a question that was redacted while it waited for its key is not delegated when the key comes [INT-6]", async (t) => {
    const alice = await person(t);
    const room = await roomOf(alice);
    const asked = behaviour.prompts.length;
    const withdrawn = await alice.send(room, questionTo("withdrawn"), { withhold: true });
    await eventually("it waits", async () => ((await envelopes(room)).length > 0 ? true : undefined));
    await alice.user.call(
      "PUT",
      `/rooms/${encodeURIComponent(room)}/redact/${encodeURIComponent(withdrawn)}/r1`,
      {},
    );
    await eventually("it has ended", async () =>
      (await envelopes(room)).some(({ reason }) => reason === "source_redacted") ? true : undefined,
    );
    await alice.release();
    const next = await alice.send(room, questionTo("kept"));
    await alice.reply(room, next);
    assert.deepEqual(behaviour.prompts.slice(asked), ["kept"]);
  });

  it("in mode `devices` ghosts have devices with keys, and refuse encrypted rooms with one notice [ENC-1] [ENC-2]", async (t) => {
    await configured(t, { mode: "devices" });
    const alice = await person(t);
    const devices = await devicesOf(alice.user);
    assert.equal(devices.length, 1);
    const room = await roomOf(alice);
    const asked = behaviour.prompts.length;
    await alice.send(room, questionTo("in mode devices"));
    const said = await eventually("the notice", async () => {
      const found = await alice.user.messages(room);
      return found.length > 0 ? found : undefined;
    });
    await alice.send(room, questionTo("and again"));
    await systemClock.sleep(1_000);
    assert.match(String(said[0]?.content["body"]), /does not read encrypted rooms/);
    assert.equal((await alice.user.messages(room)).length, 1);
    assert.equal(behaviour.prompts.length, asked);
    assert.deepEqual(await envelopes(room), []);
  });

  it("intake envelopes expire at their deadlines, and no answer is sent in plain text, when the mode goes back from `on` [ENC-1]", async (t) => {
    await configured(t, { keyWait: "8s" });
    const alice = await person(t);
    const room = await roomOf(alice);
    await alice.send(room, questionTo("its key never comes"), { withhold: true });
    await eventually("it waits", async () => ((await envelopes(room)).length > 0 ? true : undefined));
    const behind = await alice.send(room, questionTo("asked in mode on"), { rotate: true });
    await eventually("both are admitted", async () => {
      const rows = await bridge.rows("SELECT FROM bridge_delegations WHERE matrix_event_id = $1", [behind]);
      return rows.length > 0 ? true : undefined;
    });
    await bridge.stop();
    bridge.configure({ mode: "refuse" });
    await bridge.start();
    const [ended] = await eventually("the room goes on", async () => {
      const rows = await bridge.rows<{ reason: string }>(
        "SELECT terminal_reason AS reason FROM bridge_delegations WHERE matrix_event_id = $1 AND terminal_at IS NOT NULL",
        [behind],
      );
      return rows.length > 0 ? rows : undefined;
    });
    assert.equal(ended?.reason, "reply_refused");
    assert.deepEqual(
      (await envelopes(room)).map(({ reason }) => reason),
      ["key_wait_elapsed"],
    );
    const said = await alice.user.messages(room);
    assert.deepEqual(
      said.filter(({ content }) => content["msgtype"] !== "m.notice"),
      [],
    );
  });

  it("nothing of a question and its answer in an encrypted room is stored outside the crypto store [AUD-2]", async (t) => {
    const alice = await person(t);
    const room = await roomOf(alice);
    const canary = `canary-${Math.floor(systemClock.now())}`;
    behaviour.plan = { kind: "complete", artifacts: [[`the answer of ${canary}`]] };
    t.after(() => {
      behaviour.plan = { kind: "complete", artifacts: [["the answer"]] };
    });
    const asked = await alice.send(room, questionTo(`question of ${canary}`));
    assert.equal((await alice.reply(room, asked)).content["body"], `the answer of ${canary}`);
    const waited = await alice.send(room, questionTo(`late ${canary}`), { withhold: true, rotate: true });
    await eventually("it waits", async () => ((await envelopes(room)).length > 0 ? true : undefined));
    await alice.release();
    await alice.reply(room, waited);
    await eventually("all have ended", async () => {
      const open = await bridge.rows("SELECT FROM bridge_delegations WHERE terminal_at IS NULL");
      return open.length === 0 ? true : undefined;
    });

    const secrets = (await alice.rawEvents(room))
      .filter(({ type }) => type === "m.room.encrypted")
      .flatMap(({ content }) => [String(content["ciphertext"]).slice(0, 40), String(content["session_id"])]);
    assert.ok(secrets.length >= 8);
    const needles = [canary, Buffer.from(canary).toString("hex"), ...secrets];
    const tables = await databaseText((query) => bridge.rows(query));
    assert.ok(tables.size > 14);
    const places = new Map([...tables].map(([name, text]) => [`table ${name}`, text]));
    // The machine encrypts its records; their names are keyed hashes.
    assert.ok((places.get("table bridge_crypto_records") ?? "").length > 10_000);
    places.set("the log", bridge.logged.join("\n"));
    places.set("the metrics", await bridge.metrics());
    assert.ok((places.get("the log") ?? "").includes(room));
    for (const [place, text] of places) {
      for (const needle of needles) assert.ok(!text.includes(needle), `${place} holds a secret`);
    }
  });

  it("a bridge ends at once while the homeserver hangs, and its successor goes on from there", async (t) => {
    const alice = await person(t);
    const room = await roomOf(alice);
    const thaw = synapse.freeze();
    t.after(thaw);
    await systemClock.sleep(7_000);
    const begun = systemClock.now();
    await bridge.stop();
    assert.ok(systemClock.now() - begun < 10_000, `ended after ${systemClock.now() - begun} ms`);
    thaw();
    await bridge.start();
    const question = await alice.send(room, questionTo("after the homeserver hung"));
    assert.equal((await alice.reply(room, question)).content["body"], "the answer");
  });
});
