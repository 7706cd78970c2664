// What a ghost says in an encrypted room on a real Synapse: who can read it, and who no longer can.
import assert from "node:assert/strict";
import { after, before, describe, it, type TestContext } from "node:test";
import { TRANSACTION_KEY } from "../../../../src/bridge/ledger/transaction-ids.ts";
import { sendOnce } from "../../../../src/bridge/matrix/send-once.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { EventId, GhostMxid, RoomId, TransactionId } from "../../../../src/domain/identifiers.ts";
import { eventually } from "../../../support/encrypted-bridge.ts";
import { EncryptingClient, encryptedRoom } from "../../../support/encrypting-client.ts";
import { type RoomMessage, startSynapse, type TestSynapse, type TestUser } from "../../../support/synapse.ts";
import { type DeviceSide, deviceWorld } from "./ghost-devices.ts";

let synapse: TestSynapse;
before(async () => {
  synapse = await startSynapse();
});
after(() => synapse.dispose());

async function joined(side: DeviceSide, ghost: GhostMxid, room: RoomId): Promise<void> {
  assert.equal((await side.devices.ensure(ghost)).kind, "ok");
  const join = await side.ghosts.acting(ghost, (actor) => side.homeserver.join(actor, room, []));
  assert.equal(join.kind, "ok");
}

let ghosts = 0;
/** A ghost that no other test has used. */
const freshGhost = () => `@agent_seal${++ghosts}:a.test` as GhostMxid;

let sends = 0;
async function say(
  side: DeviceSide,
  ghost: GhostMxid,
  room: RoomId,
  body: string,
  relation?: unknown,
): Promise<EventId> {
  const { devices } = side;
  const result = await sendOnce(
    {
      homeserver: side.homeserver,
      ghosts: side.ghosts,
      clock: systemClock,
      encryptEvent: (actor, where, event) => devices.encryptEvent(actor, where, event),
    },
    {
      roomId: room,
      ghost,
      eventType: "m.room.message",
      content: { msgtype: "m.text", body, ...(relation !== undefined && { "m.relates_to": relation }) },
      transactionId: `db1.test.${++sends}` as TransactionId,
      sourceEventId: undefined,
      firstAttemptedAt: undefined,
      recordAttempt: async () => undefined,
    },
  );
  assert.equal(result.kind, "sent", JSON.stringify(result));
  return result.kind === "sent" ? result.eventId : ("" as EventId);
}

async function rawEvent(user: TestUser, room: RoomId, event: EventId) {
  const found = await user.call(
    "GET",
    `/rooms/${encodeURIComponent(room)}/event/${encodeURIComponent(event)}`,
  );
  return found as unknown as RoomMessage;
}

async function people(t: TestContext, ...names: readonly string[]): Promise<EncryptingClient[]> {
  const clients: EncryptingClient[] = [];
  for (const name of names) clients.push(await EncryptingClient.start(await synapse.user(name)));
  t.after(() => {
    for (const client of clients) client.close();
  });
  return clients;
}

describe("encrypting for a room of a real homeserver", () => {
  it("a ghost's event is encrypted for the room's members, and carries its transaction ID outside the ciphertext [ENC-7]", async (t) => {
    const ghost = freshGhost();
    const side = (await deviceWorld(t, synapse)).side();
    const [alice] = await people(t, "alice");
    assert.ok(alice !== undefined);
    const room = await encryptedRoom(alice.user, [ghost]);
    await joined(side, ghost, room);
    const relation = { "m.in_reply_to": { event_id: "$question" } };
    const event = await say(side, ghost, room, "a secret answer", relation);

    const raw = await rawEvent(alice.user, room, event);
    assert.equal(raw.type, "m.room.encrypted");
    assert.equal(raw.content["algorithm"], "m.megolm.v1.aes-sha2");
    assert.equal(raw.content[TRANSACTION_KEY], `db1.test.${sends}`);
    assert.deepEqual(raw.content["m.relates_to"], relation);
    assert.doesNotMatch(JSON.stringify(raw), /secret/);

    const read = await alice.until(
      "the answer",
      room,
      (message) => message.event_id === event && message.type === "m.room.message",
    );
    assert.equal(read.content["body"], "a secret answer");
  });

  it("a room that is not encrypted gets plain text, one that was encrypted never does [ENC-7]", async (t) => {
    const ghost = freshGhost();
    const world = await deviceWorld(t, synapse);
    const side = world.side();
    const bob = await synapse.user("bob");
    const room = await bob.createRoom({ invite: [ghost] });
    await joined(side, ghost, room);
    const event = await say(side, ghost, room, "in plain");
    assert.equal((await rawEvent(bob, room, event)).content["body"], "in plain");

    // As the ledger remembers it of a room whose state was tampered with.
    await world.database.pool.query("INSERT INTO bridge_rooms (room_id, encrypted) VALUES ($1, true)", [
      room,
    ]);
    const outcome = await side.ghosts.acting(ghost, (actor) =>
      side.devices.encryptEvent(actor, room, { eventType: "m.room.message", content: { body: "never" } }),
    );
    assert.equal(outcome.kind, "refused");
    const path = `/rooms/${encodeURIComponent(room)}/state/m.room.encryption/`;
    await bob.call("PUT", path, { algorithm: "org.example.rot13" });
    const unknown = await side.ghosts.acting(ghost, (actor) =>
      side.devices.encryptEvent(actor, room, { eventType: "m.room.message", content: { body: "never" } }),
    );
    assert.equal(unknown.kind, "refused");
  });

  it("a member who left cannot read later events, a new member can [ENC-7]", async (t) => {
    const ghost = freshGhost();
    const side = (await deviceWorld(t, synapse)).side();
    const [carol, dave, erin] = await people(t, "carol", "dave", "erin");
    assert.ok(carol !== undefined && dave !== undefined && erin !== undefined);
    const room = await encryptedRoom(carol.user, [ghost, dave.user.userId, erin.user.userId]);
    await joined(side, ghost, room);
    await dave.user.call("POST", `/join/${encodeURIComponent(room)}`, {});
    const first = await say(side, ghost, room, "for carol and dave");
    for (const client of [carol, dave]) {
      await client.until("the first", room, (one) => one.event_id === first && one.type === "m.room.message");
    }
    const sessionOf = async (event: EventId) =>
      (await rawEvent(carol.user, room, event)).content["session_id"];
    assert.equal(await sessionOf(await say(side, ghost, room, "more")), await sessionOf(first));

    // The kick alone: no transaction is needed for the ghost to see it.
    await carol.user.call("POST", `/rooms/${encodeURIComponent(room)}/kick`, { user_id: dave.user.userId });
    await erin.user.call("POST", `/join/${encodeURIComponent(room)}`, {});
    const second = await say(side, ghost, room, "for carol and erin");
    assert.notEqual(await sessionOf(second), await sessionOf(first));
    for (const client of [carol, erin]) {
      await client.until(
        "the second",
        room,
        (one) => one.event_id === second && one.type === "m.room.message",
      );
    }
    const raw = await rawEvent(carol.user, room, second);
    assert.equal((await dave.open(room, raw)).type, "m.room.encrypted");
    assert.equal((await carol.open(room, raw)).type, "m.room.message");
  });

  it("a session begun before the answer is the answer's, and a new one once a member has left [ENC-7]", async (t) => {
    const ghost = freshGhost();
    const side = (await deviceWorld(t, synapse)).side();
    const [judy, mallory] = await people(t, "judy", "mallory");
    assert.ok(judy !== undefined && mallory !== undefined);
    const sent: string[] = [];
    const { submit } = side.homeserver.devices;
    side.homeserver.devices.submit = (actor, request) => {
      sent.push(request.kind);
      return submit.call(side.homeserver.devices, actor, request);
    };
    const roomOf = async () => {
      const room = await encryptedRoom(judy.user, [ghost, mallory.user.userId]);
      await joined(side, ghost, room);
      await mallory.user.call("POST", `/join/${encodeURIComponent(room)}`, {});
      await side.devices.beginSession(ghost, room);
      assert.ok(sent.includes("to_device"), "the key is on its way before there is an answer");
      sent.length = 0;
      return room;
    };
    const room = await roomOf();
    await side.devices.beginSession(ghost, room);
    const answer = await say(side, ghost, room, "an answer");
    assert.deepEqual(sent, [], "the session is begun once");
    await mallory.until(
      "the answer",
      room,
      (one) => one.event_id === answer && one.type === "m.room.message",
    );

    const left = await roomOf();
    await judy.user.call("POST", `/rooms/${encodeURIComponent(left)}/kick`, { user_id: mallory.user.userId });
    const raw = await rawEvent(judy.user, left, await say(side, ghost, left, "not for mallory"));
    assert.equal((await mallory.open(left, raw)).type, "m.room.encrypted");
    await judy.until(
      "the answer",
      left,
      (one) => one.event_id === raw.event_id && one.type === "m.room.message",
    );
  });

  it("a device that the homeserver has not announced yet can read the answer of any ghost [ENC-7]", async (t) => {
    const ghosts = [freshGhost(), freshGhost()];
    const world = await deviceWorld(t, synapse);
    const side = world.side();
    const [heidi] = await people(t, "heidi");
    assert.ok(heidi !== undefined);
    const room = await encryptedRoom(heidi.user, ghosts);
    for (const ghost of ghosts) await joined(side, ghost, room);
    for (const ghost of ghosts) await say(side, ghost, room, "hello");
    world.answer = (body) => {
      const lists = body["org.matrix.msc3202.device_lists"] ?? body["device_lists"];
      if (lists instanceof Object) Object.assign(lists, { changed: [], left: [] });
      return 200;
    };
    const phone = await EncryptingClient.start(await heidi.user.logIn());
    t.after(() => phone.close());
    const event = await phone.send(room, { msgtype: "m.text", body: "can you answer me here?" });
    const raw = await rawEvent(phone.user, room, event);
    const asked = { event, room, sender: phone.user.userId, raw: raw as unknown as Record<string, unknown> };
    const opened = await eventually("its key", async () => {
      const decryption = await side.devices.decrypt(ghosts as GhostMxid[], asked, 5_000);
      return decryption.kind === "decrypted" ? decryption : undefined;
    });
    assert.equal(opened.content["body"], "can you answer me here?");
    for (const ghost of ghosts) {
      const answer = await say(side, ghost, room, `from ${ghost}`);
      await phone.until(
        "the answer",
        room,
        (one) => one.event_id === answer && one.type === "m.room.message",
      );
    }
  });

  it("events after a restart of the process use a session of their own [ENC-2]", async (t) => {
    const ghost = freshGhost();
    const world = await deviceWorld(t, synapse);
    const [frank] = await people(t, "frank");
    assert.ok(frank !== undefined);
    const room = await encryptedRoom(frank.user, [ghost]);
    const first = world.side();
    await joined(first, ghost, room);
    const before = await rawEvent(frank.user, room, await say(first, ghost, room, "before"));
    await first.close();
    const second = world.side();
    await joined(second, ghost, room);
    const event = await say(second, ghost, room, "after");
    const later = await rawEvent(frank.user, room, event);
    assert.notEqual(later.content["session_id"], before.content["session_id"]);
    assert.equal(later.content["device_id"] ?? before.content["device_id"], before.content["device_id"]);
    await frank.until(
      "what was said after",
      room,
      (one) => one.event_id === event && one.type === "m.room.message",
    );
  });

  it("sessions are rotated as the room's state says [ENC-7]", async (t) => {
    const ghost = freshGhost();
    const side = (await deviceWorld(t, synapse)).side();
    const [grace] = await people(t, "grace");
    assert.ok(grace !== undefined);
    const room = await encryptedRoom(grace.user, [ghost], { rotation_period_msgs: 2 });
    await joined(side, ghost, room);
    const sessions = new Set<unknown>();
    // All at once: none may use up the session between another's sharing and encrypting.
    const events = await Promise.all(
      [1, 2, 3, 4, 5, 6].map((one) => say(side, ghost, room, `number ${one}`)),
    );
    for (const event of events) sessions.add((await rawEvent(grace.user, room, event)).content["session_id"]);
    assert.equal(sessions.size, 3);
    for (const event of events) {
      await grace.until("each", room, (one) => one.event_id === event && one.type === "m.room.message");
    }
  });
});
