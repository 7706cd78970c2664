// Events that are not what the specification says: each is recorded as malformed, and stops no other.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { MALFORMED_REASONS, readEvents } from "../../../../src/bridge/intake/read-events.ts";
import { unicodeText } from "../../../support/arbitraries.ts";
import { intakeFixture, jobs, question } from "../../../support/intake.ts";
import { ghost } from "../../../support/ledger.ts";

const CANARY = "canary-9f2c41d7";

describe("malformed events", () => {
  /** Thirty ways of being malformed; each carries the canary wherever it can. */
  function malformedEvents(): unknown[] {
    const q = (changes: Record<string, unknown>, content: Record<string, unknown> = {}) =>
      question(`bad-${CANARY}`, changes, { body: CANARY, ...content });
    return [
      null,
      CANARY,
      42,
      [CANARY],
      {},
      q({ event_id: undefined }),
      q({ event_id: CANARY }),
      q({ event_id: 7 }),
      q({ event_id: `$${"x".repeat(300)}` }),
      q({ event_id: "$nul\u0000" }),
      q({ event_id: "$" }),
      q({ room_id: undefined }),
      q({ room_id: "#alias:a.test" }),
      q({ room_id: ["!r"] }),
      q({ sender: undefined }),
      q({ sender: "alice" }),
      q({ sender: "@alice" }),
      q({ sender: "@alice:not a server" }),
      q({ type: undefined }),
      q({ type: { nested: CANARY } }),
      q({ origin_server_ts: "yesterday" }),
      q({ origin_server_ts: -1 }),
      q({ origin_server_ts: 1.5 }),
      q({ content: CANARY }),
      q({ content: null }),
      q({}, { msgtype: 1 }),
      q({}, { body: { text: CANARY } }),
      q({}, { "m.mentions": [ghost("docs")] }),
      q({}, { "m.mentions": { user_ids: CANARY } }),
      q({}, { "m.relates_to": { rel_type: "m.thread", event_id: CANARY } }),
    ];
  }

  it("seventy of 100 events become delegations when 30 are malformed in thirty ways, and nothing is logged [INT-7]", async (t) => {
    const fixture = await intakeFixture(t, { room: 100 });
    const good = Array.from({ length: 70 }, (_, index) => question(`good${index}`));
    const bad = malformedEvents();
    assert.equal(bad.length, 30);
    const mixed = good.flatMap((event, index) => (index < 30 ? [bad[index], event] : [event]));
    assert.equal((await fixture.events("t1", ...mixed)).status, 200);
    assert.equal((await jobs(fixture)).length, 70);
    const rows = await fixture.rows("SELECT reason, matrix_event_id, room_id FROM bridge_malformed_events");
    assert.equal(rows.length, 30);
    for (const row of rows) assert.ok((MALFORMED_REASONS as readonly unknown[]).includes(row["reason"]));
    assert.match(
      await fixture.metrics.registry.metrics(),
      /drawbridge_malformed_events_total\{reason="event_id"\} 7/,
    );
    assert.ok(!fixture.logged.join("").includes(CANARY));
  });

  it("an event nested too deep to serialise is recorded as malformed, and affects no other [INT-7]", async (t) => {
    const fixture = await intakeFixture(t);
    const deep = `{"event_id":"$deep","content":${"[".repeat(200_000)}${"]".repeat(200_000)}}`;
    const body = `{"events":[${deep},${JSON.stringify(question("good"))}]}`;
    assert.equal((await fixture.put("t1", body)).status, 200);
    assert.deepEqual(await jobs(fixture), ["$good"]);
    assert.equal((await fixture.rows("SELECT 1 FROM bridge_malformed_events")).length, 1);
  });

  it("reading never throws, and accounts for every event, whatever is sent [INT-7]", () => {
    const hostile = fc.oneof(
      fc.jsonValue(),
      fc.record(
        {
          event_id: fc.oneof(fc.constant("$e"), unicodeText()),
          room_id: fc.oneof(fc.constant("!r"), unicodeText()),
          sender: fc.oneof(fc.constant("@a:b"), unicodeText()),
          type: fc.constantFrom(
            "m.room.message",
            "m.room.member",
            "m.room.redaction",
            "m.room.encryption",
            "x",
          ),
          state_key: fc.oneof(fc.constant(""), fc.jsonValue()),
          origin_server_ts: fc.oneof(fc.integer({ min: 0 }), fc.double(), fc.jsonValue()),
          content: fc.oneof(
            fc.jsonValue(),
            fc.record(
              {
                msgtype: fc.jsonValue(),
                body: fc.jsonValue(),
                "m.mentions": fc.jsonValue(),
                "m.relates_to": fc.jsonValue(),
              },
              { requiredKeys: [] },
            ),
          ),
        },
        { requiredKeys: [] },
      ),
    );
    fc.assert(
      fc.property(fc.array(hostile, { maxLength: 20 }), (raw) => {
        const { events, malformed } = readEvents(raw);
        assert.equal(events.length + malformed.length, raw.length);
      }),
      { numRuns: 2_000 },
    );
  });
});
