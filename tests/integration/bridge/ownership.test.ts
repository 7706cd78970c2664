// What several processes on one database own, and what becomes of it when one of them ends or hangs.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { Client } from "pg";
import { pino } from "pino";
import { applyRoomState } from "../../../src/bridge/ledger/memberships.ts";
import { writeNotices } from "../../../src/bridge/ledger/notices.ts";
import {
  openProcessConnection,
  type ProcessConnection,
  releaseEnded,
} from "../../../src/bridge/ledger/processes.ts";
import { STATUS_AFTER_MS } from "../../../src/bridge/ledger/status-messages.ts";
import { Ownership } from "../../../src/bridge/ownership.ts";
import { systemClock } from "../../../src/domain/clock.ts";
import type { GhostMxid, RoomId, UserId } from "../../../src/domain/identifiers.ts";
import { eventually } from "../../support/encrypted-bridge.ts";
import {
  ACCEPTED,
  arrivals,
  BEGIN_PATIENT,
  BUCKET,
  deadlocks,
  envelope,
  event,
  ghost,
  job,
  LEASE_MS,
  ledgerFixture,
  room,
  T0,
  untilWaiting,
} from "../../support/ledger.ts";

const GHOSTS = ["a", "b", "c", "d"].map(ghost);

async function processes(t: TestContext) {
  const ends: (() => Promise<void>)[] = [];
  // Before the database goes: what is registered first is done first.
  t.after(async () => {
    for (const end of ends) await end();
  });
  const fixture = await ledgerFixture(t);
  const connect = async () => {
    const connection = await openProcessConnection(fixture.url, () => {});
    ends.push(() => connection.close());
    return connection;
  };
  const never = new AbortController().signal;
  const begin = async () => {
    const connections: ProcessConnection[] = [];
    const closed: string[] = [];
    const notified: string[] = [];
    /** How many processes each observation found. */
    const observed: number[] = [];
    let canOpen = true;
    /** Whose machines are closed only when that is resolved. */
    const [slow, slowEnds] = [new Set<GhostMxid>(), Promise.withResolvers<void>()];
    ends.unshift(async () => slowEnds.resolve());
    const state = { failures: 0, losses: 0, isSettled: true };
    const one = { closed, notified, observed, connections, slow, slowEnds, ...state };
    const ownership = new Ownership({
      open: async (onNotified) => {
        if (!canOpen) throw new Error("the process has ended");
        const connection = await openProcessConnection(fixture.url, onNotified);
        connections.push(connection);
        return connection;
      },
      releaseEnded: async (now) => {
        if (one.failures > 0) {
          one.failures -= 1;
          throw Object.assign(new Error("deadlock detected"), { code: "40P01" });
        }
        return await releaseEnded(fixture.pool, now);
      },
      onObserved: (live) => observed.push(live),
      ghosts: async () => GHOSTS,
      isSettled: () => one.isSettled,
      onTaken: () => {},
      onLost: () => {
        one.losses += 1;
      },
      close: async (ghost) => {
        if (one.slow.has(ghost)) await one.slowEnds.promise;
        closed.push(ghost);
      },
      onReleased: () => {},
      onNotified: (message) => notified.push(message),
      clock: systemClock,
      log: pino({ level: "silent" }),
    });
    await ownership.start(never);
    const end = () => ownership.end();
    ends.push(end);
    /** As the kernel does when the process is killed. */
    const kill = async () => {
      canOpen = false;
      await connections.at(-1)?.close();
    };
    return Object.assign(one, { ownership, end, kill });
  };
  return { fixture, begin, connect };
}

const until = (what: string, holds: () => boolean) =>
  eventually(what, async () => holds() || undefined, 5_000);

describe("the processes on one database", () => {
  it("share the ghosts evenly, and each ghost has one owner [DEL-9] [ENC-2]", async (t) => {
    const { begin } = await processes(t);
    const first = await begin();
    await until("it owns all", () => first.ownership.ghosts.length === 4);
    const second = await begin();
    await until("half of them moved", () => second.ownership.ghosts.length === 2);
    const all = [...first.ownership.ghosts, ...second.ownership.ghosts];
    assert.deepEqual(all.toSorted(), GHOSTS.toSorted());
    assert.deepEqual(first.closed.toSorted(), second.ownership.ghosts.toSorted(), "closed before they moved");
    assert.equal(first.ownership.owns("audit"), true);
    assert.equal(second.ownership.owns("audit"), false);
    await first.end();
    await until("the rest moved", () => second.ownership.ghosts.length === 4);
    await until("the roles moved", () => second.ownership.owns("audit") && second.ownership.owns("catchup"));
  });

  it("what a process owns is neither taken nor given up by another that is alive [DEL-9] [ENC-2]", async (t) => {
    const { connect } = await processes(t);
    const [owner, other] = [await connect(), await connect()];
    const [own = assert.fail(), free = assert.fail()] = GHOSTS;
    assert.deepEqual(await owner.take([own]), [own]);
    // Two processes may have seen it free at the same time; and one may give up late what has passed to another.
    assert.deepEqual(await other.take([own, free]), [free]);
    await other.giveUp([own]);
    const { owners } = await other.observe();
    assert.deepEqual([owners.get(own), owners.get(free)], [owner.process, other.process]);
    await owner.giveUp([own]);
    assert.deepEqual(await other.take([own]), [own]);
  });

  it("the ghosts of a process that ended are taken within two looks of another [DEL-9]", async (t) => {
    const { begin } = await processes(t);
    const first = await begin();
    const second = await begin();
    await until(
      "they share",
      () => second.ownership.ghosts.length === 2 && first.ownership.ghosts.length === 2,
    );
    await first.kill();
    assert.equal(first.ownership.owns("audit"), false, "from the end of its connection on");
    await until("the other saw it twice", () => second.observed.filter((live) => live === 1).length >= 2);
    assert.equal(second.ownership.ghosts.length, 4);
    assert.equal(first.ownership.claimant, undefined, "it claims nothing any more");
    assert.deepEqual([first.losses, second.losses], [1, 0], "what it worked on is over");
    await until("it closed its machines", () => GHOSTS.every((one) => !first.ownership.owns(one)));
  });

  it("a process that was stopped for a second does not count itself as alive until it has asked [DEL-9]", async (t) => {
    const { begin } = await processes(t);
    const { ownership } = await begin();
    assert.equal(ownership.isAlive, true);
    // Nothing else runs meanwhile, as when the whole process is stopped.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_100);
    assert.equal(ownership.isAlive, false);
    await until("it takes part again", () => ownership.isAlive);
  });

  it("the ghosts of a process that drains are taken while it still works [DEL-9]", async (t) => {
    const { begin } = await processes(t);
    const first = await begin();
    const second = await begin();
    await until("they share", () => second.ownership.ghosts.length === 2);
    await first.ownership.giveUpGhosts();
    await until("the other has all", () => second.ownership.ghosts.length === 4);
    assert.ok(first.ownership.claimant, "it still works");
    await first.connections[0]?.close();
    await until("it works again", () => first.connections.length === 2 && first.ownership.isAlive);
    const { live, sharing } = (await second.connections[0]?.observe()) ?? assert.fail();
    assert.deepEqual([live.length, sharing], [2, 1], "it has no share on its next connection either");
  });

  it("a ghost whose machine is closed late delays no other, and is taken once it is closed [DEL-9]", async (t) => {
    const { begin } = await processes(t);
    const first = await begin();
    const second = await begin();
    await until("they share", () => second.ownership.ghosts.length === 2);
    const [late = assert.fail()] = first.ownership.ghosts;
    first.slow.add(late);
    void first.ownership.giveUpGhosts();
    await until("the others are taken", () => second.ownership.ghosts.length === 3);
    assert.equal(second.ownership.owns(late), false);
    first.slowEnds.resolve();
    await until("all are taken", () => second.ownership.owns(late));
  });

  it("a process that lost its connection works again before its machines are closed, and takes those ghosts after [DEL-9]", async (t) => {
    const { begin } = await processes(t);
    const { ownership, slow, slowEnds, connections } = await begin();
    await until("it owns all", () => ownership.ghosts.length === 4);
    const [late = assert.fail()] = GHOSTS;
    slow.add(late);
    await connections[0]?.close();
    await until("it works again", () => ownership.claimant?.holder === connections[1]?.process);
    await until("it took the others", () => ownership.ghosts.length === 3);
    assert.equal(ownership.owns(late), false);
    slowEnds.resolve();
    await until("it took the last", () => ownership.owns(late));
  });

  it("a process that waits for the pool to release others' leases keeps what it owns [DEL-9]", async (t) => {
    const { fixture, begin, connect } = await processes(t);
    const first = await begin();
    const other = await connect();
    await until("both are known", () => first.observed.at(-1) === 2);
    const busy = await Promise.all(Array.from({ length: 10 }, () => fixture.pool.connect()));
    await other.close();
    const at = systemClock.now();
    await until("the server would have ended an idle connection", () => systemClock.now() - at > 2_000);
    for (const one of busy) one.release();
    await until("the leases are released", () => first.observed.at(-1) === 1);
    assert.deepEqual([first.losses, first.connections.length], [0, 1]);
  });

  it("the server ends the connection of a process that hangs for a second [DEL-9]", async (t) => {
    const { connect } = await processes(t);
    const hanging = await connect();
    const at = systemClock.now();
    await until("it is ended", () => hanging.broken.aborted);
    assert.ok(systemClock.now() - at < 2_000);
  });

  it("the leases of a process that ended are released at once, under a higher fence [DEL-9]", async (t) => {
    const { fixture, connect } = await processes(t);
    const { ledger, delegations, admit, pool, rows } = fixture;
    const ended = await connect();
    const alive = await connect();
    // A connection that is idle for a second is ended.
    const observe = setInterval(() => {
      for (const one of [ended, alive]) one.observe().catch(() => undefined);
    }, 200);
    t.after(() => clearInterval(observe));
    await admit([], arrivals(job("q1"), job("q2", { room: room("s") }), envelope("e1", { room: room("t") })));
    const claim = (limit: number, holder: string) =>
      delegations.claim({ holder, limit, now: T0, leaseUntil: T0 + LEASE_MS });
    const [lost] = await claim(1, ended.process);
    const [kept] = await claim(1, alive.process);
    assert.ok(lost !== undefined && kept !== undefined);
    const request = { holder: ended.process, limit: 1, now: T0, leaseUntil: T0 + LEASE_MS };
    const [waiting] = await ledger.envelopes.claim(request);
    assert.ok(waiting);
    assert.equal(await releaseEnded(pool, T0), 0, "both are alive");
    await ended.close();
    let free = 0;
    const release = async () => {
      // The end may be seen between two statements of one release.
      free += await releaseEnded(pool, T0);
      return free >= 2 || undefined;
    };
    await eventually("both leases are free", release, 5_000);
    assert.equal(free, 2);
    assert.deepEqual(
      (await claim(9, alive.process)).map((one) => one.sourceEventId),
      [lost.sourceEventId],
    );
    await assert.rejects(delegations.defer(lost.lease, T0), { code: "lease_lost" });
    await assert.rejects(ledger.envelopes.expire(waiting, "key_wait_elapsed", T0), { code: "lease_lost" });
    assert.deepEqual(await rows("SELECT state FROM bridge_encrypted_intake"), [{ state: "awaiting_key" }]);
  });

  it("what a process that ended was to say or to join is done by another at once, and not by a late write [DEL-9] [NOT-1]", async (t) => {
    const { fixture, connect } = await processes(t);
    const { ledger, admit, pool } = fixture;
    const ended = await connect();
    const at = T0 + STATUS_AFTER_MS;
    await admit([job("q1")]);
    await writeNotices(
      pool,
      [{ kind: "help", room: room("r"), ghost: ghost(), source: event("q1"), threadRoot: undefined }],
      T0,
      0,
    );
    const inviter = "@alice:a.test" as UserId;
    const invited = { kind: "ghost", membership: "invite", inviter, direct: false, hasAgent: true } as const;
    await applyRoomState(pool, { ...invited, room: room("r"), ghost: ghost() }, T0);
    const claim = async (holder: string) => {
      const request = { holder, limit: 1, now: at, leaseUntil: at + LEASE_MS };
      const { notices, statuses, memberships } = ledger;
      const said = [await notices.claim(request), await statuses.claim(request)] as const;
      return [...said, await memberships.claim(request)] as const;
    };
    const [[notice], [status], [membership]] = await claim(ended.process);
    assert.ok(notice && status && membership);
    await ended.close();
    let free = 0;
    const released = async () => {
      free += await releaseEnded(pool, at);
      return free === 3 || undefined;
    };
    await eventually("all three are released", released, 5_000);
    await ledger.notices.drop(notice);
    await ledger.statuses.end(status);
    await ledger.memberships.recordLeft(membership, at);
    const counts = (await claim("other")).map(({ length }) => length);
    assert.deepEqual(counts, [1, 1, 1]);
  });

  it("what is released can be claimed at once; of a question whose agent was called it is known that the agent may be storing the task for two seconds [DEL-7] [DEL-9]", async (t) => {
    const { fixture, connect } = await processes(t);
    const { delegations, admit, claim, rows } = fixture;
    const ended = await connect();
    const names = ["called", "waiting", "accepted", "past"] as const;
    await admit(names.map((name) => job(name, { room: room(name) })));
    for (const { lease, sourceEventId } of await claim({ holder: ended.process })) {
      if (sourceEventId === event("waiting")) continue;
      await delegations.beginDispatch(lease, BUCKET, T0);
      if (sourceEventId === event("accepted")) await delegations.recordAccepted(lease, ACCEPTED, T0);
    }
    await rows(`UPDATE bridge_delegations SET due_at = lease_until WHERE room_id = '${room("past")}'`);
    await rows(
      `UPDATE bridge_rooms SET head_seq = next_seq, head_at = NULL WHERE room_id = '${room("past")}'`,
    );
    await ended.close();
    const released = async () => (await releaseEnded(fixture.pool, T0)) === 4 || undefined;
    await eventually("all are released", released, 5_000);
    const storing = new Map(
      (await claim({ now: T0 })).map(({ sourceEventId, storingUntil }) => [sourceEventId, storingUntil]),
    );
    const expected = { called: T0 + 2_000, waiting: undefined, accepted: undefined, past: T0 + 2_000 };
    assert.deepEqual(storing, new Map(names.map((name) => [event(name), expected[name]])));
  });

  it("what is committed for a process after its end was seen is released too [DEL-9]", async (t) => {
    const { fixture, begin, connect } = await processes(t);
    const first = await begin();
    const ended = await connect();
    await until("both are known", () => first.observed.at(-1) === 2);
    const slow = await fixture.pool.connect();
    await slow.query(`${BEGIN_PATIENT}; UPDATE bridge_capacity SET admitted = admitted`);
    const slot = { holder: ended.process, leaseUntil: systemClock.now() + 3_600_000, end: () => {} };
    const admitting = fixture.admit([job("q1")], { slotFor: () => slot });
    await ended.close();
    await until("its end was seen", () => first.observed.at(-1) === 1);
    await slow.query("COMMIT");
    slow.release();
    assert.ok((await admitting).claimed);
    const claim = async () =>
      (await fixture.claim({ holder: "two", now: systemClock.now() })).length || undefined;
    await eventually("it is claimed by another process", claim, 5_000);
  });

  it("a late write of the ended process, which locks its delegation and then the room, does not deadlock with the release [DEL-9]", async (t) => {
    const { fixture, connect } = await processes(t);
    const { pool, delegations, admit, rows } = fixture;
    const ended = await connect();
    await admit([job("q1"), job("q2", { room: room("s") })]);
    const claimed = await delegations.claim({
      holder: ended.process,
      limit: 2,
      now: T0,
      leaseUntil: T0 + LEASE_MS,
    });
    assert.equal(claimed.length, 2);
    const [, held] = claimed;
    assert.ok(held);
    const late = new Client({ connectionString: fixture.url });
    await late.connect();
    let released: Promise<number>;
    try {
      await late.query("BEGIN");
      await late.query("SELECT FROM bridge_delegations WHERE id = $1 FOR UPDATE", [held.lease.delegationId]);
      await ended.close();
      const isGone = async () => (await rows("SELECT bridge_live_processes()")).length === 0 || undefined;
      await eventually("it is known to have ended", isGone, 5_000);
      released = releaseEnded(pool, T0);
      await untilWaiting(pool, 1, released);
      await late.query("SELECT FROM bridge_rooms WHERE room_id = $1 FOR UPDATE NOWAIT", [held.roomId]);
      await late.query("COMMIT");
    } finally {
      await late.end();
    }
    assert.equal(await released, 2);
  });

  it("encrypted events of a process that ended are released beside a statement that has locked some, and those later [DEL-9]", async (t) => {
    const { fixture, connect } = await processes(t);
    const { ledger, pool, admit, rows } = fixture;
    const ended = await connect();
    await admit([], arrivals(envelope("e1"), envelope("e2"), envelope("e3")));
    // Their leases end in the opposite order of that in which they are woken.
    await rows(
      `UPDATE bridge_encrypted_intake
       SET holder = $1, due_at = admitted_at + (10 - right(matrix_event_id, 1)::int) * interval '1 second'`,
      [ended.process],
    );
    await ended.close();
    const isGone = async () => (await rows("SELECT bridge_live_processes()")).length === 0 || undefined;
    await eventually("it is known to have ended", isGone, 5_000);
    const other = await pool.connect();
    await other.query(BEGIN_PATIENT);
    await other.query("SELECT FROM bridge_encrypted_intake WHERE matrix_event_id = '$e2' FOR UPDATE");
    const waking = ledger.envelopes.wake([room("r")], T0);
    await untilWaiting(pool, 1, waking);
    assert.equal(await releaseEnded(pool, T0), 1, "one is woken and another one locked");
    await other.query("COMMIT");
    other.release();
    await waking;
    assert.equal(await releaseEnded(pool, T0), 2);
    assert.equal(await deadlocks(pool), 0);
  });

  it("a process whose release of others' leases fails keeps its ghosts, and repeats the release [DEL-9]", async (t) => {
    const { begin, connect } = await processes(t);
    const first = await begin();
    await until("it owns all", () => first.ownership.ghosts.length === 4);
    const other = await connect();
    await until("both are known", () => first.observed.at(-1) === 2);
    first.failures = 3;
    await other.close();
    await until("it was repeated until it worked", () => first.failures === 0 && first.observed.at(-1) === 1);
    assert.equal(first.ownership.ghosts.length, 4);
    assert.equal(first.connections.length, 1, "the connection was not given up");
  });

  it("work of a ghost in an encrypted room is claimed by its owner alone [DEL-9]", async (t) => {
    const { fixture } = await processes(t);
    const { ledger, delegations, admit, pool, rows } = fixture;
    await admit([job("q1"), job("q2", { room: room("plain") })]);
    await rows("UPDATE bridge_rooms SET encrypted = true WHERE room_id = $1", [room("r")]);
    type Ghosts = Parameters<typeof delegations.claim>[0]["ghosts"];
    const at = T0 + STATUS_AFTER_MS;
    const requestOf = (ghosts: Ghosts) => ({
      holder: "1",
      limit: 9,
      now: at,
      leaseUntil: at + LEASE_MS,
      ghosts,
    });
    const roomsOf = (claimed: readonly { readonly roomId: RoomId }[]) => claimed.map(({ roomId }) => roomId);
    assert.deepEqual(roomsOf(await delegations.claim(requestOf([]))), [room("plain")]);
    const [own, ...others] = await delegations.claim(requestOf([ghost()]));
    assert.deepEqual([own?.roomId, others], [room("r"), []]);
    assert.ok(own);
    await delegations.beginDispatch(own.lease, BUCKET, at);
    await delegations.recordAccepted(own.lease, ACCEPTED, at);
    await delegations.defer(own.lease, at);
    const told = {
      kind: "help",
      room: room("r"),
      ghost: ghost(),
      source: event("q1"),
      threadRoot: undefined,
    } as const;
    await writeNotices(pool, [told], at, 0);
    await admit([], arrivals(envelope("e1")));
    const joined = "INSERT INTO bridge_ghost_rooms (room_id, ghost_mxid, membership) VALUES ($1, $2, 'join')";
    await rows(joined, [room("r"), ghost()]);
    for (const [ghosts, expected] of [
      [[], []],
      [[ghost()], [room("r")]],
    ] as const) {
      assert.deepEqual(roomsOf(await delegations.claim(requestOf(ghosts))), expected, "a task that is due");
      assert.deepEqual(roomsOf(await ledger.notices.claim(requestOf(ghosts))), expected, "a notice");
      const statuses = roomsOf(await ledger.statuses.claim(requestOf(ghosts)));
      assert.deepEqual(statuses, ghosts.length === 0 ? [room("plain")] : expected, "a status message");
      const envelopes = await ledger.envelopes.claim(requestOf(ghosts));
      assert.equal(envelopes.length, expected.length, "an encrypted event");
    }
  });

  it("work of a ghost is claimed once its machine was tried to be opened [DEL-9]", async (t) => {
    const one = await (await processes(t)).begin();
    const { ownership } = one;
    await until("it owns all", () => ownership.ghosts.length === 4);
    assert.deepEqual(ownership.claimant?.ghosts?.toSorted(), GHOSTS.toSorted());
    one.isSettled = false;
    assert.deepEqual(ownership.claimant?.ghosts, []);
    assert.ok(GHOSTS.every((ghost) => ownership.owns(ghost)));
  });

  it("are told what one of them committed [DEL-9]", async (t) => {
    const { begin } = await processes(t);
    const first = await begin();
    const second = await begin();
    await until("they know of each other", () => first.ownership.ghosts.length === 2);
    first.ownership.notify("delegations");
    await until("the other is told", () => second.notified.includes("delegations"));
  });
});
