// Late keys, lost keys and keys that never come: the intake envelope worker on a real ledger, with time in the test's
// hands and devices that need no cryptography.

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { pino } from "pino";
import { createIntakeEnvelopeExpiry } from "../../../../src/bridge/crypto/wait-for-keys.ts";
import type { EventId, RoomId } from "../../../../src/domain/identifiers.ts";
import { sealed } from "../../../support/fake-devices.ts";
import { member, question } from "../../../support/intake.ts";
import { ghost } from "../../../support/ledger.ts";
import { KEY_WAIT_MS, queriedUntil, setUp } from "./envelope-worker.ts";

describe("IntakeEnvelopeWorker", () => {
  it("a key that comes within a minute is used in room order, and later questions are held back until then [ENC-10]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(question("before"), sealed("late"), question("behind"));
    assert.deepEqual(await bridge.order(), ["$before"]);
    await bridge.pass(55_000, 5_000);
    assert.deepEqual(await bridge.order(), []);
    bridge.devices.sessions.add("session-1");
    await bridge.worker.keysCame(["!r" as RoomId]);
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.order(), ["$late", "$behind"]);
    assert.deepEqual(await bridge.states(), { $late: "derived" });
    assert.deepEqual(await bridge.rows("SELECT open_count FROM bridge_rooms WHERE room_id = '!r'"), [
      { open_count: 0 },
    ]);
  });

  it("an event whose key is missing holds its room for one minute, and is placed last when the key comes after that [DEL-1] [ENC-10]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(sealed("late"), sealed("never", {}, {}, "session-2"), question("behind"));
    await bridge.pass(59_000);
    assert.deepEqual(await bridge.order(), []);
    await bridge.pass(1_000);
    assert.deepEqual(await bridge.order(), ["$behind"]);
    await bridge.bring(question("next"));
    assert.deepEqual(await bridge.states(), { $late: "awaiting_key", $never: "awaiting_key" });
    bridge.devices.sessions.add("session-1");
    await bridge.worker.keysCame(["!r" as RoomId]);
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.order(), ["$next", "$late"]);
    await bridge.pass(KEY_WAIT_MS, 30_000);
    assert.deepEqual(await bridge.rows("SELECT open_count, head_seq = next_seq AS empty FROM bridge_rooms"), [
      { open_count: 0, empty: true },
    ]);
  });

  it("a key that the transactions lost is caught up at the first attempt [ENC-8]", async (t) => {
    const bridge = await setUp(t);
    bridge.devices.atHomeserver.push({ session: "session-1", room: "!r" as RoomId });
    await bridge.bring(sealed("e1"), sealed("e2"));
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.order(), ["$e1", "$e2"]);
    assert.deepEqual(bridge.lines, ["catchup", "catchup"]);
  });

  it("a key is requested five times at growing intervals, once for all events of a session [ENC-6]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(sealed("e1"), sealed("e2"), sealed("other", {}, {}, "session-2"));
    const askedAt: number[] = [];
    for (let second = 1; second <= 600; second++) {
      const before = bridge.devices.sent.length;
      await bridge.pass(1_000);
      const asked = bridge.devices.sent.slice(before);
      if (asked.length > 0) askedAt.push(second);
      assert.ok(asked.length <= 2, "one request for a session");
    }
    assert.equal(askedAt.length, 5);
    for (const [index, least] of [5, 15, 35, 75, 155].entries()) {
      const at = askedAt[index] ?? 0;
      assert.ok(at >= least && at <= least + 31, `request ${index + 1} after ${at} s`);
    }
    const [request] = bridge.devices.sent;
    assert.equal(request?.type, "m.room_key_request");
    assert.equal(request?.to, "@alice:a.test");
    const { request_id, ...content } = request?.content ?? {};
    assert.deepEqual(content, {
      action: "request",
      body: {
        algorithm: "m.megolm.v1.aes-sha2",
        room_id: "!r",
        session_id: "session-1",
        sender_key: "sender-key",
      },
      requesting_device_id: "DEVICE",
    });
    // Once the key is here, it is asked for no more.
    bridge.devices.sessions.add("session-1");
    await bridge.worker.keysCame(["!r" as RoomId]);
    await bridge.worker.queue.round();
    const canceled = bridge.devices.sent.filter(
      ({ content: { action } }) => action === "request_cancellation",
    );
    assert.deepEqual(new Set(canceled.map((one) => one.content["request_id"])), new Set([request_id]));
    assert.ok(bridge.lines.includes("key_request"));
  });

  it("each event expires with one audit record, the room gets one notice and goes on, when the key never comes [ENC-6]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(sealed("e1"), sealed("e2"), question("behind"));
    await bridge.pass(KEY_WAIT_MS + 1_000, 30_000);
    assert.deepEqual(await bridge.states(), { $e1: "key_requests_exhausted", $e2: "key_requests_exhausted" });
    assert.deepEqual(await bridge.order(), ["$behind"]);
    const audit = await bridge.rows(
      "SELECT record FROM bridge_audit WHERE schema = 'svc.encrypted_intake.v1'",
    );
    assert.equal(audit.length, 2);
    const notices = await bridge.rows(
      "SELECT ghost_mxid AS ghost FROM bridge_notices WHERE kind = 'keys_missing'",
    );
    assert.deepEqual(notices, [{ ghost: ghost("docs") }]);
    assert.equal(bridge.lines.filter((line) => line === "expired").length, 2);
    await bridge.pass(60_000);
    assert.equal(bridge.devices.sent.at(-1)?.content["action"], "request_cancellation");
  });

  const ENDINGS: Readonly<Record<string, (bridge: Awaited<ReturnType<typeof setUp>>) => void>> = {
    sender_mismatch: ({ devices }) => {
      devices.onDecrypt = () => ({ kind: "refused", reason: "sender_mismatch" });
    },
    undecryptable: ({ devices }) => {
      devices.onDecrypt = () => ({ kind: "refused", reason: "undecryptable" });
    },
    device_not_trusted: ({ devices }) => {
      devices.onDecrypt = () => ({ kind: "refused", reason: "device_not_trusted" });
    },
    event_unavailable: ({ homeserver }) => homeserver.set("$e1", undefined),
    source_redacted: ({ homeserver }) => homeserver.set("$e1", { ...sealed("e1"), content: {} }),
  };

  it("key requests are canceled however the wait ends [ENC-6]", async (t) => {
    for (const [reason, happens] of Object.entries(ENDINGS)) {
      const bridge = await setUp(t);
      await bridge.bring(sealed("e1"));
      await bridge.pass(20_000);
      assert.deepEqual(new Set(bridge.requests()), new Set(["request"]), reason);
      happens(bridge);
      await bridge.pass(60_000);
      assert.deepEqual(await bridge.states(), { $e1: reason });
      assert.equal(bridge.requests().at(-1), "request_cancellation", reason);
      assert.deepEqual(bridge.reasons, [reason]);
    }
  });

  it("a key request stays while another event waits for the key, and is canceled by the redaction of the last [ENC-6]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(sealed("e1"), sealed("e2"));
    await bridge.pass(20_000);
    const redaction = (id: string) => ({
      ...question(`redacts-${id}`),
      type: "m.room.redaction",
      redacts: `$${id}`,
      content: { redacts: `$${id}` },
    });
    for (const id of ["e1", "e2"]) {
      assert.ok(!bridge.requests().includes("request_cancellation"));
      await bridge.bring(redaction(id));
      await bridge.worker.redacted([`$${id}` as EventId]);
    }
    assert.deepEqual(await bridge.states(), { $e1: "source_redacted", $e2: "source_redacted" });
    assert.deepEqual(
      bridge.requests().filter((action) => action === "request_cancellation"),
      ["request_cancellation"],
    );
    const [first] = bridge.devices.sent;
    assert.equal(bridge.devices.sent.at(-1)?.content["request_id"], first?.content["request_id"]);
  });

  it("a fetched event counts only when it is the event that came in", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(sealed("changed"), sealed("redacted"), sealed("gone"), sealed("kept"));
    const changed = sealed("changed");
    bridge.homeserver.set("$changed", { ...changed, content: { ...changed.content, ciphertext: "{}" } });
    bridge.homeserver.set("$redacted", { ...sealed("redacted"), content: {} });
    bridge.homeserver.set("$gone", undefined);
    bridge.devices.sessions.add("session-1");
    await bridge.worker.queue.round();
    await bridge.pass(20_000);
    assert.deepEqual(await bridge.states(), {
      $changed: "event_changed",
      $redacted: "source_redacted",
      $gone: "event_unavailable",
      $kept: "derived",
    });
    assert.deepEqual(await bridge.order(), ["$kept"]);
    assert.deepEqual(await bridge.rows("SELECT FROM bridge_notices"), [], "none of these is a lost key");
  });

  it("an event of a device that the policy does not trust is refused with a notice after the time in which its owner's keys are queried [ENC-9]", async (t) => {
    const bridge = await setUp(t);
    let isTrusted = false;
    const refused = { kind: "refused", reason: "device_not_trusted" } as const;
    bridge.devices.onDecrypt = () => (isTrusted ? undefined : refused);
    bridge.devices.sessions.add("session-1");
    await bridge.bring(sealed("heals"));
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.states(), { $heals: "awaiting_key" });
    isTrusted = true;
    await bridge.pass(2_000);
    assert.deepEqual(await bridge.states(), { $heals: "derived" });
    isTrusted = false;
    await bridge.bring(sealed("refused"), sealed("refused-too"));
    await bridge.pass(20_000);
    const states = await bridge.states();
    assert.deepEqual(
      [states["$refused"], states["$refused-too"]],
      ["device_not_trusted", "device_not_trusted"],
    );
    assert.deepEqual(await bridge.rows("SELECT kind, reason FROM bridge_notices"), [
      { kind: "policy_denied", reason: "sender_device_untrusted" },
    ]);
    assert.equal(bridge.lines.filter((line) => line === "not_trusted").length, 2);
  });

  it("an event is refused at once when its sender does not own the device that made the session [ENC-9]", async (t) => {
    const bridge = await setUp(t);
    bridge.devices.onDecrypt = () => ({ kind: "refused", reason: "sender_mismatch" });
    await bridge.bring(sealed("forged"), question("behind"));
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.states(), { $forged: "sender_mismatch" });
    assert.deepEqual(await bridge.order(), ["$behind"]);
    assert.deepEqual(await bridge.rows("SELECT kind FROM bridge_notices"), [{ kind: "keys_missing" }]);
  });

  it("the wait ends at once when the sender withholds the key, unless a later key is announced [ENC-6]", async (t) => {
    const bridge = await setUp(t);
    const withheld = (code: string) => ({ kind: "missing_key", withheld: code }) as const;
    const codes = new Map([
      ["$no-olm", "m.no_olm"],
      ["$unverified", "m.unverified"],
      ["$blacklisted", "m.blacklisted"],
    ]);
    bridge.devices.onDecrypt = ({ event }) => withheld(codes.get(event) ?? "m.unauthorised");
    await bridge.bring(sealed("unverified"), sealed("no-olm"), sealed("blacklisted"), question("behind"));
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.states(), {
      $unverified: "key_withheld",
      $blacklisted: "key_withheld",
      "$no-olm": "awaiting_key",
    });
    assert.deepEqual(await bridge.rows("SELECT kind FROM bridge_notices"), [{ kind: "keys_missing" }]);
    bridge.devices.onDecrypt = () => undefined;
    bridge.devices.sessions.add("session-1");
    await bridge.worker.keysCame(["!r" as RoomId]);
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.order(), ["$no-olm", "$behind"]);
  });

  it("the wait is prolonged once by the time in which the homeserver does not answer, with growing intervals", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(sealed("e1"), sealed("e2"));
    const away = { kind: "retry", cause: "network", afterMs: 1_000, errcode: undefined } as const;
    bridge.failFetch(away);
    bridge.devices.catchupOutcome = away;
    await bridge.pass(KEY_WAIT_MS + 60_000, 10_000);
    assert.deepEqual(await bridge.states(), { $e1: "awaiting_key", $e2: "awaiting_key" });
    const [{ attempts } = { attempts: 0 }] = (await bridge.rows(
      "SELECT max(attempts) AS attempts FROM bridge_encrypted_intake",
    )) as { attempts: number }[];
    assert.ok(attempts < 60, `${attempts} looks`);
    bridge.failFetch(undefined);
    bridge.devices.catchupOutcome = { kind: "ok", value: undefined };
    bridge.devices.atHomeserver.push({ session: "session-1", room: "!r" as RoomId });
    await bridge.pass(60_000, 5_000);
    assert.deepEqual(await bridge.states(), { $e1: "derived", $e2: "derived" });

    await bridge.bring(sealed("e3", {}, {}, "session-3"));
    bridge.failFetch(away);
    await bridge.pass(2 * KEY_WAIT_MS + 60_000, 30_000);
    assert.equal((await bridge.states())["$e3"], "key_wait_elapsed");
  });

  it("an event that is decrypted late and asks nothing gives up its place and its capacity slot", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(
      sealed("reaction", {}, { msgtype: "m.emote" }),
      sealed("unreadable", {}, { body: 7 }),
      question("behind"),
    );
    bridge.devices.sessions.add("session-1");
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.states(), { $reaction: "derived", $unreadable: "derived" });
    assert.deepEqual(await bridge.order(), ["$behind"]);
  });

  it("a message without a mention asks the ghost of a direct room as the room was when it came, whoever joins or leaves before its key comes [INT-6] [ENC-5]", async (t) => {
    const bridge = await setUp(t);
    const direct = { room_id: "!dm" };
    const plain = (id: string) => sealed(id, direct, { "m.mentions": undefined });
    await bridge.bring(
      member(ghost("docs"), "invite", { ...direct, sender: "@alice:a.test" }, { is_direct: true }),
      member(ghost("docs"), "join", direct),
      member("@alice:a.test", "join", direct),
      plain("alone"),
    );
    await bridge.bring(member("@bob:a.test", "join", direct));
    await bridge.bring(plain("to-bob"));
    await bridge.bring(plain("still-to-bob"), member("@bob:a.test", "leave", direct));
    await bridge.bring(plain("alone-again"));
    await bridge.bring(member("@bob:a.test", "join", direct));
    bridge.devices.sessions.add("session-1");
    await bridge.worker.queue.round();
    assert.deepEqual(new Set(Object.values(await bridge.states())), new Set(["derived"]));
    assert.deepEqual(await bridge.order(), ["$alone", "$alone-again"]);
  });

  const inThread = (id: string, root: string, session = "session-1", sender = "@alice:a.test") => {
    const relation = { "m.relates_to": { rel_type: "m.thread", event_id: root } };
    return sealed(id, { sender }, { "m.mentions": undefined, ...relation }, session);
  };

  it("a message in the thread of its sender's question is read after that, though its own key comes first [INT-6] [ENC-10]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(sealed("q"), inThread("more", "$q", "session-2"));
    bridge.devices.sessions.add("session-2");
    await bridge.pass(2_000);
    bridge.devices.sessions.add("session-1");
    // The later one is opened before the question is, and after that again.
    const isRead = Promise.withResolvers<undefined>();
    bridge.devices.onDecrypt = ({ event }) => (event === "$q" ? isRead.promise : undefined);
    await bridge.worker.keysCame(["!r" as RoomId]);
    const round = bridge.worker.queue.round();
    await queriedUntil(async () => {
      const [more] = await bridge.rows(
        "SELECT holder FROM bridge_encrypted_intake WHERE matrix_event_id = '$more'",
      );
      return more?.["holder"] === null;
    });
    isRead.resolve(undefined);
    await round;
    await bridge.pass(5_000);
    assert.deepEqual(await bridge.states(), { $q: "derived", $more: "derived" });
    assert.deepEqual(await bridge.order(), ["$q", "$more"]);
  });

  it("a message that was read at once waits for the question of the same person that it goes on with, and so does !cancel [INT-6] [DEL-6]", async (t) => {
    const bridge = await setUp(t);
    bridge.devices.sessions.add("session-2");
    const cancel = { body: "!cancel", "m.mentions": undefined };
    const reply = { "m.relates_to": { "m.in_reply_to": { event_id: "$canceled" } } };
    await bridge.bring(sealed("q"), sealed("canceled"));
    await bridge.bring(
      inThread("more", "$q", "session-2"),
      inThread("bobs", "$q", "session-2", "@bob:a.test"),
    );
    await bridge.bring(
      sealed("c", {}, { ...cancel, ...reply }, "session-2"),
      sealed("next", {}, {}, "session-2"),
    );
    assert.deepEqual(Object.keys(await bridge.states()).sort(), ["$c", "$canceled", "$more", "$q"]);
    bridge.devices.sessions.add("session-1");
    await bridge.worker.keysCame(["!r" as RoomId]);
    await bridge.pass(10_000);
    assert.deepEqual(await bridge.order(), ["$q", "$more", "$next"]);
    const kinds = (await bridge.rows("SELECT kind FROM bridge_notices")).map(({ kind }) => kind);
    assert.deepEqual(kinds, ["delegation_canceled"]);
  });

  it("messages that ask nothing and stand in each other's threads wait no longer than for a key [ENC-10]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(inThread("one", "$other"), inThread("other", "$one"));
    bridge.devices.sessions.add("session-1");
    await bridge.pass(KEY_WAIT_MS + 30_000, 15_000);
    assert.deepEqual(await bridge.states(), { $one: "derived", $other: "derived" });
    assert.deepEqual(await bridge.order(), []);
  });

  it("a request that hangs delays only its own event [ENC-10]", async (t) => {
    const bridge = await setUp(t);
    const elsewhere = { room_id: "!other" };
    await bridge.bring(sealed("hanging"));
    await bridge.bring(
      { ...member(ghost("docs"), "join"), ...elsewhere, event_id: "$docs-there" },
      { ...member("@alice:a.test", "join"), ...elsewhere, event_id: "$alice-there" },
    );
    bridge.homeserver.set("$hanging", "hangs");
    bridge.worker.queue.start();
    await queriedUntil(
      async () =>
        (await bridge.rows("SELECT FROM bridge_encrypted_intake WHERE holder IS NOT NULL")).length === 1,
    );
    await bridge.bring(sealed("late", elsewhere, {}, "session-2"));
    bridge.devices.sessions.add("session-2");
    bridge.worker.queue.wake();
    await queriedUntil(async () => (await bridge.states())["$late"] !== "awaiting_key");
    assert.deepEqual(await bridge.states(), { $hanging: "awaiting_key", $late: "derived" });
    await bridge.worker.queue.drain();
  });

  it("events are read within seconds when the database fails while one is derived, or right after their claim [ENC-10]", async (t) => {
    const bridge = await setUp(t);
    const { memberships, envelopes } = bridge.ledger;
    const fails = async (): Promise<never> => assert.fail("the connection broke");
    for (const [name, fail] of [
      ["e1", () => t.mock.method(memberships, "joinedGhosts").mock.mockImplementationOnce(fails)],
      ["e2", () => t.mock.method(envelopes, "derive").mock.mockImplementationOnce(fails)],
    ] as const) {
      await bridge.bring(sealed(name, {}, {}, `session-${name}`));
      bridge.devices.sessions.add(`session-${name}`);
      fail();
      await assert.rejects(bridge.worker.queue.round());
      await bridge.pass(2_000);
      assert.deepEqual(await bridge.order(), [`$${name}`]);
    }
  });

  it("an event that another process has by now delays none of those that were claimed with it [DEL-9]", async (t) => {
    const bridge = await setUp(t);
    const { memberships } = bridge.ledger;
    await bridge.bring(sealed("e1"), sealed("e2"));
    bridge.devices.owns = () => false;
    const { joinedGhosts } = memberships;
    t.mock.method(memberships, "joinedGhosts", async (rooms: readonly RoomId[]) => {
      await bridge.rows("UPDATE bridge_encrypted_intake SET fence = fence + 1 WHERE matrix_event_id = '$e1'");
      return joinedGhosts(rooms);
    });
    await bridge.worker.queue.round();
    const free = "SELECT matrix_event_id AS event FROM bridge_encrypted_intake WHERE holder IS NULL";
    assert.deepEqual(await bridge.rows(free), [{ event: "$e2" }]);
  });

  it("each event is derived once when two rounds run at the same time", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(...Array.from({ length: 20 }, (_, index) => sealed(`e${index}`)));
    bridge.devices.sessions.add("session-1");
    await Promise.all([bridge.worker.queue.round(), bridge.worker.queue.round()]);
    const claimed = await bridge.rows("SELECT count(*)::int AS n FROM bridge_delegations");
    assert.deepEqual(claimed, [{ n: 20 }]);
    assert.equal((await bridge.order()).length, 20);
  });

  it("other ghosts of a room read its events when one ghost's device has stopped [ENC-5]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(member(ghost("aaa"), "join"));
    bridge.gone.add(ghost("aaa"));
    await bridge.bring(sealed("e1"));
    bridge.devices.sessions.add("session-1");
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.states(), { $e1: "derived" });
  });

  it("late keys of other rooms are used at once when one room's ghost has stopped [ENC-10]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(sealed("stuck"));
    bridge.gone.add(ghost("docs"));
    await bridge.pass(KEY_WAIT_MS + 10_000, 5_000);
    assert.deepEqual(await bridge.states(), { $stuck: "awaiting_key" });
    const elsewhere = { room_id: "!other" };
    await bridge.bring(
      { ...member(ghost("math"), "join"), ...elsewhere, event_id: "$math" },
      { ...member("@alice:a.test", "join"), ...elsewhere, event_id: "$alice" },
      sealed("late", elsewhere, {}, "session-2"),
    );
    await bridge.worker.queue.round();
    bridge.devices.sessions.add("session-2");
    await bridge.worker.keysCame(["!other" as RoomId]);
    await bridge.worker.queue.round();
    assert.equal((await bridge.states())["$late"], "derived");
    await bridge.pass(KEY_WAIT_MS, 5_000);
    assert.equal((await bridge.states())["$stuck"], "key_wait_elapsed");
  });

  it("an event that came while no machine was open is opened from memory once, and fetched from then on [DEL-9]", async (t) => {
    const bridge = await setUp(t);
    const notOpen = { kind: "unavailable" } as const;
    bridge.devices.onDecrypt = () => notOpen;
    await bridge.bring(sealed("e1"), sealed("e2", {}, {}, "session-2"));
    bridge.homeserver.clear();
    bridge.devices.onDecrypt = () => undefined;
    bridge.devices.sessions.add("session-1");
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.states(), { $e1: "derived", $e2: "awaiting_key" });
    await bridge.pass(20_000);
    assert.deepEqual(await bridge.states(), { $e1: "derived", $e2: "event_unavailable" });
  });

  it("an event that waits for its ghost's owner alone counts as opened at once, and one whose key is late does not [OPS-2]", async (t) => {
    const bridge = await setUp(t);
    const elsewhere = { kind: "unavailable" } as const;
    bridge.devices.onDecrypt = () => elsewhere;
    await bridge.bring(sealed("e1"), sealed("e2", {}, {}, "session-2"));
    bridge.devices.onDecrypt = () => undefined;
    bridge.devices.sessions.add("session-1");
    await bridge.worker.queue.round();
    assert.deepEqual(bridge.lines, ["at_once"]);
    bridge.devices.sessions.add("session-2");
    await bridge.worker.keysCame(["!r" as RoomId]);
    await bridge.worker.queue.round();
    assert.deepEqual(bridge.lines, ["at_once", "after_wait"]);
  });

  it("a question that comes before the ghost's join is asked, whether its key is here or comes later [ENC-5]", async (t) => {
    const bridge = await setUp(t);
    bridge.devices.sessions.add("session-1");
    const room = { room_id: "!new" };
    await bridge.bring(member(ghost("docs"), "invite", { ...room, sender: "@alice:a.test" }));
    const late = sealed("late", room, {}, "session-2");
    await bridge.bring(sealed("q", room), late);
    bridge.homeserver.set("$late", undefined);
    await bridge.pass(3_000);
    await bridge.bring(member(ghost("docs"), "join", room));
    bridge.homeserver.set("$late", late);
    bridge.devices.sessions.add("session-2");
    await bridge.pass(5_000);
    assert.deepEqual(await bridge.order(), ["$q", "$late"]);
  });

  it("an event that lacked its key is fetched again, however soon the key comes [ENC-5]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(sealed("e1"));
    bridge.homeserver.clear();
    bridge.devices.sessions.add("session-1");
    await bridge.worker.queue.round();
    await bridge.pass(20_000);
    assert.deepEqual(await bridge.states(), { $e1: "event_unavailable" });
  });

  it("an event whose ghosts another process was given after its claim waits for that one [ENC-5] [DEL-9]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(sealed("e1"));
    bridge.devices.owns = () => false;
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.states(), { $e1: "awaiting_key" });
    bridge.devices.owns = () => true;
    bridge.devices.sessions.add("session-1");
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.states(), { $e1: "derived" });
  });

  it("the wait is prolonged while the keys that lie at the homeserver cannot be read [ENC-6] [ENC-8]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(sealed("e1"));
    const away = { kind: "retry", cause: "network", afterMs: 1_000, errcode: undefined } as const;
    bridge.devices.catchupOutcome = away;
    await bridge.pass(KEY_WAIT_MS + 60_000, 10_000);
    assert.deepEqual(await bridge.states(), { $e1: "awaiting_key" });
    bridge.devices.catchupOutcome = { kind: "ok", value: undefined };
    bridge.devices.atHomeserver.push({ session: "session-1", room: "!r" as RoomId });
    await bridge.pass(60_000, 5_000);
    assert.deepEqual(await bridge.states(), { $e1: "derived" });
  });

  it("an event that no ghost of this process can fetch is left to the process of the room's other ghost [ENC-5]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(member(ghost("math"), "join"));
    bridge.devices.owns = (one) => one === ghost("docs");
    await bridge.bring(sealed("e1"));
    bridge.homeserver.set("$e1", undefined);
    await bridge.worker.queue.round();
    await bridge.pass(2_000);
    const attempts = "SELECT attempts FROM bridge_encrypted_intake";
    assert.deepEqual(await bridge.rows(attempts), [{ attempts: 1 }], "though it is due");
    const now = bridge.clock.now();
    const others = await bridge.ledger.envelopes.claim({ limit: 1, now, leaseUntil: now + 1_000 });
    assert.deepEqual(
      others.map(({ event }) => event),
      ["$e1"],
    );
    await bridge.pass(30_000, 1_000);
    assert.deepEqual(await bridge.states(), { $e1: "awaiting_key" }, "the other may wait for its key");
    await bridge.pass(KEY_WAIT_MS + 60_000, 30_000);
    assert.deepEqual(await bridge.states(), { $e1: "event_unavailable" });
  });

  it("an event that another process's ghost alone can fetch holds its room for one minute, is tried rarely from then on, and its wait is ended there, with a notice [ENC-5] [ENC-6]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(member(ghost("math"), "join"));
    bridge.devices.owns = (one) => one === ghost("docs");
    await bridge.bring(sealed("e1"), question("behind"));
    bridge.homeserver.set("$e1", undefined);
    const attempts = async () =>
      Number((await bridge.rows("SELECT attempts FROM bridge_encrypted_intake"))[0]?.["attempts"]);
    await bridge.pass(62_000);
    assert.deepEqual(await bridge.order(), ["$behind"]);
    const inPlace = await attempts();
    await bridge.pass(150_000);
    assert.ok((await attempts()) - inPlace <= 6, `${inPlace}, and ${await attempts()} in all`);
    await bridge.pass(KEY_WAIT_MS - 212_000, 30_000);
    assert.deepEqual(await bridge.states(), { $e1: "awaiting_key" });
    bridge.devices.owns = (one) => one === ghost("math");
    bridge.homeserver.set("$e1", sealed("e1"));
    await bridge.pass(60_000, 5_000);
    assert.deepEqual(await bridge.states(), { $e1: "key_wait_elapsed" });
    assert.deepEqual(await bridge.rows("SELECT kind FROM bridge_notices"), [{ kind: "keys_missing" }]);
  });

  for (const [what, answer] of [
    [
      "whose key is withheld from the ghosts of this process",
      { kind: "missing_key", withheld: "m.unverified" },
    ],
    [
      "of which another's key came to the ghosts of this process",
      { kind: "refused", reason: "sender_mismatch" },
    ],
  ] as const) {
    it(`an event ${what} is left for a while to the process of the room's other ghost [DEL-9] [ENC-6]`, async (t) => {
      const bridge = await setUp(t);
      await bridge.bring(member(ghost("math"), "join"));
      bridge.devices.owns = (one) => one === ghost("docs");
      bridge.devices.onDecrypt = () => answer;
      await bridge.bring(sealed("e1"));
      await bridge.pass(10_000);
      assert.deepEqual(await bridge.states(), { $e1: "awaiting_key" });
      await bridge.pass(20_000);
      assert.notDeepEqual(await bridge.states(), { $e1: "awaiting_key" }, "the other has no other key");
    });
  }

  it("the session for an answer is begun before the question is read, where the room has one ghost [DEL-9]", async (t) => {
    const bridge = await setUp(t);
    bridge.devices.onDecrypt = () => ({ kind: "unavailable" });
    await bridge.bring(sealed("e1"));
    await bridge.worker.queue.round();
    assert.deepEqual(await bridge.states(), { $e1: "awaiting_key" });
    assert.deepEqual(bridge.devices.begun, [{ ghost: ghost("docs"), room: "!r" }]);

    await bridge.bring(member(ghost("math"), "join"));
    await bridge.pass(5_000);
    assert.equal(bridge.devices.begun.length, 1, "nobody knows which of two ghosts will answer");
  });

  it("intake envelopes expire at their deadlines when the mode goes back from `on` [ENC-1]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(sealed("e1"), question("behind"), sealed("e2"));
    const deps = {
      ledger: bridge.ledger,
      clock: bridge.clock,
      log: pino({ level: "silent" }),
      observe: { ended: () => {}, expired: () => {}, failed: () => {} },
    };
    await createIntakeEnvelopeExpiry(deps).round();
    await bridge.clock.advance(KEY_WAIT_MS - 1);
    await createIntakeEnvelopeExpiry(deps).round();
    assert.deepEqual(await bridge.states(), { $e1: "awaiting_key", $e2: "awaiting_key" });
    await bridge.clock.advance(1);
    await createIntakeEnvelopeExpiry(deps).round();
    assert.deepEqual(await bridge.states(), { $e1: "key_wait_elapsed", $e2: "key_wait_elapsed" });
    assert.deepEqual(await bridge.order(), ["$behind"]);
  });
});
