// Late keys, lost keys and keys that never come: the intake envelope worker on a real ledger, with time in the test's
// hands and devices that need no cryptography.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { pino } from "pino";
import { createIntakeEnvelopeExpiry } from "../../../../src/bridge/crypto/expire-when-encryption-is-off.ts";
import {
  type IntakeEnvelopeObserver,
  IntakeEnvelopeWorker,
} from "../../../../src/bridge/crypto/wait-for-room-keys.ts";
import { createTransactionHandler } from "../../../../src/bridge/intake/handle-transaction.ts";
import { createNamespace } from "../../../../src/bridge/intake/namespace.ts";
import type { Outcome } from "../../../../src/bridge/matrix/request-result.ts";
import type { EventId, GhostMxid, RoomId, ServerName } from "../../../../src/domain/identifiers.ts";
import { namedTarget } from "../../../support/agents.ts";
import { FakeDevices, sealed } from "../../../support/fake-devices.ts";
import { member, question } from "../../../support/intake.ts";
import { ghost, ledgerFixture, T0 } from "../../../support/ledger.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const KEY_WAIT_MS = 900_000;
const REQUESTS = { attempts: 5, firstAfter: 5_000, longestWait: 120_000 };
type Raw = Record<string, unknown>;
const GHOST_GONE = {
  kind: "retry",
  cause: "ghost_refused",
  afterMs: 60_000,
  errcode: "M_UNKNOWN_DEVICE",
} as const;

async function setUp(t: TestContext) {
  const base = await ledgerFixture(t);
  const clock = new ManualClock(T0);
  const devices = new FakeDevices();
  const byGhost = new Map([[ghost("docs") as GhostMxid, namedTarget("docs")]]);
  const agents = {
    current: async () => ({ byGhost, partnerGhosts: [], revision: 1 }),
    onChange: () => () => {},
    close: async () => {},
  };
  const namespace = createNamespace({
    serverName: "a.test" as ServerName,
    ghostPrefix: "agent_",
    senderLocalpart: "drawbridge",
  });
  const capacity = { room: 64, global: 4_096 };
  const common = {
    ledger: base.ledger,
    agents,
    namespace,
    clock,
    capacity,
    noticeIntervalMs: 600_000,
    contextLifetimeMs: 86_400_000,
  };
  const handle = createTransactionHandler({
    ...common,
    encryption: { devices, takesPart: true, plainInEncrypted: true, keyWaitMs: KEY_WAIT_MS },
  });
  /** What the homeserver has, by event ID; `undefined`: it does not give it; `hangs`: it does not answer. */
  const homeserver = new Map<string, Raw | "hangs" | undefined>();
  let fetchFails: Outcome<never> | undefined;
  /** Ghosts whose devices have stopped. */
  const gone = new Set<string>();
  const lines: string[] = [];
  const reasons: string[] = [];
  const observe: IntakeEnvelopeObserver = {
    ended: (end, waitedMs) => lines.push(`${end} ${waitedMs}`),
    keyRequest: (outcome) => lines.push(`request ${outcome}`),
    waiting: () => {},
    derived: () => {},
    expired: (reason) => reasons.push(reason),
    failed: () => lines.push("failed"),
  };
  const worker = new IntakeEnvelopeWorker({
    ...common,
    devices,
    observe,
    log: pino({ level: "silent" }),
    keyRequests: REQUESTS,
    fetchEvent: async (as, _room, event, signal) => {
      if (fetchFails !== undefined || gone.has(as)) return fetchFails ?? GHOST_GONE;
      const raw = homeserver.get(event);
      if (raw === "hangs") {
        await new Promise((resolve) =>
          signal?.aborted ? resolve(undefined) : signal?.addEventListener("abort", resolve),
        );
        return { kind: "retry", cause: "stopped", afterMs: 0, errcode: undefined };
      }
      return raw === undefined
        ? { kind: "refused", status: 404, errcode: "M_NOT_FOUND" }
        : { kind: "ok", value: { ...raw, unsigned: { age: 5 } } };
    },
  });
  let transactions = 0;
  const bring = async (...events: Raw[]) => {
    transactions += 1;
    for (const event of events) homeserver.set(String(event["event_id"]), event);
    await handle(`t${transactions}`, Buffer.from(`body ${transactions}`), events);
  };
  await bring(member(ghost("docs"), "join"), member("@alice:a.test", "join"));
  return {
    ...base,
    clock,
    devices,
    worker,
    homeserver,
    gone,
    lines,
    reasons,
    bring,
    /** Key requests by what they say, in order. */
    requests: () => devices.sent.map(({ content }) => content["action"]),
    failFetch: (outcome: Outcome<never> | undefined) => {
      fetchFails = outcome;
    },
    /** Lets time pass in steps, with a round at each. */
    pass: async (ms: number, stepMs = 1_000) => {
      for (let passed = 0; passed < ms; passed += stepMs) {
        await clock.advance(Math.min(stepMs, ms - passed));
        await worker.round();
      }
    },
    states: async () =>
      Object.fromEntries(
        (
          await base.rows(
            "SELECT matrix_event_id AS event, state, terminal_reason AS reason FROM bridge_encrypted_intake",
          )
        ).map(({ event, state, reason }) => [event, reason ?? state]),
      ),
    /** Events in the order in which their delegations may be worked on. */
    order: async () => {
      const order: string[] = [];
      for (;;) {
        const claimed = await base.claim({ now: clock.now() });
        if (claimed.length === 0) return order;
        for (const { lease, sourceEventId } of claimed) {
          order.push(sourceEventId);
          const outcome = { state: "completed", stage: "reply", reason: "answered" } as const;
          await base.ledger.delegations.finish(lease, outcome, clock.now());
        }
      }
    },
  };
}

/** Looks until it is so; each look is a query, which gives the worker time. */
async function queriedUntil(look: () => Promise<boolean>): Promise<void> {
  for (let looks = 0; !(await look()); looks++) assert.ok(looks < 500, "it never came to this");
}

describe("IntakeEnvelopeWorker", () => {
  it("a key that comes within a minute is used in room order, and later questions are held back until then [ENC-10]", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(question("before"), sealed("late"), question("behind"));
    assert.deepEqual(await bridge.order(), ["$before"]);
    await bridge.pass(55_000, 5_000);
    assert.deepEqual(await bridge.order(), []);
    bridge.devices.sessions.add("session-1");
    await bridge.worker.keysCame(["!r" as RoomId]);
    await bridge.worker.round();
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
    await bridge.worker.round();
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
    await bridge.worker.round();
    assert.deepEqual(await bridge.order(), ["$e1", "$e2"]);
    assert.deepEqual(bridge.lines, ["catchup 0", "catchup 0"]);
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
    await bridge.worker.round();
    const canceled = bridge.devices.sent.filter(
      ({ content: { action } }) => action === "request_cancellation",
    );
    assert.deepEqual(new Set(canceled.map((one) => one.content["request_id"])), new Set([request_id]));
    assert.ok(bridge.lines.some((line) => line.startsWith("key_request ")));
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
    assert.equal(bridge.lines.filter((line) => line.startsWith("expired ")).length, 2);
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
    await bridge.worker.round();
    assert.deepEqual(await bridge.states(), {
      $changed: "event_changed",
      $redacted: "source_redacted",
      $gone: "event_unavailable",
      $kept: "derived",
    });
    assert.deepEqual(await bridge.order(), ["$kept"]);
    assert.deepEqual(await bridge.rows("SELECT FROM bridge_notices"), [], "none of these is a lost key");
  });

  it("an event of a device that the policy does not trust is refused with a notice after its owner's keys were queried [ENC-9]", async (t) => {
    const bridge = await setUp(t);
    let isTrusted = false;
    const refused = { kind: "refused", reason: "device_not_trusted" } as const;
    bridge.devices.onDecrypt = () => (isTrusted ? undefined : refused);
    bridge.devices.sessions.add("session-1");
    await bridge.bring(sealed("heals"));
    await bridge.worker.round();
    assert.deepEqual(bridge.devices.tracked, ["@alice:a.test"]);
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
    assert.equal(bridge.lines.filter((line) => line.startsWith("not_trusted ")).length, 2);
  });

  it("an event is refused at once when its sender does not own the device that made the session [ENC-9]", async (t) => {
    const bridge = await setUp(t);
    bridge.devices.onDecrypt = () => ({ kind: "refused", reason: "sender_mismatch" });
    await bridge.bring(sealed("forged"), question("behind"));
    await bridge.worker.round();
    assert.deepEqual(await bridge.states(), { $forged: "sender_mismatch" });
    assert.deepEqual(await bridge.order(), ["$behind"]);
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
    await bridge.worker.round();
    assert.deepEqual(await bridge.states(), {
      $unverified: "key_withheld",
      $blacklisted: "key_withheld",
      "$no-olm": "awaiting_key",
    });
    assert.deepEqual(await bridge.rows("SELECT kind FROM bridge_notices"), [{ kind: "keys_missing" }]);
    bridge.devices.onDecrypt = () => undefined;
    bridge.devices.sessions.add("session-1");
    await bridge.worker.keysCame(["!r" as RoomId]);
    await bridge.worker.round();
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
    await bridge.worker.round();
    assert.deepEqual(await bridge.states(), { $reaction: "derived", $unreadable: "derived" });
    assert.deepEqual(await bridge.order(), ["$behind"]);
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
    bridge.worker.start();
    await queriedUntil(
      async () =>
        (await bridge.rows("SELECT FROM bridge_encrypted_intake WHERE holder IS NOT NULL")).length === 1,
    );
    await bridge.bring(sealed("late", elsewhere, {}, "session-2"));
    bridge.devices.sessions.add("session-2");
    bridge.worker.wake();
    await queriedUntil(async () => (await bridge.states())["$late"] !== "awaiting_key");
    assert.deepEqual(await bridge.states(), { $hanging: "awaiting_key", $late: "derived" });
    await bridge.worker.drain();
  });

  it("each event is derived once when two workers run and one lost its lease", async (t) => {
    const bridge = await setUp(t);
    await bridge.bring(...Array.from({ length: 20 }, (_, index) => sealed(`e${index}`)));
    bridge.devices.sessions.add("session-1");
    await Promise.all([bridge.worker.round(), bridge.worker.round()]);
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
    await bridge.worker.round();
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
    await bridge.worker.round();
    bridge.devices.sessions.add("session-2");
    await bridge.worker.keysCame(["!other" as RoomId]);
    await bridge.worker.round();
    assert.equal((await bridge.states())["$late"], "derived");
    await bridge.pass(KEY_WAIT_MS, 5_000);
    assert.equal((await bridge.states())["$stuck"], "key_wait_elapsed");
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

  describe("an edit of a question that waits for its key itself", () => {
    /** The relation stands outside the ciphertext, the new text inside. */
    const edit = (id: string, body: string, changes: Raw = {}, session = "session-1") => {
      const inside = { body: `* ${body}`, "m.new_content": { msgtype: "m.text", body } };
      const event = sealed(id, { origin_server_ts: T0 + Number(id.slice(1)), ...changes }, inside, session);
      const relation = { "m.relates_to": { rel_type: "m.replace", event_id: "$q" } };
      return { ...event, content: { ...event.content, ...relation } };
    };
    type Bridge = Awaited<ReturnType<typeof setUp>>;
    const keyCame = async ({ devices, worker }: Bridge) => {
      devices.sessions.add("session-1");
      await worker.keysCame(["!r" as RoomId]);
      await worker.round();
    };
    const prompts = async ({ claim, clock }: Bridge) =>
      (await claim({ now: clock.now() })).map(({ sourceEventId, prompt }) => [sourceEventId, prompt?.text]);

    it("counts when the question is derived, whether they came together or not; of several the last one [DEL-6] [ENC-3]", async (t) => {
      const bridge = await setUp(t);
      await bridge.bring(sealed("q"), edit("e1", "what?"));
      await bridge.bring(edit("e3", "where?"));
      await bridge.bring(edit("e2", "which?"));
      await keyCame(bridge);
      assert.deepEqual(await prompts(bridge), [["$q", "where?"]]);
      await bridge.pass(3_000);
      assert.deepEqual(await bridge.states(), {
        $q: "derived",
        $e1: "derived",
        $e2: "derived",
        $e3: "derived",
      });
      assert.deepEqual(await prompts(bridge), [["$q", "where?"]]);
      assert.deepEqual(await bridge.order(), []);
    });

    it("counts although it could be read when it came [DEL-6] [ENC-3]", async (t) => {
      const bridge = await setUp(t);
      bridge.devices.sessions.add("session-2");
      await bridge.bring(sealed("q"));
      await bridge.bring(edit("e1", "what?", {}, "session-2"));
      await bridge.pass(5_000);
      await keyCame(bridge);
      assert.deepEqual(await prompts(bridge), [["$q", "what?"]]);
    });

    it("does not count as a replay, by another sender or from another room, nor holds up the question without its key [DEL-6] [ENC-9]", async (t) => {
      const bridge = await setUp(t);
      bridge.devices.sessions.add("session-2");
      await bridge.bring(sealed("q"));
      const replayed = edit("e1", "again", {}, "session-2");
      await bridge.bring(replayed);
      await bridge.rows(
        "INSERT INTO bridge_megolm_indices VALUES (sha256(convert_to($1, 'UTF8')), '$used', now())",
        [`!r ${replayed.content.ciphertext}`],
      );
      await bridge.bring(
        edit("e2", "mine", { sender: "@bob:a.test" }),
        edit("e3", "there", { room_id: "!other" }),
      );
      await bridge.bring(edit("e4", "without a key", {}, "session-3"));
      assert.deepEqual(Object.keys(await bridge.states()).sort(), ["$e1", "$e4", "$q"]);
      await keyCame(bridge);
      assert.deepEqual(await prompts(bridge), [["$q", "question q"]]);
    });

    it("ends after its question expired, and holds its room no longer than that may [DEL-1] [ENC-10]", async (t) => {
      const bridge = await setUp(t);
      await bridge.bring(sealed("q"), edit("e1", "what?"), question("behind"));
      await bridge.pass(60_000);
      assert.deepEqual(await bridge.order(), ["$behind"]);
      await bridge.pass(KEY_WAIT_MS, 30_000);
      const states = await bridge.states();
      assert.deepEqual([states["$q"], states["$e1"]], ["key_requests_exhausted", "key_wait_elapsed"]);
    });
  });
});
