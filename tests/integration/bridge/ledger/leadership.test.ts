// What a bridge that begins to serve frees: the leases of those that served before it, and nothing else.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { openLeadershipConnection } from "../../../../src/bridge/ledger/leadership.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import { arrivals, claimEnvelopes, envelope } from "../../../support/intake-envelopes.ts";
import {
  BUCKET,
  ghost,
  job,
  LEASE_MS,
  type LedgerFixture,
  ledgerFixture,
  room,
  T0,
} from "../../../support/ledger.ts";

const lost = { code: "lease_lost" };
const LATER = T0 + 1_000;

/** Frees what is held, as the next bridge does; returns how much that was. */
async function free(t: TestContext, { url }: LedgerFixture): Promise<number> {
  const connection = await openLeadershipConnection(url, { clock: systemClock });
  t.after(() => connection.close());
  assert.ok(await connection.take("alone"));
  const freed = await connection.freeLeases(LATER);
  await connection.close();
  return freed;
}

describe("leadership", () => {
  it("questions in the hands of a bridge that is gone are free at once, and its writes count no more [DEL-9]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, admit, claim } = fixture;
    await admit([job("q1", { room: room("one") })]);
    await admit([job("q2", { room: room("two") })]);
    const held = await claim({ holder: "dead" });
    const [first, second] = held;
    assert.ok(first && second && held.length === 2);
    // One is accepted by its agent, and no longer the head of its room; a third waits behind the other.
    await ledger.delegations.beginDispatch(first.lease, BUCKET, T0);
    await ledger.delegations.recordAccepted(
      first.lease,
      { taskId: "task", contextId: undefined, agentVersion: undefined },
      T0,
    );
    await admit([job("q3", { room: second.roomId })]);
    assert.deepEqual(await claim({ now: LATER }), [], "all are held");

    assert.equal(await free(t, fixture), 2);
    await assert.rejects(ledger.delegations.beginDispatch(second.lease, BUCKET, LATER), lost);
    assert.deepEqual(
      (await ledger.delegations.renew([first.lease, second.lease], LATER + LEASE_MS)).held.size,
      0,
    );
    const again = await claim({ holder: "next", now: LATER });
    assert.deepEqual(
      again.map(({ sourceEventId, resumedFrom }) => `${sourceEventId} ${resumedFrom}`).toSorted(),
      ["$q1 following", "$q2 dispatching"],
    );
  });

  it("what waits for its time goes on waiting when another bridge begins [DEL-9]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, admit, claim, rows } = fixture;
    await admit([job("q1")]);
    const [claimed] = await claim();
    assert.ok(claimed);
    await ledger.delegations.release([claimed.lease], T0 + 60_000);
    assert.equal(await free(t, fixture), 0);
    assert.deepEqual(await claim({ now: LATER }), []);
    assert.equal((await claim({ now: T0 + 60_000 })).length, 1);
    assert.deepEqual(
      await rows("SELECT count(*)::int AS n FROM bridge_delegations WHERE lease_holder IS NULL"),
      [{ n: 0 }],
    );
  });

  it("an event that somebody looked for the key of is looked at by the next bridge at once [ENC-3]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, admit } = fixture;
    await admit([], arrivals(envelope("held"), envelope("put off")));
    const [held, putOff] = await claimEnvelopes(ledger);
    assert.ok(held && putOff);
    await ledger.envelopes.defer(putOff, T0 + 60_000, { requested: false });
    assert.deepEqual(await claimEnvelopes(ledger, LATER), []);

    assert.equal(await free(t, fixture), 1);
    await assert.rejects(ledger.envelopes.defer(held, LATER, { requested: false }), lost);
    assert.deepEqual(
      (await claimEnvelopes(ledger, LATER)).map(({ event }) => event),
      [held.event],
    );
  });

  it("an invitation and a notice in the hands of a bridge that is gone are free, those put off are not", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, admit } = fixture;
    const joins = (name: string) =>
      ({
        kind: "ghost",
        room: room(name),
        ghost: ghost(),
        membership: "join",
        inviter: undefined,
        direct: false,
      }) as const;
    await admit([], { roomState: [joins("one"), joins("two")] });
    await admit([job("q1"), job("q2", { room: room("s") })]);
    const claimed = await fixture.claim();
    for (const { lease } of claimed) {
      await ledger.delegations.finish(
        lease,
        {
          state: "failed",
          stage: "dispatch",
          reason: "dispatch_deadline_exceeded",
          notice: "delegation_failed",
        },
        T0,
      );
    }
    const request = (now: number) => ({ limit: 5, now, leaseUntil: now + LEASE_MS });
    const memberships = await ledger.memberships.claim(request(T0));
    const notices = await ledger.notices.claim(request(T0));
    assert.deepEqual([memberships.length, notices.length], [2, 2]);
    const [settling, otherSettling] = memberships;
    const [notice, otherNotice] = notices;
    assert.ok(settling && otherSettling && notice && otherNotice);
    await ledger.memberships.defer(settling, T0 + 60_000);
    await ledger.notices.defer(notice, T0 + 60_000);

    assert.equal(await free(t, fixture), 2);
    await assert.rejects(ledger.notices.recordAttempt(otherNotice, LATER), lost);
    assert.deepEqual(
      (await ledger.memberships.claim(request(LATER))).map(({ roomId }) => roomId),
      [otherSettling.roomId],
    );
    assert.deepEqual(
      (await ledger.notices.claim(request(LATER))).map(({ noticeId }) => noticeId),
      [otherNotice.noticeId],
    );
  });
});
