import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createLeaseKeeper } from "../../../../src/bridge/delegation/lease-keeper.ts";
import type { Lease } from "../../../../src/bridge/ledger/leases.ts";
import { ManualClock, settled } from "../../../support/manual-clock.ts";

const LEASE_MS = 30_000;
const lease = (delegationId: string): Lease => ({ delegationId, holder: "one", fence: "1" });

function keeper() {
  const clock = new ManualClock(0);
  const asked: string[][] = [];
  const answers = { lost: new Set<string>(), canceled: new Set<string>(), isAway: false };
  const subject = createLeaseKeeper(
    {
      renew: async (leases) => {
        if (answers.isAway) throw new Error("away");
        asked.push(leases.map(({ delegationId }) => delegationId));
        const held = leases.map(({ delegationId }) => delegationId).filter((id) => !answers.lost.has(id));
        return { held: new Set(held), canceled: answers.canceled };
      },
    },
    clock,
    LEASE_MS,
    () => {},
  );
  const ended: string[] = [];
  const hold = (id: string) =>
    subject.hold(lease(id), clock.now() + LEASE_MS, (why) => ended.push(`${why} ${id}`));
  return { subject, clock, asked, answers, ended, hold };
}

describe("lease keeper", () => {
  it("leases are renewed together at a third of their length [DEL-9]", async () => {
    const { subject, clock, asked, hold } = keeper();
    subject.loop.start();
    await settled();
    hold("1");
    const second = hold("2");
    await clock.advance(9_999);
    assert.deepEqual(asked, []);
    await clock.advance(1);
    assert.deepEqual(asked, [["1", "2"]]);
    second.drop();
    await clock.advance(10_000);
    assert.deepEqual(asked.at(-1), ["1"]);
    await subject.loop.drain();
  });

  it("a renewal that failed is repeated each tenth of a lease, so that a short outage loses none [DEL-9]", async () => {
    const { subject, clock, asked, answers, hold } = keeper();
    subject.loop.start();
    await settled();
    const held = hold("1");
    answers.isAway = true;
    // Tried in vain after 10, 13, 16, 19, 22 and 25 s.
    for (let second = 0; second < 27; second++) await clock.advance(1_000);
    answers.isAway = false;
    assert.deepEqual([asked, held.isFresh()], [[], true]);
    await clock.advance(1_000);
    assert.deepEqual(asked, [["1"]]);
    await clock.advance(10_000);
    assert.deepEqual([asked.length, held.isFresh()], [2, true]);
    await subject.loop.drain();
  });

  it("leases are renewed before a claim where one ran out, and only there [DEL-9]", async () => {
    const { subject, clock, asked, answers, hold } = keeper();
    hold("1");
    await clock.advance(LEASE_MS - 1);
    await subject.renewExpired();
    assert.deepEqual(asked, []);
    await clock.advance(1);
    answers.isAway = true;
    await assert.rejects(subject.renewExpired(), /away/);
    answers.isAway = false;
    await subject.renewExpired();
    assert.deepEqual(asked, [["1"]]);
    await subject.renewExpired();
    assert.equal(asked.length, 1);
  });

  it("a lease that is no longer granted is reported once and not renewed again [DEL-9]", async () => {
    const { subject, answers, asked, ended, hold } = keeper();
    hold("1");
    hold("2");
    answers.lost.add("1");
    await subject.renew();
    await subject.renew();
    assert.deepEqual(ended, ["lost 1"]);
    assert.deepEqual(asked.at(-1), ["2"]);
  });

  it("a redacted question is reported with the renewal", async () => {
    const { subject, answers, ended, hold } = keeper();
    hold("1");
    answers.canceled.add("1");
    await subject.renew();
    assert.deepEqual(ended, ["canceled 1"]);
  });

  it("a lease is fresh only until its own end while the ledger is away", async () => {
    const { subject, clock, answers, ended, hold } = keeper();
    const held = hold("1");
    await clock.advance(LEASE_MS - 1);
    await subject.renew();
    assert.equal(held.isFresh(), true);
    answers.isAway = true;
    await clock.advance(LEASE_MS);
    await assert.rejects(subject.renew(), /away/);
    assert.equal(held.isFresh(), false);
    assert.deepEqual(ended, []);
    answers.isAway = false;
    await subject.renew();
    assert.equal(held.isFresh(), true);
  });

  it("a flow that ended during the renewal is not told that its lease is lost", async () => {
    const { subject, answers, ended, hold } = keeper();
    const held = hold("1");
    answers.lost.add("1");
    const renewing = subject.renew();
    held.drop();
    await renewing;
    assert.deepEqual(ended, []);
  });
});
