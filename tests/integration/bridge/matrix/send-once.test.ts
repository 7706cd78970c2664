import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { replyTransactionId, TRANSACTION_KEY } from "../../../../src/bridge/ledger/transaction-ids.ts";
import {
  createEventSender,
  type EncryptEvent,
  type OutgoingEvent,
  plainRoomsOnly,
  sendOnce,
  TRANSACTION_MEMORY_MS,
} from "../../../../src/bridge/matrix/send-once.ts";
import { ghostSide } from "../../../support/ghosts.ts";
import { type Script, type ScriptedAnswer, scriptedHomeserver, WELL } from "../../../support/http-server.ts";
import { event, ghost, room } from "../../../support/ledger.ts";

const TRANSACTION = replyTransactionId(event("question"), ghost(), "reply", 0);

async function fixture(t: TestContext, script: Script = WELL) {
  const server = await scriptedHomeserver(t, script);
  const side = ghostSide(t, server.url, { requestTimeoutMs: 3_000 });
  const attempts: number[] = [];
  const outgoing: OutgoingEvent = {
    roomId: room("r"),
    ghost: ghost(),
    eventType: "m.room.message",
    content: { msgtype: "m.text", body: "the answer" },
    transactionId: TRANSACTION,
    sourceEventId: event("question"),
    firstAttemptedAt: undefined,
    recordAttempt: async (now) => {
      attempts.push(now);
      return undefined;
    },
  };
  const requests = (part: string) => server.requests.filter(({ path }) => path.includes(part));
  return { server, side, attempts, outgoing, requests };
}

describe("sending an event", () => {
  it("a reply is sent under its stored transaction ID, as the ghost's device, marked with the ID [DEL-4]", async (t) => {
    const { side, attempts, outgoing, requests } = await fixture(t);
    assert.deepEqual(await sendOnce(side, outgoing), { kind: "sent", eventId: "$sent" });
    const [sent] = requests("/send/");
    assert.equal(sent?.path, `/_matrix/client/v3/rooms/!r/send/m.room.message/${TRANSACTION}`);
    assert.equal(sent?.query.get("user_id"), ghost());
    assert.equal(sent?.query.get("device_id"), side.ledger.recorded.get(ghost())?.deviceId);
    assert.deepEqual(sent?.body, {
      ...outgoing.content,
      "org.matrix.msc1767.automated": true,
      "io.github.m13253.bounce_limit": 1,
      [TRANSACTION_KEY]: TRANSACTION,
    });
    assert.deepEqual(attempts, [side.clock.now()]);
  });

  it("the marks of an automated message stand inside the ciphertext and outside [INT-6]", async (t) => {
    const { side, outgoing, requests } = await fixture(t);
    const marks = { "org.matrix.msc1767.automated": true, "io.github.m13253.bounce_limit": 1 };
    const sealed: unknown[] = [];
    const encryptEvent: EncryptEvent = async (_actor, _room, { content }) => {
      sealed.push(content);
      return { kind: "ok", value: { eventType: "m.room.encrypted", content: { ciphertext: "sealed" } } };
    };
    assert.equal((await sendOnce({ ...side, encryptEvent }, outgoing)).kind, "sent");
    assert.deepEqual(sealed, [{ ...outgoing.content, ...marks }]);
    const [sent] = requests("/send/");
    assert.deepEqual(sent?.body, { ciphertext: "sealed", ...marks, [TRANSACTION_KEY]: TRANSACTION });
  });

  it("an attempt is recorded before the request, and no request is made when it cannot be recorded [DEL-4]", async (t) => {
    const { side, outgoing, requests } = await fixture(t);
    const recordAttempt = async () => {
      assert.equal(requests("/send/").length, 0);
      throw new Error("the database is away");
    };
    await assert.rejects(sendOnce(side, { ...outgoing, recordAttempt }), /the database is away/);
    assert.equal(requests("/send/").length, 0);
  });

  it("no request is made for an event that turns out to be sent when the attempt is recorded [DEL-4]", async (t) => {
    const { side, outgoing, requests } = await fixture(t);
    const recordAttempt = async () => event("earlier");
    const sent = { kind: "sent", eventId: event("earlier") };
    assert.deepEqual(await sendOnce(side, { ...outgoing, recordAttempt }), sent);
    assert.equal(requests("/send/").length, 0);
  });

  it("a malformed, late or missing answer leads to a retry, never to an end [DEL-4]", async (t) => {
    const { server, side, outgoing } = await fixture(t);
    const ill: readonly [ReturnType<Script>, number][] = [
      [{ status: 502 }, 1_000],
      [{ status: 429, body: { errcode: "M_LIMIT_EXCEEDED", retry_after_ms: 4_000 } }, 4_000],
      [{ status: 401, body: { errcode: "M_UNKNOWN_TOKEN" } }, 30_000],
      ["hang", 1_000],
      ["reset", 1_000],
      [{ body: { event_id: "not an event" } }, 30_000],
    ];
    for (const [answer, afterMs] of ill) {
      server.script = (request) => (request.path.includes("/send/") ? answer : {});
      assert.deepEqual(await sendOnce(side, outgoing), { kind: "retry", afterMs });
    }
  });

  it("a room that may not be written to is distinguished from an event that is refused", async (t) => {
    const { server, side, outgoing } = await fixture(t);
    for (const [status, errcode, reason] of [
      [403, "M_FORBIDDEN", "room_unreachable"],
      [404, "M_NOT_FOUND", "room_unreachable"],
      [413, "M_TOO_LARGE", "reply_refused"],
      [400, "M_BAD_JSON", "reply_refused"],
    ] as const) {
      server.script = ({ path }) => (path.includes("/send/") ? { status, body: { errcode } } : {});
      assert.deepEqual(await sendOnce(side, outgoing), { kind: "refused", reason });
    }
  });

  it("a reply waits when the homeserver refuses to register the ghost", async (t) => {
    const { side, outgoing, attempts } = await fixture(t, ({ path }) =>
      path.endsWith("/register") ? { status: 400, body: { errcode: "M_EXCLUSIVE" } } : {},
    );
    assert.deepEqual(await sendOnce(side, outgoing), { kind: "retry", afterMs: 60_000 });
    assert.deepEqual(attempts, []);
  });

  it("a device that the homeserver has lost is put again under the same ID, and the event sent once", async (t) => {
    const { server, side, outgoing, requests } = await fixture(t);
    let known = true;
    server.script = ({ path, method }) => {
      if (method === "PUT" && path.includes("/devices/")) known = true;
      if (!path.includes("/send/")) return {};
      return known ? { body: { event_id: "$sent" } } : { status: 400, body: { errcode: "M_UNKNOWN_DEVICE" } };
    };
    await side.ghosts.ensureGhost(ghost());
    known = false;
    assert.deepEqual(await sendOnce(side, outgoing), { kind: "sent", eventId: "$sent" });
    assert.equal(requests("/send/").length, 2);
    assert.equal(new Set(requests("/devices/").map(({ path }) => path)).size, 1);

    server.script = ({ path }) =>
      path.includes("/send/") ? { status: 400, body: { errcode: "M_UNKNOWN_DEVICE" } } : {};
    const before = requests("/send/").length;
    assert.deepEqual(await sendOnce(side, outgoing), { kind: "retry", afterMs: 60_000 });
    assert.equal(requests("/send/").length, before + 2, "it repairs once, and does not loop");
  });

  it("a stopped sender begins no request, ends the one in flight, and allows a repetition at once", async (t) => {
    const { server, side, outgoing, attempts } = await fixture(t);
    const sender = createEventSender({
      ...side,
      ledger: {
        recordAttempt: async () => void attempts.push(1),
      },
    });
    const send = {
      ...outgoing,
      sendId: "1",
      purpose: "reply",
      ordinal: 0,
      sourceEventId: event("question"),
    } as const;
    assert.deepEqual(await sender.send(send, AbortSignal.abort()), { kind: "retry", afterMs: 0 });
    assert.deepEqual([server.requests.length, attempts.length], [0, 0]);
    const stop = new AbortController();
    server.script = ({ path }) => {
      if (!path.includes("/send/")) return {};
      stop.abort();
      return "hang";
    };
    assert.deepEqual(await sender.send(send, stop.signal), { kind: "retry", afterMs: 0 });
    server.script = WELL;
    assert.deepEqual(await sender.send(send), { kind: "sent", eventId: "$sent" });
  });

  /** A timeline of the ghost's own events in pages of one, after the question. */
  function timeline(ids: readonly (string | undefined)[]): Script {
    return ({ path, query }) => {
      if (path.endsWith("/context/$question")) return { body: { end: "p0" } };
      if (!path.endsWith("/messages")) return path.includes("/send/") ? { body: { event_id: "$sent" } } : {};
      const page = Number(query.get("from")?.slice(1));
      const own = {
        event_id: `$own${page}`,
        sender: ghost(),
        type: "m.room.message",
        origin_server_ts: 1,
        content: { [TRANSACTION_KEY]: ids[page] },
      };
      const copied = {
        ...own,
        ...{ event_id: "$copied", sender: "@eve:b.test", content: { [TRANSACTION_KEY]: TRANSACTION } },
      };
      return {
        body: {
          // Somebody who copies the ID of an answer is not believed, whatever the homeserver filters.
          chunk: page < ids.length ? [{ junk: true }, copied, own] : [],
          ...(page < ids.length && { end: `p${page + 1}` }),
        },
      };
    };
  }

  const old = (side: { clock: { now(): number } }) => side.clock.now() - TRANSACTION_MEMORY_MS;

  it("a sent reply is found, and not sent again, past the homeserver's memory of transaction IDs [DEL-4]", async (t) => {
    const { side, outgoing, attempts, requests } = await fixture(
      t,
      timeline(["db1.other", undefined, TRANSACTION]),
    );
    const result = await sendOnce(side, { ...outgoing, firstAttemptedAt: old(side) });
    assert.deepEqual(result, { kind: "sent", eventId: "$own2" });
    assert.equal(requests("/send/").length, 0);
    assert.deepEqual(attempts, []);
    assert.deepEqual(JSON.parse(requests("/messages")[0]?.query.get("filter") ?? ""), {
      senders: [ghost()],
      types: ["m.room.message", "m.room.encrypted"],
    });
  });

  it("an unsent reply is sent past the homeserver's memory, and not searched for before [DEL-4]", async (t) => {
    const { side, outgoing, requests } = await fixture(t, timeline(["db1.other", "db1.more"]));
    assert.equal((await sendOnce(side, { ...outgoing, firstAttemptedAt: old(side) + 1 })).kind, "sent");
    assert.equal(requests("/context/").length, 0);
    assert.equal((await sendOnce(side, { ...outgoing, firstAttemptedAt: old(side) })).kind, "sent");
    assert.equal(requests("/messages").length, 3);
    assert.equal(requests("/send/").length, 2);
  });

  it("a reply waits or is given up, and is never sent twice, when the timeline cannot be read [DEL-4]", async (t) => {
    const { server, side, outgoing, requests } = await fixture(t);
    const late: OutgoingEvent = { ...outgoing, firstAttemptedAt: old(side) };
    server.script = ({ path }) => (path.includes("/context/") ? { status: 504 } : {});
    assert.deepEqual(await sendOnce(side, late), { kind: "retry", afterMs: 1_000 });
    server.script = ({ path }) =>
      path.includes("/context/") ? { status: 404, body: { errcode: "M_NOT_FOUND" } } : {};
    assert.deepEqual(await sendOnce(side, late), { kind: "refused", reason: "room_unreachable" });
    assert.deepEqual(await sendOnce(side, { ...late, sourceEventId: undefined }), {
      kind: "refused",
      reason: "room_unreachable",
    });
    // A homeserver that turns in circles.
    server.script = ({ path, query }) =>
      path.includes("/context/")
        ? { body: { end: "a" } }
        : { body: { chunk: [], end: query.get("from") === "a" ? "b" : "a" } };
    assert.deepEqual(await sendOnce(side, late), { kind: "refused", reason: "room_unreachable" });
    assert.equal(requests("/send/").length, 0);
  });

  it("no plain text is sent to a room known as encrypted when ghosts take no part in such rooms [ENC-1]", async (t) => {
    const { side, server, outgoing, attempts, requests } = await fixture(t);
    const encrypted = new Set([room("secret")]);
    const encryptEvent = plainRoomsOnly({
      homeserver: side.homeserver,
      ledger: { isRoomEncrypted: async (where) => encrypted.has(where) },
    });
    const send = (roomId = outgoing.roomId) => sendOnce({ ...side, encryptEvent }, { ...outgoing, roomId });
    const refused = { kind: "refused", reason: "reply_refused" };
    const { script } = server;
    let state: ScriptedAnswer = { status: 404, body: { errcode: "M_NOT_FOUND" } };
    server.script = (request) => (request.path.includes("/state/") ? state : script(request));
    assert.deepEqual(await send(room("secret")), refused);
    // It was encrypted a moment ago.
    state = { body: { algorithm: "m.megolm.v1.aes-sha2" } };
    assert.deepEqual(await send(), refused);
    state = { status: 502, body: {} };
    assert.equal((await send()).kind, "retry");
    assert.deepEqual([attempts.length, requests("/send/").length], [0, 0]);
    state = { status: 404, body: { errcode: "M_NOT_FOUND" } };
    assert.equal((await send()).kind, "sent");
  });
});
