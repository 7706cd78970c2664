// What a real Synapse does with ghosts, devices, transaction IDs and long answers.
import assert from "node:assert/strict";
import { after, before, describe, it, type TestContext } from "node:test";
import type { PendingSend, ReplyPart } from "../../../../src/bridge/ledger/replies.ts";
import { replyTransactionId, TRANSACTION_KEY } from "../../../../src/bridge/ledger/transaction-ids.ts";
import { answerParts } from "../../../../src/bridge/matrix/answer-events.ts";
import { createEventSender, TRANSACTION_MEMORY_MS } from "../../../../src/bridge/matrix/send-once.ts";
import {
  type EventId,
  type GhostMxid,
  parseEventId,
  type RoomId,
} from "../../../../src/domain/identifiers.ts";
import { type GhostSide, ghostSide } from "../../../support/ghosts.ts";
import { ghost } from "../../../support/ledger.ts";
import { startSynapse, type TestSynapse, type TestUser } from "../../../support/synapse.ts";

let synapse: TestSynapse;
let alice: TestUser;
before(async () => {
  synapse = await startSynapse();
  alice = await synapse.user("alice");
});
after(() => synapse.dispose());

interface Conversation {
  readonly room: RoomId;
  readonly question: EventId;
}

const side = (t: TestContext): GhostSide => ghostSide(t, synapse.url, { asToken: synapse.asToken });
const sender = (bridge: GhostSide, ghosts = bridge.ghosts): ReturnType<typeof createEventSender> =>
  createEventSender({
    homeserver: bridge.homeserver,
    ghosts,
    clock: bridge.clock,
    ledger: { recordAttempt: async () => undefined },
  });

/** A room of Alice's with joined ghosts and her question. */
async function conversation(bridge: GhostSide, ...ghosts: readonly GhostMxid[]): Promise<Conversation> {
  for (const one of ghosts) await bridge.ghosts.ensureGhost(one);
  const room = await alice.createRoom({ invite: ghosts });
  for (const one of ghosts) {
    const joined = await bridge.ghosts.acting(one, (actor) => bridge.homeserver.join(actor, room, []));
    assert.equal(joined.kind, "ok");
  }
  const path = `/rooms/${encodeURIComponent(room)}/send/m.room.message/q${bridge.clock.now()}`;
  const sent = await alice.call("PUT", path, { msgtype: "m.text", body: "a question" });
  const question = parseEventId(sent["event_id"]);
  assert.ok(question !== undefined);
  return { room, question };
}

function pending(
  { room, question }: Conversation,
  speaker: GhostMxid,
  part: ReplyPart,
  more: Partial<PendingSend> = {},
): PendingSend {
  const ordinal = more.ordinal ?? 0;
  return {
    sendId: `${speaker} ${ordinal}`,
    purpose: "reply",
    ordinal,
    roomId: room,
    ghost: speaker,
    sourceEventId: question,
    transactionId: replyTransactionId(question, speaker, "reply", ordinal),
    ...part,
    firstAttemptedAt: undefined,
    ...more,
  };
}

const says = (body: string): ReplyPart => ({
  eventType: "m.room.message",
  content: { msgtype: "m.text", body },
});
const bodiesOf = async (room: RoomId, speaker: GhostMxid) =>
  (await alice.messages(room)).filter((one) => one.sender === speaker).map((one) => one.content["body"]);

describe("sending an event", () => {
  it("a reply sent again under its transaction ID, even after a restart of the homeserver, is one event [DEL-4]", async (t) => {
    const bridge = side(t);
    const talk = await conversation(bridge, ghost());
    const reply = pending(talk, ghost(), says("once"));
    const first = await sender(bridge).send(reply);
    assert.equal(first.kind, "sent");
    assert.deepEqual(await sender(bridge).send(reply), first);
    await synapse.restart();
    assert.deepEqual(await sender(bridge, bridge.restarted()).send(reply), first);
    assert.deepEqual(await bodiesOf(talk.room, ghost()), ["once"]);
  });

  it("two ghosts asked by the same event, and two parts of one answer, never share an event [DEL-4]", async (t) => {
    const bridge = side(t);
    const talk = await conversation(bridge, ghost("one"), ghost("two"));
    const send = sender(bridge);
    const results = [
      await send.send(pending(talk, ghost("one"), says("one, first"))),
      await send.send(pending(talk, ghost("two"), says("two, first"))),
      await send.send(pending(talk, ghost("one"), says("one, second"), { ordinal: 1 })),
    ];
    assert.equal(new Set(results.map((one) => one.kind === "sent" && one.eventId)).size, 3);
    assert.deepEqual(await bodiesOf(talk.room, ghost("one")), ["one, first", "one, second"]);
    assert.deepEqual(await bodiesOf(talk.room, ghost("two")), ["two, first"]);
  });

  it("a sent reply is found in the timeline, in and out of a thread, past the homeserver's memory [DEL-4]", async (t) => {
    const bridge = side(t);
    const talk = await conversation(bridge, ghost());
    const source = {
      eventId: talk.question,
      threadRoot: talk.question,
      sender: alice.userId,
      roomId: talk.room,
    };
    const [inThread] = await answerParts({ text: "in a thread" }, source, bridge.clock);
    assert.ok(inThread !== undefined);
    for (const [ordinal, part] of [says("plain"), inThread].entries()) {
      const reply = pending(talk, ghost(), part, { ordinal });
      const sent = await sender(bridge).send(reply);
      assert.equal(sent.kind, "sent");
      const late = { ...reply, firstAttemptedAt: bridge.clock.now() - TRANSACTION_MEMORY_MS };
      const path = ["rooms", talk.room, "event", sent.eventId].map(encodeURIComponent).join("/");
      const event = await alice.call("GET", `/${path}`);
      assert.equal((event["content"] as Record<string, unknown>)[TRANSACTION_KEY], reply.transactionId);
      const before = bridge.operations.length;
      assert.deepEqual(await sender(bridge).send(late), sent);
      assert.deepEqual(bridge.operations.slice(before), ["context", "messages"], "found, not sent again");
    }
    const never = pending(talk, ghost(), says("never sent before"), {
      ordinal: 7,
      firstAttemptedAt: bridge.clock.now() - TRANSACTION_MEMORY_MS,
    });
    assert.equal((await sender(bridge).send(never)).kind, "sent");
    assert.deepEqual(await bodiesOf(talk.room, ghost()), ["plain", "in a thread", "never sent before"]);
  });

  it("a device that was deleted behind the bridge's back is put again, and the reply sent", async (t) => {
    const bridge = side(t);
    const talk = await conversation(bridge, ghost());
    const actor = await bridge.ghosts.ensureGhost(ghost());
    assert.ok(actor.kind === "ok");
    const { deviceId } = actor.value;
    const deleted = await fetch(
      `${synapse.url}/_matrix/client/v3/devices/${deviceId}?user_id=${encodeURIComponent(ghost())}`,
      { method: "DELETE", headers: { authorization: `Bearer ${synapse.asToken}` }, body: "{}" },
    );
    assert.equal(deleted.status, 200);
    const gone = await bridge.homeserver.whoami(actor.value);
    assert.partialDeepStrictEqual(gone, { kind: "refused", errcode: "M_UNKNOWN_DEVICE" });
    assert.equal((await sender(bridge).send(pending(talk, ghost(), says("after all")))).kind, "sent");
    assert.partialDeepStrictEqual(await bridge.homeserver.whoami(actor.value), {
      value: { device_id: deviceId },
    });
  });

  it("registering a ghost and its device again has the same result", async (t) => {
    const bridge = side(t);
    const first = await bridge.ghosts.ensureGhost(ghost("again"));
    assert.equal(first.kind, "ok");
    assert.deepEqual(await bridge.restarted().ensureGhost(ghost("again")), first);
    assert.deepEqual(await bridge.ghosts.setProfile(ghost("again"), "Again & again", "card"), {
      kind: "ok",
      value: "set",
    });
    const profile = await alice.call("GET", `/profile/${encodeURIComponent(ghost("again"))}/displayname`);
    assert.equal(profile["displayname"], "Again & again");
  });

  it("an answer longer than an event may be arrives whole and in order [DEL-4]", async (t) => {
    const bridge = side(t);
    const talk = await conversation(bridge, ghost());
    const lines = Array.from(
      { length: 6_000 },
      (_, line) => `${line}. *"quoted"* <b> \\ \u{1F600} é \u0001 text`,
    );
    const text = lines.join("\n");
    const source = { eventId: talk.question, threadRoot: undefined, sender: alice.userId, roomId: talk.room };
    const parts = await answerParts({ text }, source, bridge.clock);
    assert.ok(parts.length > 10);
    for (const [ordinal, part] of parts.entries()) {
      const result = await sender(bridge).send(pending(talk, ghost(), part, { ordinal }));
      assert.equal(result.kind, "sent", `part ${ordinal}`);
    }
    // The first message is the beginning alone; the thread behind it has the whole.
    assert.equal((await bodiesOf(talk.room, ghost())).slice(1).join(""), text);
  });

  it("the homeserver accepts the largest part of an answer, whatever its characters", async (t) => {
    const bridge = side(t);
    const talk = await conversation(bridge, ghost());
    const source = {
      eventId: talk.question,
      threadRoot: talk.question,
      sender: alice.userId,
      roomId: talk.room,
    };
    for (const [index, unit] of ["a", "\u0000", '"', "\u{1F600}", "<&>", "| a ", "**b** "].entries()) {
      const [part] = await answerParts({ text: unit.repeat(40_000) }, source, bridge.clock);
      assert.ok(part !== undefined);
      const result = await sender(bridge).send(pending(talk, ghost(), part, { ordinal: index }));
      assert.equal(result.kind, "sent", JSON.stringify(unit));
    }
  });

  it("a reply is given up when the ghost may not write in the room", async (t) => {
    const bridge = side(t);
    const talk = await conversation(bridge, ghost());
    await alice.call("POST", `/rooms/${encodeURIComponent(talk.room)}/kick`, { user_id: ghost() });
    assert.deepEqual(await sender(bridge).send(pending(talk, ghost(), says("too late"))), {
      kind: "refused",
      reason: "room_unreachable",
    });
    const huge = pending(await conversation(bridge, ghost()), ghost(), says("x".repeat(70_000)));
    assert.deepEqual(await sender(bridge).send(huge), { kind: "refused", reason: "reply_refused" });
  });
});
