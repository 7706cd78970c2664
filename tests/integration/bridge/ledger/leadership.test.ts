// A new leader releases the leases of the leaders before it, and nothing else.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { openLeadershipConnection } from "../../../../src/bridge/ledger/leadership.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import {
  ACCEPTED,
  arrivals,
  BUCKET,
  claimEnvelopes,
  envelope,
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

/** Releases all leases, as a new leader does; returns how many. */
async function releaseLeases(t: TestContext, { url }: LedgerFixture): Promise<number> {
  const connection = await openLeadershipConnection(url, { clock: systemClock });
  t.after(() => connection.close());
  assert.ok(await connection.acquire("exclusive"));
  const released = await connection.releaseLeases(LATER);
  await connection.close();
  return released;
}

describe("releaseLeases", () => {
  it("releases the delegations of a dead leader, and refuses its late writes [DEL-9]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { delegations, admit, claim } = fixture;
    await admit([job("q1", { room: room("one") })]);
    await admit([job("q2", { room: room("two") })]);
    const held = await claim({ holder: "dead" });
    const [first, second] = held;
    assert.ok(first && second && held.length === 2);
    // One is accepted by its agent, and no longer the head of its room; a third waits behind the other.
    await delegations.beginDispatch(first.lease, BUCKET, T0);
    await delegations.recordAccepted(first.lease, ACCEPTED, T0);
    await admit([job("q3", { room: second.roomId })]);
    assert.deepEqual(await claim({ now: LATER }), [], "all are held");

    assert.equal(await releaseLeases(t, fixture), 2);
    await assert.rejects(delegations.beginDispatch(second.lease, BUCKET, LATER), lost);
    assert.deepEqual((await delegations.renew([first.lease, second.lease], LATER + LEASE_MS)).held.size, 0);
    const again = await claim({ holder: "next", now: LATER });
    assert.deepEqual(
      again.map(({ sourceEventId, resumedFrom }) => `${sourceEventId} ${resumedFrom}`).toSorted(),
      ["$q1 following", "$q2 dispatching"],
    );
  });

  it("leaves the due times of deferred delegations as they are [DEL-9]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { delegations, admit, claim, claimOne, rows } = fixture;
    await admit([job("q1")]);
    const claimed = await claimOne();
    await delegations.release([claimed.lease], T0 + 60_000);
    assert.equal(await releaseLeases(t, fixture), 0);
    assert.deepEqual(await claim({ now: LATER }), []);
    assert.equal((await claim({ now: T0 + 60_000 })).length, 1);
    assert.deepEqual(
      await rows("SELECT count(*)::int AS n FROM bridge_delegations WHERE lease_holder IS NULL"),
      [{ n: 0 }],
    );
  });

  it("releases leased intake envelopes, and no deferred ones [ENC-3]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, admit } = fixture;
    await admit([], arrivals(envelope("held"), envelope("put off")));
    const [held, putOff] = await claimEnvelopes(ledger);
    assert.ok(held && putOff);
    await ledger.envelopes.defer(putOff, T0 + 60_000, { requested: false });
    assert.deepEqual(await claimEnvelopes(ledger, LATER), []);

    assert.equal(await releaseLeases(t, fixture), 1);
    await assert.rejects(ledger.envelopes.defer(held, LATER, { requested: false }), lost);
    assert.deepEqual(
      (await claimEnvelopes(ledger, LATER)).map(({ event }) => event),
      [held.event],
    );
  });

  it("releases leased memberships and notices, and no deferred ones", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, delegations, admit } = fixture;
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
      await delegations.finish(
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

    assert.equal(await releaseLeases(t, fixture), 2);
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
