// What a room and the audit learn of intake envelopes that expire.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { EncryptedIntakeAudit } from "../../../../src/bridge/audit/records.ts";
import { INTAKE_ENVELOPE_REASONS } from "../../../../src/bridge/ledger/states.ts";
import {
  arrivals,
  asking,
  claimEnvelope,
  claimEnvelopes,
  envelope,
  event,
  ghost,
  job,
  ledgerFixture,
  NOTICE_INTERVAL_MS,
  room,
  seat,
  T0,
} from "../../../support/ledger.ts";

const NOTICES = "SELECT kind, room_id, ghost_mxid, source_event_id, reason FROM bridge_notices ORDER BY id";
const missing = (where = "r", who = "docs") => ({
  kind: "keys_missing",
  room_id: room(where),
  ghost_mxid: ghost(who),
  source_event_id: null,
  reason: null,
});

describe("expiry of intake envelopes", () => {
  it("writes one audit record, which names no ghost and no agent [ENC-6] [AUD-1]", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t);
    await admit([], { ...arrivals(envelope("e1")), ingress: "recovered" });
    await ledger.envelopes.defer(await claimEnvelope(ledger, "e1"), T0 + 5, { requested: true });
    await ledger.envelopes.expire(await claimEnvelope(ledger, "e1", T0 + 5), "key_wait_elapsed", T0 + 6);
    const [audit, ...none] = await rows("SELECT schema, record FROM bridge_audit");
    assert.deepEqual(none, []);
    assert.equal(audit?.["schema"], "svc.encrypted_intake.v1");
    assert.deepEqual(EncryptedIntakeAudit.parse(audit?.["record"]), {
      schema: "svc.encrypted_intake.v1",
      time: "2026-01-01T00:00:00.006Z",
      outcome: "expired",
      terminal_reason: "key_wait_elapsed",
      room_id: room("r"),
      event_id: event("e1"),
      sender: "@alice:a.test",
      ingress: "recovered",
      key_requests: 1,
      admitted_at: "2026-01-01T00:00:00.000Z",
    });
  });

  it("fits the table and the audit schema for every reason [ENC-6]", async (t) => {
    const fixture = await ledgerFixture(t);
    await seat(fixture);
    const { ledger, admit, rows } = fixture;
    await admit([], arrivals(...INTAKE_ENVELOPE_REASONS.expired.map((reason) => envelope(reason))));
    for (const one of await claimEnvelopes(ledger)) {
      const reason = INTAKE_ENVELOPE_REASONS.expired.find((each) => event(each) === one.event);
      assert.ok(reason);
      await ledger.envelopes.expire(one, reason, T0);
    }
    const reasons = (await rows("SELECT record FROM bridge_audit ORDER BY id")).map(
      ({ record }) => EncryptedIntakeAudit.parse(record).terminal_reason,
    );
    assert.deepEqual(reasons, [...INTAKE_ENVELOPE_REASONS.expired]);
    assert.deepEqual(await rows(NOTICES), [
      missing(),
      {
        kind: "policy_denied",
        room_id: room("r"),
        ghost_mxid: ghost(),
        source_event_id: event("device_not_trusted"),
        reason: "sender_device_untrusted",
      },
    ]);
  });

  it("sends one notice in a key-loss episode, and none within the interval [NOT-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, admit, rows } = fixture;
    await seat(fixture);
    await seat(fixture, room("r"), ghost("another"));
    await seat(fixture, room("s"));
    let sent = 0;
    const expire = async (now: number, where = "r") => {
      const name = `e${sent++}`;
      await admit([], arrivals(envelope(name, { room: room(where) })));
      await ledger.envelopes.expire(await claimEnvelope(ledger, name, now), "key_requests_exhausted", now);
    };
    const decrypt = async (now: number) => {
      const name = `d${sent++}`;
      await admit([], arrivals(envelope(name)));
      const claimed = await claimEnvelope(ledger, name, now);
      await ledger.envelopes.derive(claimed, asking(claimed, []), now);
    };
    await expire(T0);
    await expire(T0 + 1);
    assert.deepEqual(await rows(NOTICES), [missing("r", "another")]);
    await expire(T0 + 2, "s");
    assert.deepEqual(
      await rows(NOTICES),
      [missing("r", "another"), missing("s")],
      "another room's is its own",
    );
    // The episode goes on, however long.
    await expire(T0 + 3 * NOTICE_INTERVAL_MS);
    assert.equal((await rows(NOTICES)).length, 2);
    // It ends, and another begins.
    await decrypt(T0 + 3 * NOTICE_INTERVAL_MS + 1);
    await expire(T0 + 3 * NOTICE_INTERVAL_MS + 2);
    assert.equal((await rows(NOTICES)).length, 3);
    // Episodes that flicker are one to those who read of them, whichever ghost is left to say so.
    await decrypt(T0 + 3 * NOTICE_INTERVAL_MS + 3);
    await fixture.pool.query("DELETE FROM bridge_ghost_rooms WHERE ghost_mxid = $1", [ghost("another")]);
    await expire(T0 + 4 * NOTICE_INTERVAL_MS + 1);
    assert.equal((await rows(NOTICES)).length, 3);
    await expire(T0 + 5 * NOTICE_INTERVAL_MS);
    assert.deepEqual((await rows(NOTICES)).slice(3), [missing("r")]);
  });

  it("ends a room's key-loss episode when an event is decrypted at intake [NOT-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, admit, rows } = fixture;
    await seat(fixture);
    const expire = async (name: string, now: number) => {
      await admit([], arrivals(envelope(name)));
      await ledger.envelopes.expire(await claimEnvelope(ledger, name, now), "key_wait_elapsed", now);
    };
    await expire("e1", T0);
    await admit([], { decryptedIn: [room("other")] });
    await expire("e2", T0 + 2 * NOTICE_INTERVAL_MS);
    assert.equal((await rows(NOTICES)).length, 1);
    await admit([], { decryptedIn: [room("other"), room("r")] });
    await expire("e3", T0 + 4 * NOTICE_INTERVAL_MS);
    assert.equal((await rows(NOTICES)).length, 2);
  });

  it("writes one notice for twenty simultaneous expiries [NOT-1]", async (t) => {
    const fixture = await ledgerFixture(t, 20);
    await seat(fixture);
    await fixture.admit([], arrivals(...Array.from({ length: 20 }, (_, n) => envelope(`e${n}`))));
    const claimed = await claimEnvelopes(fixture.ledger);
    await Promise.all(claimed.map((one) => fixture.ledger.envelopes.expire(one, "key_wait_elapsed", T0)));
    assert.deepEqual(await fixture.rows(NOTICES), [missing()]);
    assert.equal((await fixture.rows("SELECT 1 FROM bridge_audit")).length, 20);
  });

  it("expires an intake envelope in a room that its ghosts have left", async (t) => {
    const { ledger, admit, claim, rows } = await ledgerFixture(t);
    await admit([], arrivals(envelope("e1"), job("q2")));
    await ledger.envelopes.expire(await claimEnvelope(ledger, "e1"), "event_unavailable", T0);
    assert.equal((await claim()).length, 1);
    await admit([], arrivals(envelope("e3")));
    await ledger.envelopes.expire(await claimEnvelope(ledger, "e3"), "key_wait_elapsed", T0);
    assert.deepEqual(await rows(NOTICES), []);
  });
});
