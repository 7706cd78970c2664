import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EventId, UserId } from "../../../../src/domain/identifiers.ts";
import { BUCKET, event, ghost, job, LEASE_MS, ledgerFixture, room, T0 } from "../../../support/ledger.ts";

describe("hostile", () => {
  it("a connection that is cut in the middle of an admission fails that admission alone [INT-5]", async (t) => {
    const { pool, admit, rows } = await ledgerFixture(t);
    const holder = await pool.connect();
    await holder.query("BEGIN; LOCK TABLE bridge_transactions");
    const admitting = admit([job("q1")]);
    admitting.catch(() => undefined);
    for (let cut = 0; cut === 0; ) {
      const { rowCount } = await pool.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      cut = rowCount ?? 0;
    }
    await assert.rejects(admitting);
    await holder.query("COMMIT");
    holder.release();
    assert.equal((await admit([job("q1")])).admitted, 1);
    assert.equal((await rows("SELECT 1 FROM bridge_delegations")).length, 1);
  });

  it("renewals of many rooms and admissions to them never wait for each other [DEL-9]", async (t) => {
    const { ledger, admit, claim } = await ledgerFixture(t, 12);
    const names = Array.from({ length: 40 }, (_, n) => `r${(n * 17) % 40}`);
    await admit(names.map((name) => job(`first-${name}`, { room: room(name) })));
    const held = await claim({ limit: 40 });
    assert.equal(held.length, 40);
    const leases = held.map((one) => one.lease);
    const renewing = Array.from({ length: 60 }, (_, n) =>
      ledger.delegations.renew(leases, T0 + LEASE_MS + n),
    );
    const admitting = Array.from({ length: 60 }, (_, n) =>
      admit(
        [...names].reverse().map((name) => job(`${n}-${name}`, { room: room(name) })),
        {
          capacity: { room: 1_000, global: 100_000 },
        },
      ),
    );
    const results = await Promise.all([...renewing, ...admitting]);
    assert.equal(results.length, 120);
  });

  it("twenty refusals of one room at one moment bring one notice [NOT-1]", async (t) => {
    const { ledger, admit, claim, rows } = await ledgerFixture(t, 20);
    await admit(Array.from({ length: 20 }, (_, n) => job(`q${n}`)));
    const following = [];
    for (let n = 0; n < 20; n++) {
      const [one] = await claim();
      assert.ok(one);
      await ledger.delegations.beginDispatch(one.lease, BUCKET, T0);
      await ledger.delegations.recordAccepted(
        one.lease,
        { taskId: `t${n}`, contextId: undefined, agentVersion: undefined },
        T0,
      );
      following.push(one);
    }
    const outcome = {
      state: "failed",
      stage: "follow",
      reason: "sender_policy_rejected",
      notice: "policy_denied",
    } as const;
    await Promise.all(following.map((one) => ledger.delegations.finish(one.lease, outcome, T0 + 1)));
    assert.equal((await rows("SELECT 1 FROM bridge_notices")).length, 1);
  });

  it("who joins or leaves while a ghost reads the room's members makes it read them again", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t);
    const joined = {
      kind: "ghost",
      room: room("r"),
      ghost: ghost(),
      membership: "join",
      inviter: undefined,
      direct: false,
    } as const;
    await admit([], { roomState: [joined] });
    const request = { limit: 1, now: T0, leaseUntil: T0 + LEASE_MS };
    const [settling] = await ledger.memberships.claim(request);
    assert.ok(settling);
    const bob = { kind: "member", room: room("r"), user: "@bob:a.test" as UserId, joined: true } as const;
    await admit([], { roomState: [bob] });
    await ledger.memberships.recordRoomFacts(settling, { encrypted: false, members: [ghost()] }, T0);
    assert.deepEqual(await rows("SELECT task FROM bridge_ghost_rooms"), [{ task: "settle" }]);
    assert.deepEqual(await rows("SELECT user_id FROM bridge_room_members"), [{ user_id: "@bob:a.test" }]);
    // The last one leaves and comes back before the ghost has left: it stays.
    const [again] = await ledger.memberships.claim(request);
    assert.ok(again);
    await ledger.memberships.recordRoomFacts(again, { encrypted: false, members: [bob.user] }, T0);
    await admit([], { roomState: [{ ...bob, joined: false }] });
    assert.deepEqual(await rows("SELECT task FROM bridge_ghost_rooms"), [{ task: "settle" }]);
    const [looking] = await ledger.memberships.claim({ ...request, now: Date.now() });
    assert.ok(looking);
    await ledger.memberships.recordRoomFacts(looking, { encrypted: false, members: [ghost()] }, T0);
    assert.deepEqual(await rows("SELECT task FROM bridge_ghost_rooms"), [{ task: "leave" }]);
    await admit([], { roomState: [bob] });
    assert.deepEqual(await rows("SELECT task FROM bridge_ghost_rooms"), [{ task: "settle" }]);
  });

  it("an invitation is answered though an older leave comes after it, and not when it was withdrawn", async (t) => {
    const { admit, rows } = await ledgerFixture(t);
    const told = (membership: "invite" | "leave", originServerTs: number) =>
      admit([], {
        roomState: [
          {
            kind: "ghost",
            room: room("r"),
            ghost: ghost(),
            membership,
            inviter: membership === "invite" ? ("@alice:a.test" as UserId) : undefined,
            direct: false,
            originServerTs,
          },
        ],
      });
    const known = async () => (await rows("SELECT membership, task FROM bridge_ghost_rooms"))[0];
    await told("invite", T0 + 2_000);
    await told("invite", T0);
    await told("leave", T0 + 1_000);
    assert.deepEqual(await known(), { membership: "invite", task: "answer_invite" });
    await told("leave", T0 + 3_000);
    assert.deepEqual(await known(), { membership: "leave", task: null });
    await told("invite", T0 + 1_500);
    assert.deepEqual(await known(), { membership: "invite", task: "answer_invite" });
    await told("leave", T0 + 1_500);
    assert.deepEqual(await known(), { membership: "leave", task: null });
  });

  it("what was abandoned meanwhile is not sent, and a notice is said by its holder alone [DEL-4]", async (t) => {
    const { ledger, admit, claim } = await ledgerFixture(t);
    await admit([job("q1")]);
    const [one] = await claim();
    assert.ok(one);
    await ledger.delegations.beginDispatch(one.lease, BUCKET, T0);
    const part = { eventType: "m.room.message", content: {} };
    const sends = await ledger.delegations.recordReply(
      one.lease,
      { parts: [part], agentVersion: undefined },
      T0,
    );
    assert.ok(sends !== "canceled" && sends[0] !== undefined);
    await ledger.delegations.finish(
      one.lease,
      { state: "failed", stage: "reply", reason: "reply_refused", notice: "delegation_failed" },
      T0,
    );
    await assert.rejects(ledger.delegations.recordAttempt(sends[0].sendId, T0), { code: "lease_lost" });
    const claimNotices = (now: number) => ledger.notices.claim({ limit: 1, now, leaseUntil: now + LEASE_MS });
    const [stale] = await claimNotices(T0);
    const [fresh] = await claimNotices(T0 + LEASE_MS);
    assert.ok(stale && fresh);
    await assert.rejects(ledger.notices.recordAttempt(stale, T0), { code: "lease_lost" });
    await ledger.notices.recordAttempt(fresh, T0);
    await ledger.notices.recordSent(fresh, "$said" as EventId);
  });

  it("a transaction is known for a week by its digest, and for ever by its events [INT-3]", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t);
    const same = { transactionId: "t", body: Buffer.from("body") };
    await admit([job("q1")], same);
    await ledger.intake.prune(T0);
    assert.equal((await admit([job("q1")], same)).replayed, true);
    await ledger.intake.prune(T0 + 1);
    assert.deepEqual(await rows("SELECT 1 FROM bridge_transactions"), []);
    const late = await admit([job("q1")], same);
    assert.deepEqual([late.replayed, late.admitted], [false, 0]);
    assert.equal(
      (await rows("SELECT 1 FROM bridge_delegations WHERE matrix_event_id = $1", [event("q1")])).length,
      1,
    );
  });
});
