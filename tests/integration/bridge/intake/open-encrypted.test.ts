// Encrypted events at intake, on a real ledger, with devices that need no cryptography.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { FakeDevices, keyFor, sealed } from "../../../support/fake-devices.ts";
import { type IntakeFixture, intakeFixture, member, question } from "../../../support/intake.ts";
import { ghost } from "../../../support/ledger.ts";
import { ManualClock, settled } from "../../../support/manual-clock.ts";

const KEY_WAIT_MS = 900_000;

async function setUp(
  t: TestContext,
  options: {
    takesPart?: boolean;
    plainInEncrypted?: boolean;
    agents?: readonly string[];
    clock?: ManualClock;
  } = {},
) {
  const devices = new FakeDevices();
  const { takesPart = true, plainInEncrypted = true, ...rest } = options;
  const fixture = await intakeFixture(t, {
    ...rest,
    encryption: { devices, takesPart, plainInEncrypted, keyWaitMs: KEY_WAIT_MS, recent: { keep: () => {} } },
  });
  await fixture.events("joins", member(ghost("docs"), "join"), member("@alice:a.test", "join"));
  devices.received.length = 0;
  return { devices, ...fixture };
}

const envelopes = (fixture: Pick<IntakeFixture, "rows">) =>
  fixture.rows(
    `SELECT matrix_event_id AS event, state, terminal_reason AS reason, room_seq AS seq
     FROM bridge_encrypted_intake ORDER BY room_seq, matrix_event_id`,
  );
const delegations = (fixture: Pick<IntakeFixture, "rows">) =>
  fixture.rows(
    "SELECT matrix_event_id AS event, state, room_seq AS seq FROM bridge_delegations ORDER BY room_seq",
  );

describe("encrypted events at intake", () => {
  it("an event that cannot be opened is recorded in its position, without content, before it is acknowledged [ENC-3]", async (t) => {
    const fixture = await setUp(t);
    const answer = await fixture.events("t1", question("q1"), sealed("e1"), question("q2"), sealed("e2"));
    assert.equal(answer.status, 200);
    assert.deepEqual(await envelopes(fixture), [
      { event: "$e1", state: "awaiting_key", reason: null, seq: "2" },
      { event: "$e2", state: "awaiting_key", reason: null, seq: "4" },
    ]);
    assert.deepEqual(
      (await delegations(fixture)).map(({ event, seq }) => [event, seq]),
      [
        ["$q1", "1"],
        ["$q2", "3"],
      ],
    );
    const dump = JSON.stringify(await fixture.rows("SELECT e::text AS row FROM bridge_encrypted_intake e"));
    for (const secret of ["question e1", "session-1", "sender-key", "ALICE"])
      assert.ok(!dump.includes(secret));
  });

  it("an event that is marked as automated, or of somebody who may ask nobody here, is neither opened nor waited for [INT-6] [DEL-10]", async (t) => {
    const fixture = await setUp(t);
    const tried: string[] = [];
    fixture.devices.onDecrypt = ({ event }) => void tried.push(event);
    const { content, ...outside } = sealed("marked");
    const marked = { ...outside, content: { ...content, "m.automated": true } };
    const stranger = sealed("stranger", { sender: "@mallory:evil.test" });
    await fixture.events("t1", marked, stranger, sealed("asked"));
    assert.deepEqual(tried, ["$asked"]);
    assert.deepEqual(
      (await envelopes(fixture)).map(({ event }) => event),
      ["$asked"],
    );
  });

  it("the devices of who joins, or invites a ghost, count as changed [ENC-7]", async (t) => {
    const { devices, events } = await setUp(t);
    const invited = member(ghost("docs"), "invite", { room_id: "!other", sender: "@carol:b.test" });
    await events("t1", member("@bob:a.test", "join"), invited, member("@dave:a.test", "leave"));
    assert.deepEqual(
      devices.received.map(({ changedUsers }) => changedUsers),
      [["@bob:a.test", "@carol:b.test"]],
    );
  });

  it("keys in a transaction open its events at once, in the homeserver's order", async (t) => {
    const fixture = await setUp(t);
    const body = { events: [sealed("e1"), question("q1"), sealed("e2")], ...keyFor() };
    assert.equal((await fixture.put("t1", JSON.stringify(body))).status, 200);
    assert.deepEqual(await envelopes(fixture), []);
    assert.deepEqual(
      (await delegations(fixture)).map(({ event }) => event),
      ["$e1", "$q1", "$e2"],
    );
    const metrics = await fixture.metrics.registry.metrics();
    assert.match(metrics, /^drawbridge_encrypted_events_total\{outcome="at_once"\} 2$/m);
  });

  it("a transaction is not acknowledged when its keys cannot be made durable [INT-5]", async (t) => {
    const fixture = await setUp(t);
    fixture.devices.onReceive = () => Promise.reject(new Error("the database is away"));
    const body = JSON.stringify({ events: [sealed("e1")], ...keyFor() });
    assert.equal((await fixture.put("t1", body)).status, 503);
    assert.deepEqual(await envelopes(fixture), []);
    assert.equal((await fixture.events("t1", sealed("e1"))).status, 200);
    assert.equal((await envelopes(fixture)).length, 1);
  });

  it("a machine that does not answer keeps no transaction open [INT-5]", async (t) => {
    const clock = new ManualClock(Date.UTC(2026, 0, 1));
    const fixture = await setUp(t, { clock });
    fixture.devices.onReceive = () => new Promise(() => {});
    fixture.devices.onDecrypt = () => new Promise(() => {});
    let acknowledged = false;
    const body = JSON.stringify({ events: [sealed("e1"), question("q1")], ...keyFor() });
    const put = fixture.put("t1", body).finally(() => {
      acknowledged = true;
    });
    const end = clock.now() + 15_000;
    while (!acknowledged) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      await settled();
      // After the time that both may take the clock stands, and only this machine's speed counts.
      if (clock.now() < end) await clock.advance(100);
    }
    assert.equal((await put).status, 200);
    assert.deepEqual(
      (await envelopes(fixture)).map(({ event }) => event),
      ["$e1"],
    );
    assert.equal((await delegations(fixture)).length, 1);
  });

  it("a machine that is busy for long delays one transaction by two seconds, and none after it, and is given nothing meanwhile but who came, afterwards [INT-5] [DEL-10]", async (t) => {
    const clock = new ManualClock(Date.UTC(2026, 0, 1));
    const fixture = await setUp(t, { clock });
    const over = Promise.withResolvers<void>();
    let given = 0;
    fixture.devices.onReceive = () => {
      given += 1;
      return over.promise;
    };
    fixture.devices.onDecrypt = () => over.promise.then(() => undefined);
    const waits: number[] = [];
    for (const id of ["t1", "t2", "t3"]) {
      const begun = clock.now();
      let acknowledged = false;
      const came = member(`@came_with_${id}:a.test`, "join");
      const events = [question(`q_of_${id}`), sealed(`e_of_${id}`), came];
      const body = JSON.stringify({ events, ...keyFor() });
      const put = fixture.put(id, body).finally(() => {
        acknowledged = true;
      });
      while (!acknowledged) {
        await new Promise((resolve) => setTimeout(resolve, 5));
        await settled();
        if (!acknowledged && clock.wakeTimes.length > 0) await clock.advance(100);
      }
      assert.equal((await put).status, 200);
      waits.push(clock.now() - begun);
    }
    assert.ok(Number(waits[0]) <= 2_100 && Math.max(...waits.slice(1)) <= 1_000, String(waits));
    assert.deepEqual([given, fixture.devices.toCatchUp.length], [1, 2]);
    assert.equal((await envelopes(fixture)).length, 3);
    over.resolve();
    await settled();
    const { received } = fixture.devices;
    assert.deepEqual(
      received.map(({ changedUsers }) => changedUsers),
      [["@came_with_t1:a.test"], ["@came_with_t2:a.test", "@came_with_t3:a.test"]],
    );
    fixture.devices.onReceive = () => Promise.reject(new Error("the database is away"));
    assert.equal((await fixture.put("t4", JSON.stringify({ events: [], ...keyFor() }))).status, 503);
  });

  it("undecryptable events beyond the capacity are refused before the 200, with one notice [ENC-4]", async (t) => {
    const fixture = await setUp(t);
    const many = Array.from({ length: 1_000 }, (_, index) => sealed(`e${String(index).padStart(4, "0")}`));
    assert.equal((await fixture.events("t1", ...many)).status, 200);
    const rows = await envelopes(fixture);
    assert.equal(rows.filter(({ state }) => state === "awaiting_key").length, 64);
    const denied = rows.filter(({ state }) => state === "denied");
    assert.equal(denied.length, 936);
    assert.deepEqual(new Set(denied.map(({ reason }) => reason)), new Set(["room_envelopes_exceeded"]));
    assert.equal(
      (await fixture.rows("SELECT FROM bridge_notices WHERE kind = 'capacity_exceeded'")).length,
      1,
    );
    assert.match(
      await fixture.metrics.registry.metrics(),
      /^drawbridge_encrypted_events_total\{outcome="denied"\} 936$/m,
    );
    assert.deepEqual(await fixture.rows("SELECT open_count FROM bridge_rooms WHERE room_id = '!r'"), [
      { open_count: 0 },
    ]);
  });

  it("a room is not held up by senders who may ask none of its ghosts, nor by edits, ghosts or redacted events", async (t) => {
    const fixture = await setUp(t);
    await fixture.events(
      "t1",
      sealed("stranger", { sender: "@mallory:b.test" }),
      sealed("ghost", { sender: ghost("docs") }),
      sealed("elsewhere", { room_id: "!nobody" }),
      sealed("withdrawn"),
      { ...sealed("emptied"), content: {} },
      {
        ...sealed("edit"),
        content: { ...sealed("edit").content, "m.relates_to": { rel_type: "m.replace", event_id: "$q" } },
      },
      { ...sealed("redaction"), type: "m.room.redaction", content: { redacts: "$withdrawn" } },
    );
    const held = (await envelopes(fixture)).map(({ event }) => event);
    // Of a room that nothing is known of the homeserver's word is taken: a ghost is in it.
    assert.deepEqual(held, ["$elsewhere"]);
  });

  it("opened events are treated as in a plain room: edits, notices and malformed messages trigger nothing", async (t) => {
    const fixture = await setUp(t);
    fixture.devices.sessions.add("session-1");
    await fixture.events(
      "t1",
      sealed("edit", {}, { "m.new_content": { body: "x" } }),
      sealed("notice", {}, { msgtype: "m.notice" }),
      sealed("nobody", {}, { "m.mentions": {} }),
      sealed("unreadable", {}, { body: 7 }),
      sealed("asked"),
    );
    assert.deepEqual(
      (await delegations(fixture)).map(({ event }) => event),
      ["$asked"],
    );
    assert.deepEqual(
      await fixture.rows("SELECT matrix_event_id AS event, reason FROM bridge_malformed_events"),
      [{ event: "$unreadable", reason: "body" }],
    );
    assert.deepEqual(await envelopes(fixture), []);
  });

  it("a ciphertext under another event ID is refused as a replay [ENC-9]", async (t) => {
    const fixture = await setUp(t);
    fixture.devices.sessions.add("session-1");
    await fixture.events("t1", sealed("e1"));
    await fixture.events("t2", { ...sealed("e1"), event_id: "$replayed" });
    assert.deepEqual(
      await fixture.rows(
        "SELECT matrix_event_id AS event, state, terminal_reason AS reason FROM bridge_delegations ORDER BY id",
      ),
      [
        { event: "$e1", state: "queued", reason: null },
        { event: "$replayed", state: "denied", reason: "event_replayed" },
      ],
    );
  });

  it("an event that became an intake envelope becomes nothing else when it arrives again", async (t) => {
    const fixture = await setUp(t);
    await fixture.events("t1", sealed("e1"));
    fixture.devices.sessions.add("session-1");
    await fixture.events("t1-again", sealed("e1"), question("q1"));
    assert.deepEqual(
      (await envelopes(fixture)).map(({ state }) => state),
      ["awaiting_key"],
    );
    assert.deepEqual(
      (await delegations(fixture)).map(({ event }) => event),
      ["$q1"],
    );
  });

  it("keys are taken in, and encrypted events are not opened, in mode `devices` [ENC-2]", async (t) => {
    const fixture = await setUp(t, { takesPart: false });
    const body = { events: [sealed("e1")], ...keyFor() };
    assert.equal((await fixture.put("t1", JSON.stringify(body))).status, 200);
    assert.equal(fixture.devices.received.length, 1);
    assert.deepEqual(await envelopes(fixture), []);
    assert.deepEqual(await delegations(fixture), []);
  });

  it("plain text in an encrypted room is answered only when devices need not be trusted", async (t) => {
    for (const plainInEncrypted of [true, false]) {
      const fixture = await setUp(t, { plainInEncrypted });
      fixture.devices.sessions.add("session-1");
      await fixture.pool.query("INSERT INTO bridge_rooms (room_id, encrypted) VALUES ('!r', true)");
      await fixture.events("t1", question("plain"), sealed("e1"));
      assert.deepEqual(
        (await delegations(fixture)).map(({ event }) => event),
        plainInEncrypted ? ["$plain", "$e1"] : ["$e1"],
      );
    }
  });

  it("a ghost whose agent was removed lets nobody hold up the other ghosts of its room", async (t) => {
    const fixture = await setUp(t);
    const alone = { room_id: "!alone" };
    await fixture.events("t1", member(ghost("gone"), "join"), {
      ...member(ghost("gone"), "join"),
      ...alone,
      event_id: "$alone",
    });
    const eve = { sender: "@eve:other.test" };
    await fixture.events("t2", sealed("held", eve), sealed("tried", { ...eve, ...alone }), sealed("asked"));
    assert.deepEqual(
      (await envelopes(fixture)).map(({ event }) => event),
      ["$asked", "$tried"],
    );
  });

  describe("an encrypted edit", () => {
    /** The relation stands outside the ciphertext, the new text inside. */
    const edit = (id: string, of: string, body: string, changes: object = {}, session?: string) => {
      const inside = { body: `* ${body}`, "m.new_content": { msgtype: "m.text", body } };
      const event = sealed(id, { ...changes }, inside, session);
      const relation = { "m.relates_to": { rel_type: "m.replace", event_id: `$${of}` } };
      return { ...event, content: { ...event.content, ...relation } };
    };
    const prompts = async ({ claim }: IntakeFixture) => {
      const claimed = await claim({ now: Date.now() + 3_600_000 });
      return claimed.map(({ sourceEventId, prompt }) => [sourceEventId, prompt?.text]);
    };

    it("of the person who asked counts before the dispatch, and a plain one does not [DEL-6] [ENC-7]", async (t) => {
      const fixture = await setUp(t, { plainInEncrypted: false });
      await fixture.pool.query("INSERT INTO bridge_rooms (room_id, encrypted) VALUES ('!r', true)");
      await fixture.put("t1", JSON.stringify({ events: [sealed("q")], ...keyFor() }));
      await fixture.events(
        "t2",
        edit("e1", "q", "what?"),
        edit("bob", "q", "mine", { sender: "@bob:a.test" }),
      );
      const content = { "m.relates_to": { rel_type: "m.replace", event_id: "$q" } };
      const plain = { ...content, "m.new_content": { msgtype: "m.text", body: "in plain text" } };
      await fixture.events("t3", question("e2", {}, plain));
      assert.deepEqual(await prompts(fixture), [["$q", "what?"]]);
    });

    it("is used once: its ciphertext under another event ID edits no other question [DEL-6] [ENC-9]", async (t) => {
      const fixture = await setUp(t);
      const body = { events: [sealed("q"), sealed("q2", { room_id: "!r" })], ...keyFor() };
      await fixture.put("t1", JSON.stringify(body));
      const first = edit("e1", "q", "what?");
      await fixture.events("t2", first);
      const { ciphertext } = first.content;
      const replayed = edit("e2", "q2", "ignored");
      await fixture.events("t3", { ...replayed, content: { ...replayed.content, ciphertext } });
      const other = { "m.relates_to": { rel_type: "m.replace", event_id: "$q" } };
      const inner = sealed("e3", {}, { "m.new_content": { msgtype: "m.text", body: "of q" }, ...other });
      const outer = { "m.relates_to": { rel_type: "m.replace", event_id: "$q2" } };
      await fixture.events("t4", { ...inner, content: { ...inner.content, ...outer } });
      const rows = await fixture.rows(
        "SELECT matrix_event_id AS event, fence FROM bridge_delegations ORDER BY 1",
      );
      assert.deepEqual(rows, [
        { event: "$q", fence: "1" },
        { event: "$q2", fence: "0" },
      ]);
    });

    it("an encrypted edit that comes with its question is used once too, and only its own ciphertext counts [DEL-6] [ENC-9]", async (t) => {
      const fixture = await setUp(t);
      const first = edit("e1", "q", "what?");
      const events = [sealed("q"), first];
      await fixture.put("t1", JSON.stringify({ events, ...keyFor() }));
      const { ciphertext } = first.content;
      const replayed = edit("e2", "q2", "ignored");
      await fixture.events("t2", sealed("q2"), {
        ...replayed,
        content: { ...replayed.content, ciphertext },
      });
      assert.deepEqual(await prompts(fixture), [["$q", "what?"]]);
      await fixture.rows("UPDATE bridge_rooms SET head_seq = 2, head_at = '2026-01-01' WHERE room_id = '!r'");
      assert.deepEqual(await prompts(fixture), [["$q2", "question q2"]]);
    });

    it("whose key is missing waits for it only if it edits an open question of its sender [DEL-6] [ENC-3]", async (t) => {
      const fixture = await setUp(t);
      await fixture.put("t1", JSON.stringify({ events: [sealed("q")], ...keyFor() }));
      await fixture.events(
        "t2",
        edit("e1", "q", "what?", {}, "session-2"),
        edit("bob", "q", "mine", { sender: "@bob:a.test" }, "session-2"),
        edit("e2", "nothing", "which?", {}, "session-2"),
      );
      assert.deepEqual(
        (await envelopes(fixture)).map(({ event }) => event),
        ["$e1"],
      );
    });
  });
});
