// What a redaction does to the delegations and the intake envelope of its event.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { NewEdit } from "../../../../src/bridge/ledger/admission-types.ts";
import type { UserId } from "../../../../src/domain/identifiers.ts";
import {
  arrivals,
  asking,
  BEGIN_PATIENT,
  BUCKET,
  claimEnvelope,
  envelope,
  event,
  job,
  LEASE_MS,
  ledgerFixture,
  PART,
  room,
  T0,
  untilWaiting,
} from "../../../support/ledger.ts";

const lost = { code: "lease_lost" };
const redact = (name: string, where = "r") => ({ redacted: [{ room: room(where), event: event(name) }] });

describe("a redaction", () => {
  it("ends a queued delegation at once, and marks a leased one [INT-6]", async (t) => {
    const { delegations, admit, claim, claimOne, rows } = await ledgerFixture(t);
    await admit([job("q1"), job("q2"), job("q3")]);
    const q1 = await claimOne();
    const result = await admit([], {
      redacted: ["q1", "q2", "unknown"].map((name) => ({ room: room("r"), event: event(name) })),
    });
    assert.deepEqual(result.canceled, [q1.lease.delegationId]);
    assert.deepEqual(
      await rows(
        "SELECT state, prompt, terminal_reason FROM bridge_delegations WHERE matrix_event_id = '$q2'",
      ),
      [{ state: "canceled", prompt: null, terminal_reason: "source_redacted" }],
    );
    assert.equal(await delegations.beginDispatch(q1.lease, BUCKET, T0), "canceled");
    const renewed = await delegations.renew([q1.lease], T0 + LEASE_MS);
    assert.deepEqual([...renewed.canceled], [q1.lease.delegationId]);
    assert.equal(
      await delegations.recordReply(q1, { parts: [PART], agentVersion: undefined }, T0),
      "canceled",
    );
    await delegations.finish(
      q1.lease,
      { state: "canceled", stage: "dispatch", reason: "source_redacted" },
      T0,
    );
    assert.equal((await claim())[0]?.sourceEventId, event("q3"), "the ended q2 is stepped over");
    assert.deepEqual(await rows("SELECT open_count FROM bridge_rooms"), [{ open_count: 1 }]);
  });

  it("leaves a leased delegation to its holder when a later one is redacted [INT-6]", async (t) => {
    const { delegations, admit, claim, claimOne } = await ledgerFixture(t);
    await admit([job("q1"), job("q2")]);
    const held = await claimOne();
    await admit([], redact("q2"));
    assert.deepEqual(await claim({ holder: "two", now: T0 + 1 }), []);
    assert.equal(await delegations.beginDispatch(held.lease, BUCKET, T0 + 1), "begun");
  });

  it("makes a deferred delegation due at once [INT-6]", async (t) => {
    const { delegations, admit, claim, claimOne } = await ledgerFixture(t);
    await admit([job("q1")]);
    const first = await claimOne();
    await delegations.beginDispatch(first.lease, BUCKET, T0);
    await delegations.defer(first.lease, T0 + 9 * LEASE_MS, {
      undelivered: false,
      reason: "agent_unavailable",
    });
    assert.deepEqual(await claim({ now: T0 + 1 }), []);
    await admit([], { ...redact("q1"), receivedAt: T0 + 1 });
    const [again] = await claim({ now: T0 + 1 });
    assert.equal(again?.cancelRequested, true);
  });

  it("ends a delegation that its holder gives back meanwhile [INT-6]", async (t) => {
    const { pool, delegations, admit, claimOne, rows } = await ledgerFixture(t);
    await admit([job("q1")]);
    const { lease } = await claimOne();
    const blocker = await pool.connect();
    await blocker.query(`${BEGIN_PATIENT}; SELECT FROM bridge_rooms FOR UPDATE`);
    const releasing = delegations.release([lease], T0);
    await untilWaiting(pool, 1, releasing);
    const canceling = admit([], redact("q1"));
    await untilWaiting(pool, 2, Promise.race([releasing, canceling]));
    await blocker.query("COMMIT");
    blocker.release();
    await Promise.all([releasing, canceling]);
    assert.deepEqual(await rows("SELECT state, lease_holder FROM bridge_delegations"), [
      { state: "canceled", lease_holder: null },
    ]);
  });

  it("cancels nothing in another room [INT-6]", async (t) => {
    const { admit, rows } = await ledgerFixture(t);
    await admit([job("q1")]);
    await admit([], redact("q1", "elsewhere"));
    assert.deepEqual(await rows("SELECT state FROM bridge_delegations"), [{ state: "queued" }]);
  });

  it("expires an intake envelope, and its room goes on [INT-6]", async (t) => {
    const { ledger, admit, claim, rows } = await ledgerFixture(t);
    await admit([], arrivals(envelope("e1"), envelope("e2"), job("q3"), envelope("e4", { room: room("s") })));
    const held = await claimEnvelope(ledger, "e1");
    const redacted = [
      { room: room("r"), event: event("e1") },
      { room: room("r"), event: event("e2") },
      { room: room("elsewhere"), event: event("e4") },
    ];
    await admit([], { redacted, receivedAt: T0 + 1 });
    await assert.rejects(ledger.envelopes.derive(held, asking(held, [job("e1")]), T0 + 2), lost);
    await assert.rejects(ledger.envelopes.defer(held, T0 + 2, { requested: false }), lost);
    assert.equal((await claim({ now: T0 + 1 }))[0]?.sourceEventId, event("q3"));
    assert.deepEqual(
      await rows(
        "SELECT state, terminal_reason AS reason FROM bridge_encrypted_intake ORDER BY matrix_event_id",
      ),
      [
        { state: "expired", reason: "source_redacted" },
        { state: "expired", reason: "source_redacted" },
        { state: "awaiting_key", reason: null },
      ],
    );
    assert.deepEqual(await rows("SELECT 1 FROM bridge_notices"), [], "nobody waits for it");
  });
});

describe("an edit", () => {
  it("gives a question its text only where it is by who asked, in the room of the question [DEL-6]", async (t) => {
    const { admit, rows } = await ledgerFixture(t);
    const question = job("q1");
    await admit([question]);
    const [asked] = await rows("SELECT id::text, prompt FROM bridge_delegations");
    const textAfter = async (name: string, change: Partial<NewEdit>) => {
      const { room: where, ghost, sender } = question;
      const edit: NewEdit = {
        ...{ delegation: String(asked?.["id"]), source: question.event, ghost, room: where, sender },
        ...{
          event: event(name),
          prompt: "another text",
          attachment: undefined,
          indexDigest: undefined,
          originServerTs: T0,
          ...change,
        },
      };
      await admit([], {
        events: [edit],
        about: { rooms: [where], related: [] },
        derive: () => ({
          ...{ delegations: [], answers: [], cancels: [], envelopes: [], notices: [] },
          edits: [edit],
        }),
      });
      return (await rows("SELECT prompt FROM bridge_delegations"))[0]?.["prompt"];
    };
    assert.deepEqual(await textAfter("e1", { sender: "@eve:a.test" as UserId }), asked?.["prompt"]);
    assert.deepEqual(await textAfter("e2", { room: room("other") }), asked?.["prompt"]);
    assert.notDeepEqual(await textAfter("e3", {}), asked?.["prompt"]);
  });
});
