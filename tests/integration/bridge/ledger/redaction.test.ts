import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { BUCKET, event, job, LEASE_MS, ledgerFixture, room, T0 } from "../../../support/ledger.ts";

const redact = (name: string, where = "r") => ({ redacted: [{ room: room(where), event: event(name) }] });

describe("redaction", () => {
  it("redacting a question that waits leaves the one under way to its holder [INT-6]", async (t) => {
    const { ledger, admit, claim } = await ledgerFixture(t);
    await admit([job("q1"), job("q2")]);
    const [held] = await claim();
    assert.ok(held);
    await admit([], redact("q2"));
    assert.deepEqual(await claim({ holder: "two", now: T0 + 1 }), []);
    assert.equal(await ledger.delegations.beginDispatch(held.lease, BUCKET, T0 + 1), "begun");
  });

  it("redacting a question that waits for its next try lets a worker end it at once [INT-6]", async (t) => {
    const { ledger, admit, claim } = await ledgerFixture(t);
    await admit([job("q1")]);
    const [first] = await claim();
    assert.ok(first);
    await ledger.delegations.beginDispatch(first.lease, BUCKET, T0);
    await ledger.delegations.defer(first.lease, T0 + 9 * LEASE_MS, {
      undelivered: false,
      reason: "agent_unavailable",
    });
    assert.deepEqual(await claim({ now: T0 + 1 }), []);
    await admit([], { ...redact("q1"), receivedAt: T0 + 1 });
    const [again] = await claim({ now: T0 + 1 });
    assert.equal(again?.cancelRequested, true);
  });

  it("a redaction in another room cancels nothing [INT-6]", async (t) => {
    const { admit, rows } = await ledgerFixture(t);
    await admit([job("q1")]);
    await admit([], redact("q1", "elsewhere"));
    assert.deepEqual(await rows("SELECT state FROM bridge_delegations"), [{ state: "queued" }]);
  });
});
