import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createOperations } from "../../../../src/bridge/ledger/operator-commands.ts";
import {
  ACCEPTED,
  arrivals,
  BUCKET,
  claimEnvelope,
  envelope,
  event,
  job,
  LEASE_MS,
  ledgerFixture,
  NOTICE_INTERVAL_MS,
  PART,
  room,
  T0,
} from "../../../support/ledger.ts";

const AWAY = { reason: "agent_unavailable", undelivered: true } as const;
const CANCELED = { state: "canceled", stage: "follow", reason: "source_redacted" } as const;

describe("operations", () => {
  it("say of each open delegation what it waits for, since when and behind what [OPS-1]", async (t) => {
    const { pool, delegations, admit, claimOne, claim } = await ledgerFixture(t);
    const operations = createOperations(pool, NOTICE_INTERVAL_MS);
    await admit([], arrivals(job("q1"), job("q2"), envelope("e3"), job("q4")));
    await admit([], arrivals(envelope("e5", { room: room("s") }), job("q6", { room: room("s") })));
    const q1 = await claimOne();
    const states = async (now: number) =>
      (await operations.delegations(now)).map((one) => [one.event, one.waitsFor, one.behind]);
    const id = q1.lease.delegationId;
    assert.deepEqual(await states(T0), [
      [event("q1"), "nothing", undefined],
      [event("q2"), "its_turn", id],
      [event("q4"), "its_turn", id],
      [event("q6"), "its_turn", event("e5")],
    ]);
    assert.equal(
      (await operations.delegation(id, T0))?.nextAt,
      undefined,
      "the end of its lease is no next try",
    );
    await delegations.defer(q1.lease, T0 + 8_000, AWAY);
    const [first] = await operations.delegations(T0 + 1, room("r"));
    assert.deepEqual(
      [first?.waitsFor, first?.lastReason, first?.nextAt, first?.since, first?.attempts],
      ["next_try", "agent_unavailable", T0 + 8_000, T0, 1],
    );
    assert.equal((await operations.delegation(id, T0 + 8_000))?.waitsFor, "a_bridge");
    assert.deepEqual(
      (await operations.rooms()).map((one) => [
        one.room,
        one.delegations,
        one.envelopes,
        one.head,
        one.since,
      ]),
      [
        [room("r"), 3, 1, id, T0],
        [room("s"), 1, 1, event("e5"), T0],
      ].sort(),
    );
    assert.deepEqual(
      (await operations.envelopes(room("s"))).map((one) => [one.event, one.waitsFor, one.holdsRoom]),
      [[event("e5"), "its_key", true]],
    );
    const again = await claimOne({ now: T0 + 8_000 });
    await delegations.beginDispatch(again.lease, BUCKET, T0 + 8_000);
    await delegations.recordAccepted(again.lease, ACCEPTED, T0 + 8_000);
    await delegations.defer(again.lease, T0 + 10_000);
    assert.equal((await operations.delegation(id, T0 + 9_000))?.waitsFor, "the_agent");
    assert.equal((await claim({ now: T0 + 9_000 })).length, 1, "the room has continued");
    assert.equal(await operations.delegation("999", T0), undefined);
  });

  it("say of a room, as of its delegation, since when it waits for its agent: from its first try on", async (t) => {
    const { pool, admit, claimOne } = await ledgerFixture(t);
    const operations = createOperations(pool, NOTICE_INTERVAL_MS);
    await admit([job("q1")]);
    await claimOne({ now: T0 + 5_000 });
    const listed = [...(await operations.delegations(T0 + 6_000)), ...(await operations.rooms())];
    assert.deepEqual(
      listed.map(({ since }) => since),
      [T0 + 5_000, T0 + 5_000],
    );
  });

  it("cancel a delegation: at once while it waits, by its holder while a bridge works on it [OPS-1]", async (t) => {
    const { pool, delegations, admit, claimOne, rows } = await ledgerFixture(t);
    const operations = createOperations(pool, NOTICE_INTERVAL_MS);
    await admit([job("q1"), job("q2"), job("q3")]);
    const q1 = await claimOne();
    const second = (await operations.delegations(T0))[1]?.id ?? "";
    assert.equal(await operations.cancelDelegation(second, T0), "ended");
    assert.equal(await operations.cancelDelegation(second, T0), undefined);
    assert.equal(await operations.cancelDelegation(q1.lease.delegationId, T0), "requested");
    const renewed = await delegations.renew([q1.lease], T0 + LEASE_MS);
    assert.deepEqual([...renewed.canceled], [q1.lease.delegationId]);
    assert.equal(await delegations.beginDispatch(q1.lease, BUCKET, T0), "canceled");
    assert.equal(await delegations.finish(q1.lease, CANCELED, T0), "operator_canceled");
    assert.equal((await claimOne()).sourceEventId, event("q3"));
    assert.deepEqual(
      await rows(
        "SELECT record ->> 'terminal_reason' AS reason FROM bridge_audit WHERE record ->> 'outcome' = 'canceled'",
      ),
      [{ reason: "operator_canceled" }, { reason: "operator_canceled" }],
    );
    assert.deepEqual(await rows("SELECT DISTINCT kind, reason FROM bridge_notices"), [
      { kind: "delegation_stopped", reason: "operator_canceled" },
    ]);
    assert.deepEqual(await rows("SELECT open_count FROM bridge_rooms"), [{ open_count: 1 }]);
  });

  it("retry a delegation that waits, with a new deadline, and never one that a bridge holds [OPS-1]", async (t) => {
    const { pool, delegations, admit, claim, claimOne } = await ledgerFixture(t);
    const operations = createOperations(pool, NOTICE_INTERVAL_MS);
    await admit([job("q1")]);
    const { lease } = await claimOne();
    assert.equal(await operations.retryDelegation(lease.delegationId, T0 + 1), false);
    await delegations.defer(lease, T0 + 50_000, AWAY);
    assert.deepEqual(await claim({ now: T0 + 1_000 }), []);
    assert.equal(await operations.retryDelegation(lease.delegationId, T0 + 1_000), true);
    const again = await claimOne({ now: T0 + 1_000 });
    assert.deepEqual([again.attempts, again.triedAt], [0, T0 + 1_000]);
    // The room is past it: it is due by itself.
    await delegations.defer(again.lease, T0 + 500_000, AWAY);
    assert.equal(await operations.retryDelegation(lease.delegationId, T0 + 2_000), true);
    assert.equal((await claimOne({ now: T0 + 2_000 })).triedAt, T0 + 2_000);
  });

  it("retry a question of an agent that could not be posted, with a new deadline each time [OPS-1]", async (t) => {
    const { pool, delegations, admit, claimOne } = await ledgerFixture(t);
    const operations = createOperations(pool, NOTICE_INTERVAL_MS);
    await admit([job("q1")]);
    const asked = { parts: [PART], options: [], key: undefined, taskId: "t", asked: 0 };
    const until = T0 + 600_000;
    await delegations.recordQuestion(await claimOne(), { ...asked, agentVersion: undefined, until }, T0);
    for (const now of [T0 + LEASE_MS, T0 + 500_000]) {
      assert.equal(await operations.retryDelegation("1", now), true);
      const { lease, inputUntil } = await claimOne({ now });
      assert.equal(inputUntil, now + 600_000);
      await delegations.defer(lease, now + 1_000);
    }
  });

  it("end or shorten the wait for a key, whichever bridge holds it [OPS-1]", async (t) => {
    const { pool, ledger, admit, claim, rows } = await ledgerFixture(t);
    const operations = createOperations(pool, NOTICE_INTERVAL_MS);
    await admit([], arrivals(envelope("e1"), job("q2")));
    const held = await claimEnvelope(ledger, "e1");
    assert.equal(await operations.retryEnvelope(event("e1"), T0), false);
    await ledger.envelopes.defer(held, T0 + 30_000, { requested: false });
    assert.equal(await operations.retryEnvelope(event("e1"), T0 + 1_000), true);
    const again = await claimEnvelope(ledger, "e1", T0 + 1_000);
    assert.equal(await operations.cancelEnvelope(event("e1"), T0 + 2_000), true);
    assert.equal(await operations.cancelEnvelope(event("e1"), T0 + 2_000), false);
    await assert.rejects(ledger.envelopes.defer(again, T0 + 9_000, { requested: false }), {
      code: "lease_lost",
    });
    assert.equal((await operations.envelope(event("e1")))?.reason, "operator_canceled");
    assert.equal((await claim({ now: T0 + 2_000 }))[0]?.sourceEventId, event("q2"));
    assert.deepEqual(await rows("SELECT record ->> 'terminal_reason' AS reason FROM bridge_audit"), [
      { reason: "operator_canceled" },
    ]);
  });
});
