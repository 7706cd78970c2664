import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { NOTHING_ADMITTED } from "../../../../src/bridge/ledger/admission-types.ts";
import { intakeEnvelopeMetrics } from "../../../../src/bridge/metrics.ts";
import { sha256 } from "../../../../src/domain/digest.ts";
import {
  HS_TOKEN,
  type IntakeFixture,
  intakeFixture,
  jobs,
  member,
  question,
} from "../../../support/intake.ts";
import { ghost } from "../../../support/ledger.ts";

async function tables(fixture: IntakeFixture): Promise<unknown> {
  const [row] = await fixture.rows(`SELECT
    (SELECT count(*)::int FROM bridge_handled_events) AS handled,
    (SELECT count(*)::int FROM bridge_delegations) AS delegations,
    (SELECT count(*)::int FROM bridge_malformed_events) AS malformed,
    (SELECT count(*)::int FROM bridge_notices) AS notices`);
  return row;
}
const nothing = { handled: 0, delegations: 0, malformed: 0, notices: 0 };

describe("intake server", () => {
  it("a request without the token gets 401, one with a wrong token 403, and nothing is written [INT-1]", async (t) => {
    const fixture = await intakeFixture(t);
    const body = JSON.stringify({ events: [question("q1")] });
    const send = (headers: Record<string, string>) =>
      fetch(`${fixture.url}/_matrix/app/v1/transactions/1`, { method: "PUT", body, headers });
    const none = await send({});
    assert.equal(none.status, 401);
    assert.equal(((await none.json()) as { errcode: string }).errcode, "M_MISSING_TOKEN");
    for (const authorization of [
      "Bearer wrong",
      `Bearer ${HS_TOKEN} `,
      `bearer ${HS_TOKEN}x`,
      HS_TOKEN,
      "Bearer ",
      "",
    ]) {
      const wrong = await send({ authorization });
      const status = authorization === `Bearer ${HS_TOKEN} ` ? 200 : 403;
      // HTTP drops white space around a header's value, so that one is the right token.
      assert.equal(wrong.status, status, JSON.stringify(authorization));
      if (status === 403) assert.equal(((await wrong.json()) as { errcode: string }).errcode, "M_FORBIDDEN");
      else
        await fixture.pool.query("TRUNCATE bridge_handled_events, bridge_delegations, bridge_rooms CASCADE");
    }
    const query = await fetch(`${fixture.url}/_matrix/app/v1/transactions/1?access_token=${HS_TOKEN}`, {
      method: "PUT",
      body,
    });
    assert.equal(query.status, 401, "a token in the query is none");
    assert.deepEqual(await tables(fixture), nothing);
  });

  it("delegations, handled events and the digest of the exact body are durable when 200 is answered [INT-2]", async (t) => {
    const fixture = await intakeFixture(t, { agents: ["docs", "other"] });
    const both = question(
      "q2",
      {},
      { "m.mentions": { user_ids: [ghost("docs"), ghost("other"), ghost("docs")] } },
    );
    const events = [question("q1"), both, question("q3", { room_id: "!s" })];
    const body = JSON.stringify({ events }, null, 1);
    const response = await fixture.put("t1", body);
    assert.equal(response.status, 200);
    assert.deepEqual(await response.json(), {});
    assert.deepEqual(
      await fixture.rows(
        "SELECT matrix_event_id, ghost_mxid, room_seq::int, room_ordinal, room_siblings FROM bridge_delegations ORDER BY id",
      ),
      [
        { matrix_event_id: "$q1", ghost_mxid: ghost("docs"), room_seq: 1, room_ordinal: 0, room_siblings: 1 },
        { matrix_event_id: "$q2", ghost_mxid: ghost("docs"), room_seq: 2, room_ordinal: 0, room_siblings: 2 },
        {
          matrix_event_id: "$q2",
          ghost_mxid: ghost("other"),
          room_seq: 2,
          room_ordinal: 1,
          room_siblings: 2,
        },
        { matrix_event_id: "$q3", ghost_mxid: ghost("docs"), room_seq: 1, room_ordinal: 0, room_siblings: 1 },
      ],
    );
    // The same ID with another body: each event keeps the digest of the body that brought it.
    const second = JSON.stringify({ events: [...events, question("q4")] });
    assert.equal((await fixture.put("t1", second)).status, 200);
    const handled = await fixture.rows(
      "SELECT matrix_event_id, body_sha256 FROM bridge_handled_events ORDER BY 1",
    );
    const broughtBy = (text: string, ...ids: readonly string[]) =>
      ids.map((id) => ({ matrix_event_id: id, body_sha256: sha256(text) }));
    assert.deepEqual(handled, [...broughtBy(body, "$q1", "$q2", "$q3"), ...broughtBy(second, "$q4")]);
  });

  it("a repeated transaction writes no row [INT-3]", async (t) => {
    const fixture = await intakeFixture(t);
    const body = JSON.stringify({ events: [question("q1"), { broken: true }] });
    assert.equal((await fixture.put("t1", body)).status, 200);
    const before = await tables(fixture);
    assert.deepEqual(before, { handled: 1, delegations: 1, malformed: 1, notices: 0 });
    assert.equal((await fixture.put("t1", body)).status, 200);
    assert.deepEqual(await tables(fixture), before);
    assert.equal(fixture.committed.at(-1)?.replayed, true);
  });

  it("a transaction ID with another body admits only the new events [INT-3]", async (t) => {
    const fixture = await intakeFixture(t);
    await fixture.events("t1", question("q1"));
    assert.equal((await fixture.events("t1", question("q1"), question("q2"))).status, 200);
    assert.deepEqual(await tables(fixture), { handled: 2, delegations: 2, malformed: 0, notices: 0 });
    assert.deepEqual(await fixture.rows("SELECT next_seq::int, open_count FROM bridge_rooms"), [
      { next_seq: 3, open_count: 2 },
    ]);
  });

  it("two bodies of one ID at the same moment admit each event and ghost once [INT-3]", async (t) => {
    const fixture = await intakeFixture(t);
    for (let round = 0; round < 20; round++) {
      const names = [1, 2, 3].map((n) => `round${round}-${n}`);
      const [a, b, c] = names.map((name) => question(name));
      const responses = await Promise.all([
        fixture.events(`t${round}`, a, b),
        fixture.events(`t${round}`, b, c),
        fixture.events(`t${round}`, a, b, c),
      ]);
      assert.deepEqual(
        responses.map((response) => response.status),
        [200, 200, 200],
      );
    }
    assert.deepEqual(
      await fixture.rows(
        "SELECT count(*)::int AS jobs, count(DISTINCT matrix_event_id)::int AS events, max(room_seq)::int AS seq FROM bridge_delegations",
      ),
      [{ jobs: 60, events: 60, seq: 60 }],
    );
  });

  it("an event that a catchup found late is asked before what came after it in its room [INT-8]", async (t) => {
    const fixture = await intakeFixture(t);
    await fixture.events("t1", question("q2"), question("q3"));
    const caughtUp = new Map([["!r", ["$q1", "$q2", "$q3"]]]) as never;
    await fixture.handle("catchup-1", [question("q1")], { caughtUp });
    assert.deepEqual(
      await fixture.rows(
        "SELECT matrix_event_id AS event, ingress FROM bridge_delegations ORDER BY room_seq",
      ),
      [
        { event: "$q1", ingress: "recovered" },
        { event: "$q2", ingress: "transaction" },
        { event: "$q3", ingress: "transaction" },
      ],
    );
  });

  it("the 65th waiting event of a room is denied, with one notice [INT-4]", async (t) => {
    const fixture = await intakeFixture(t);
    const questions = Array.from({ length: 70 }, (_, index) => question(`q${index}`));
    assert.equal((await fixture.events("t1", ...questions.slice(0, 60))).status, 200);
    assert.equal(
      (await fixture.events("t2", ...questions.slice(60), question("elsewhere", { room_id: "!s" }))).status,
      200,
    );
    assert.deepEqual(
      await fixture.rows(
        `SELECT state, terminal_stage, terminal_reason, a2a_attempted, count(*)::int FROM bridge_delegations
       GROUP BY 1, 2, 3, 4 ORDER BY 1`,
      ),
      [
        {
          state: "denied",
          terminal_stage: "intake",
          terminal_reason: "room_capacity_exceeded",
          a2a_attempted: false,
          count: 6,
        },
        { state: "queued", terminal_stage: null, terminal_reason: null, a2a_attempted: false, count: 65 },
      ],
    );
    assert.deepEqual(await fixture.rows("SELECT kind, reason, source_event_id FROM bridge_notices"), [
      { kind: "capacity_exceeded", reason: "room_capacity_exceeded", source_event_id: "$q64" },
    ]);
    const refused = 'drawbridge_delegations_finished_total{state="denied",stage="intake",reason=';
    const page = () => fixture.metrics.registry.metrics();
    assert.ok((await page()).includes(`${refused}"room_capacity_exceeded"} 6\n`));
    // The same of what is read later.
    const read = { ...NOTHING_ADMITTED, refused: ["event_replayed"] as const };
    intakeEnvelopeMetrics(fixture.metrics, { derived: () => {}, expired: () => {} }).derived(read);
    assert.ok((await page()).includes(`${refused}"event_replayed"} 1\n`));
    const audited = await fixture.rows("SELECT record->>'outcome' AS outcome FROM bridge_audit");
    assert.deepEqual(
      audited,
      Array.from({ length: 6 }, () => ({ outcome: "denied" })),
    );
  });

  it("senders without permission are refused at intake, and fill neither the room nor the bridge [INT-4] [DEL-2]", async (t) => {
    const fixture = await intakeFixture(t, { global: 64 });
    const refused = Array.from({ length: 70 }, (_, index) =>
      question(`x${index}`, { sender: "@eve:evil.test" }),
    );
    await fixture.events("t1", ...refused, question("q"));
    assert.deepEqual(
      await fixture.rows(
        `SELECT state, terminal_stage AS stage, terminal_reason AS reason, count(*)::int FROM bridge_delegations
         GROUP BY 1, 2, 3 ORDER BY 1`,
      ),
      [
        { state: "denied", stage: "policy", reason: "sender_policy_rejected", count: 70 },
        { state: "queued", stage: null, reason: null, count: 1 },
      ],
    );
    assert.deepEqual(await fixture.rows("SELECT kind, source_event_id AS source FROM bridge_notices"), [
      { kind: "policy_denied", source: "$x0" },
    ]);
    assert.deepEqual(await fixture.rows("SELECT open_count FROM bridge_rooms WHERE room_id = '!r'"), [
      { open_count: 1 },
    ]);
  });

  it("a question to an agent that allows nobody is left to the dispatch, which names the revoked pin [AGT-1]", async (t) => {
    const fixture = await intakeFixture(t, { allowedSenders: [] });
    await fixture.events("t1", question("q"));
    assert.deepEqual(await fixture.rows("SELECT state, terminal_reason FROM bridge_delegations"), [
      { state: "queued", terminal_reason: null },
    ]);
  });

  it("the global capacity counts all rooms, and admits again when some is freed [INT-4]", async (t) => {
    const fixture = await intakeFixture(t, { global: 2 });
    await fixture.events(
      "t1",
      question("q1"),
      question("q2", { room_id: "!s" }),
      question("q3", { room_id: "!u" }),
    );
    assert.deepEqual(
      await fixture.rows("SELECT terminal_reason FROM bridge_delegations WHERE matrix_event_id = '$q3'"),
      [{ terminal_reason: "global_capacity_exceeded" }],
    );
    const [claimed] = await fixture.claim({ now: Date.now() + 60_000 });
    assert.ok(claimed);
    await fixture.ledger.delegations.finish(
      claimed.lease,
      { state: "denied", stage: "policy", reason: "agent_removed" },
      Date.now(),
    );
    await fixture.events("t2", question("q4", { room_id: "!u" }));
    assert.deepEqual(
      await fixture.rows("SELECT state FROM bridge_delegations WHERE matrix_event_id = '$q4'"),
      [{ state: "queued" }],
    );
  });

  it("a body that is not a transaction is refused, and nothing is written [INT-5]", async (t) => {
    const fixture = await intakeFixture(t, { bodyBytesMax: 2_048 });
    const cases: [string | Uint8Array, number, string][] = [
      ["", 400, "M_NOT_JSON"],
      ["{", 400, "M_NOT_JSON"],
      ["[]", 400, "M_BAD_JSON"],
      ["null", 400, "M_BAD_JSON"],
      ["{}", 400, "M_BAD_JSON"],
      ['{"events":{}}', 400, "M_BAD_JSON"],
      [Buffer.from('{"events":[]}', "utf16le"), 400, "M_NOT_JSON"],
      [new Uint8Array([0x7b, 0xff, 0xfe, 0x7d]), 400, "M_NOT_JSON"],
      [`{"events":[${" ".repeat(4_096)}]}`, 413, "M_TOO_LARGE"],
    ];
    for (const [body, status, errcode] of cases) {
      const response = await fixture.put("t1", body);
      assert.equal(response.status, status, String(body));
      assert.equal(((await response.json()) as { errcode: string }).errcode, errcode);
    }
    const { values } = await fixture.metrics.transactions.get();
    const counted = values
      .filter(({ value }) => value > 0)
      .map(({ labels, value }) => [labels.outcome, value]);
    assert.deepEqual(Object.fromEntries(counted), { malformed: cases.length - 1, too_large: 1 });
    assert.deepEqual(await tables(fixture), nothing);
    assert.equal((await fixture.put("t1", '{"events":[]}', { "content-type": "text/plain" })).status, 200);
  });

  it("an invitation with much of another server's state stops no transaction [INT-5, INT-7]", async (t) => {
    const fixture = await intakeFixture(t, { bodyBytesMax: 512 * 1024 });
    const state = Array.from({ length: 10 }, (_, n) => ({
      type: `t${n}`,
      content: { topic: "x".repeat(100_000) },
    }));
    const unsigned = { invite_room_state: state };
    const invitation = member(ghost("docs"), "invite", { room_id: "!i", sender: "@eve:e.test", unsigned });
    const body = JSON.stringify({ events: [question("q1"), invitation, question("q2", { unsigned })] });
    assert.equal((await fixture.put("t1", body)).status, 200);
    assert.deepEqual(await jobs(fixture), ["$q1", "$q2"]);
    const invited = await fixture.rows("SELECT inviter FROM bridge_ghost_rooms WHERE room_id = '!i'");
    assert.deepEqual(invited, [{ inviter: "@eve:e.test" }]);
    const digests = await fixture.rows("SELECT DISTINCT body_sha256 FROM bridge_handled_events");
    assert.deepEqual(digests, [{ body_sha256: sha256(body) }], "of the body as it came");

    // Nothing of an event is left out, whatever comes with it: such a transaction comes again without these messages.
    const content = { ciphertext: "x".repeat(60_000) };
    const to_device = Array.from({ length: 10 }, () => ({ sender: "@eve:e.test", type: "t", content }));
    const [status, after] = [
      (await fixture.put("t2", JSON.stringify({ to_device, events: [question("q3")] }))).status,
      (await fixture.put("t2", JSON.stringify({ events: [question("q3")] }))).status,
    ];
    assert.deepEqual([status, after], [413, 200]);
    assert.deepEqual(await jobs(fixture), ["$q1", "$q2", "$q3"]);
  });

  it("what another server fills with values is not parsed, and stops no transaction [INT-5, INT-7]", async (t) => {
    const fixture = await intakeFixture(t);
    const dense = Array.from({ length: 60_000 }, () => ({}));
    const to_device = [{ sender: "@eve:e.test", type: "t", content: dense }];
    const invitation = member(ghost("docs"), "invite", {
      room_id: "!i",
      sender: "@eve:e.test",
      unsigned: { dense },
    });
    const filled = question("q2", { content: { msgtype: "m.text", body: "?", dense } });
    const body = JSON.stringify({ events: [question("q1"), invitation, filled, question("q3")], to_device });
    const parsed = t.mock.method(JSON, "parse");
    assert.equal((await fixture.put("t1", body)).status, 200);
    assert.ok(parsed.mock.calls.every(({ arguments: [text] }) => String(text).length < 10_000));
    assert.deepEqual(await jobs(fixture), ["$q1", "$q3"]);
    const read = "SELECT matrix_event_id AS event, reason FROM bridge_malformed_events";
    assert.deepEqual(await fixture.rows(read), [{ event: "$q2", reason: "content" }]);
  });

  it("a transaction gets 503 when the database cannot commit, and is recorded when it comes again [INT-5]", async (t) => {
    const fixture = await intakeFixture(t);
    await fixture.pool.query("ALTER TABLE bridge_delegations RENAME TO hidden");
    const response = await fixture.events("t1", question("q1"));
    assert.equal(response.status, 503);
    await fixture.pool.query("ALTER TABLE hidden RENAME TO bridge_delegations");
    assert.deepEqual(await tables(fixture), nothing);
    assert.equal((await fixture.events("t1", question("q1"))).status, 200);
    assert.deepEqual(await tables(fixture), { handled: 1, delegations: 1, malformed: 0, notices: 0 });
  });

  it("queries for a ghost's user, and pings, are answered", async (t) => {
    const fixture = await intakeFixture(t);
    const headers = { authorization: `Bearer ${HS_TOKEN}` };
    const user = (id: string) =>
      fetch(`${fixture.url}/_matrix/app/v1/users/${encodeURIComponent(id)}`, { headers });
    assert.equal((await user(ghost("docs"))).status, 200);
    assert.equal((await user(ghost("nobody"))).status, 404);
    assert.equal((await user("not a user")).status, 404);
    const ping = await fetch(`${fixture.url}/_matrix/app/v1/ping`, { method: "POST", headers, body: "{}" });
    assert.equal(ping.status, 200);
    assert.equal((await fetch(`${fixture.url}/_matrix/app/v1/ping`, { method: "POST" })).status, 401);
  });
});
