// Several holders and admissions at once, on one database.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";
import { type ClaimedDelegation, createLeases, type Lease } from "../../../../src/bridge/ledger/leases.ts";
import type { AgentId, GhostMxid } from "../../../../src/domain/identifiers.ts";
import {
  ACCEPTED,
  BEGIN_PATIENT,
  BUCKET,
  deadlocks,
  event,
  ghost,
  interrupted,
  job,
  LEASE_MS,
  ledgerFixture,
  PART,
  ROOM_GATE_MS,
  room,
  T0,
  untilWaiting,
} from "../../../support/ledger.ts";

const KEYS = ContentKeys.parse(Buffer.alloc(32, 7).toString("base64"));

describe("leases", () => {
  it("are claimed of each agent up to its share, and of others whatever waits before them", async (t) => {
    const { delegations, admit } = await ledgerFixture(t);
    const agents = ["a", "b", "c"] as AgentId[];
    for (const [index, agent] of agents.entries()) {
      const jobs = Array.from({ length: 20 }, (_, n) =>
        job(`${agent}${n}`, { agent, room: room(`${agent}${n}`) }),
      );
      await admit(jobs, { receivedAt: T0 + index });
    }
    const claimed = async (limit: number, most: number, inProgress: Record<string, number> = {}) => {
      const share = {
        most,
        inProgress: agents.flatMap((agent) => Array<AgentId>(inProgress[agent] ?? 0).fill(agent)),
      };
      const now = T0 + 10;
      const found = await delegations.claim({ holder: "one", limit, now, leaseUntil: now + LEASE_MS, share });
      const counts = agents.map((agent) => found.filter(({ agentId }) => agentId === agent).length);
      await delegations.release(
        found.map(({ lease }) => lease),
        T0,
      );
      return counts;
    };
    assert.deepEqual(await claimed(12, 4), [4, 4, 4]);
    assert.deepEqual(await claimed(40, 4), [4, 4, 4]);
    assert.deepEqual(await claimed(40, 4, { a: 4, b: 3, x: 9 }), [0, 1, 4]);
    assert.deepEqual(await claimed(40, 4, { a: 1, b: 2, c: 3 }), [3, 2, 1]);
    assert.equal((await claimed(2, 4, { a: 4 }))[0], 0);
    assert.deepEqual(await claimed(40, 4, { a: 4, b: 4, c: 5 }), [0, 0, 0]);
    assert.deepEqual(await claimed(60, 64), [20, 20, 20]);
  });

  it("that nobody takes hold their rooms for a minute, where others' questions wait behind them, and are claimed later by themselves [DEL-1] [DEL-10]", async (t) => {
    const { delegations, admit, rows } = await ledgerFixture(t);
    const math = { ghost: ghost("math"), agent: "math" as AgentId };
    for (const name of ["full", "away", "own", "leased"]) {
      await admit([job(`${name}1`, { room: room(name) })]);
      const behind = name === "own" ? {} : math;
      await admit([job(`${name}2`, { room: room(name), ...behind })]);
    }
    const begun = room("begun");
    await admit([job("begun1", { room: begun, ...math }), job("begun1", { room: begun })]);
    await rows("UPDATE bridge_rooms SET head_ordinal = 1 WHERE room_id = '!begun'");
    await rows(`UPDATE bridge_delegations SET state = 'following', due_at = '2027-01-01'
      WHERE matrix_event_id = '$begun1' AND agent_id = 'math'`);
    await rows("UPDATE bridge_rooms SET encrypted = true WHERE room_id = '!away'");
    await rows(`UPDATE bridge_delegations SET lease_holder = 'two', lease_until = '2027-01-01'
      WHERE matrix_event_id = '$leased1'`);
    const full = { most: 2, inProgress: ["docs", "docs"] };
    const claim = async (now: number, options = {}) => {
      const request = { holder: "one", limit: 9, now, leaseUntil: now + LEASE_MS, ghosts: [ghost("math")] };
      return (await delegations.claim({ ...request, ...options })).map(({ sourceEventId }) => sourceEventId);
    };
    assert.deepEqual(await claim(T0, { share: full }), []);
    const late = T0 + ROOM_GATE_MS;
    assert.equal(await delegations.passHeads(T0, late - 1), 0, "the heads may still get on");
    assert.equal(await delegations.passHeads(T0 + 1, late), 0, "nobody has looked for so long");
    assert.equal(await delegations.passHeads(T0, late), 2);
    assert.deepEqual((await claim(late, { share: full })).sort(), ["$away2", "$full2"]);
    assert.deepEqual((await claim(late, { ghosts: [ghost("docs")] })).sort(), [
      "$away1",
      "$begun1",
      "$full1",
      "$own1",
    ]);
    assert.equal(await delegations.passHeads(T0, late), 0);
  });

  it("are claimed and released without a wait for the disk, unless that says that the agent has nothing of a try", async (t) => {
    const { delegations, admit, claimOne, pool } = await ledgerFixture(t);
    await pool.query(`
      CREATE TABLE waits (setting text);
      CREATE FUNCTION note_wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO waits VALUES (current_setting('synchronous_commit'));
        RETURN NULL;
      END $$;
      CREATE TRIGGER note_wait AFTER INSERT OR UPDATE ON bridge_delegations FOR EACH ROW EXECUTE FUNCTION note_wait()`);
    const waits = async () => {
      const { rows } = await pool.query(
        "WITH all_of AS (DELETE FROM waits RETURNING *) SELECT DISTINCT * FROM all_of",
      );
      return rows.map(({ setting }) => setting);
    };
    const slotFor = () => ({ holder: "one", leaseUntil: T0, end: () => {} });
    await admit([job("q1")], { slotFor });
    assert.deepEqual(await waits(), ["off"], "the admission that claims it");
    const notes = [{ undelivered: true, reason: "agent_unavailable" }, {}, {}] as const;
    for (const [index, note] of notes.entries()) {
      const now = T0 + index * 2 * ROOM_GATE_MS;
      const { lease } = await claimOne({ now });
      assert.deepEqual(
        await waits(),
        ["off"],
        index < 2 ? "the claim of a head" : "of what its room is past",
      );
      await delegations.defer(lease, now + 2 * ROOM_GATE_MS, note);
      assert.deepEqual(await waits(), [index === 0 ? "on" : "off"]);
    }
  });

  it("are renewed by the latest claim alone, also where one process has claimed twice [DEL-1]", async (t) => {
    const { delegations, admit, claimOne } = await ledgerFixture(t);
    await admit([job("q1")]);
    const [stale, fresh] = [await claimOne(), await claimOne({ now: T0 + LEASE_MS })];
    const held = async ({ lease }: ClaimedDelegation) =>
      (await delegations.renew([lease], T0 + 3 * LEASE_MS)).held.size;
    assert.deepEqual([await held(stale), await held(fresh)], [0, 1]);
  });

  it("of plain rooms leave a quarter of their agent's share to encrypted ones, which this process alone can answer [DEL-7]", async (t) => {
    const { delegations, admit, pool } = await ledgerFixture(t);
    const jobs = (name: string) =>
      Array.from({ length: 10 }, (_, n) => job(`${name}${n}`, { room: room(`${name}${n}`) }));
    await admit(jobs("sealed"), { receivedAt: T0 + 1 });
    await pool.query("UPDATE bridge_rooms SET encrypted = true");
    await admit(jobs("plain"), { receivedAt: T0 });
    const claimed = async (inProgress: number, ghosts?: readonly GhostMxid[]) => {
      const share = { most: 8, inProgress: Array<AgentId>(inProgress).fill("docs" as AgentId) };
      const times = { now: T0 + 10, leaseUntil: T0 + 10 + LEASE_MS };
      const found = await delegations.claim({ holder: "one", limit: 40, ...times, share, ghosts });
      await delegations.release(
        found.map(({ lease }) => lease),
        T0,
      );
      const sealed = found.filter(({ sourceEventId }) => sourceEventId.includes("sealed")).length;
      return { plain: found.length - sealed, sealed };
    };
    assert.deepEqual(await claimed(6, [ghost()]), { plain: 0, sealed: 2 });
    assert.deepEqual(await claimed(8, [ghost()]), { plain: 0, sealed: 0 });
    assert.deepEqual(await claimed(6, []), { plain: 2, sealed: 0 });
    await pool.query("DELETE FROM bridge_delegations WHERE matrix_event_id LIKE '%sealed%'");
    assert.deepEqual(await claimed(0, [ghost()]), { plain: 6, sealed: 0 });
  });

  it("are claimed by one statement of each kind while their agent has less than half of its share in progress", async (t) => {
    const { pool, admit, rows } = await ledgerFixture(t, 1);
    await admit([job("q")]);
    const statements: string[] = [];
    const leases = createLeases(
      interrupted(pool, (statement) => statements.push(statement)),
      KEYS,
      ROOM_GATE_MS,
    );
    const share = { most: 16, inProgress: Array<AgentId>(3).fill("docs" as AgentId) };
    const request = { holder: "one", limit: 61, now: T0, leaseUntil: T0 + LEASE_MS, share };
    assert.equal((await leases.claim(request)).length, 1);
    assert.deepEqual(statements, ["claim_heads", "claim_due"]);
    assert.deepEqual(
      await rows("SHOW synchronous_commit"),
      [{ synchronous_commit: "on" }],
      "of what follows",
    );
  });

  it("let eight holders drain rooms side by side: each delegation once, each room in order [DEL-9]", async (t) => {
    const { delegations, admit, claim, rows } = await ledgerFixture(t, 16);
    const ROOMS = 12;
    const EACH = 10;
    const wanted = ROOMS * EACH;
    const finished: ClaimedDelegation[] = [];
    const admitting = (async () => {
      for (let n = 0; n < EACH; n++) {
        await admit(Array.from({ length: ROOMS }, (_, r) => job(`r${r}-${n}`, { room: room(`r${r}`) })));
      }
    })();
    const worker = async (holder: string) => {
      while (finished.length < wanted) {
        for (const one of await claim({ holder, limit: 3 })) {
          await delegations.beginDispatch(one.lease, { ...BUCKET, burst: 1_000 }, T0);
          finished.push(one);
          await delegations.recordAccepted(one.lease, ACCEPTED, T0);
          await delegations.recordReply(one, { parts: [PART], agentVersion: undefined }, T0);
          await delegations.finish(one.lease, { state: "completed", stage: "reply", reason: "answered" }, T0);
        }
      }
    };
    await Promise.all([admitting, ...Array.from({ length: 8 }, (_, index) => worker(`holder-${index}`))]);
    assert.equal(finished.length, wanted);
    for (let r = 0; r < ROOMS; r++) {
      const order = finished.filter((one) => one.roomId === room(`r${r}`)).map((one) => one.sourceEventId);
      assert.deepEqual(
        order,
        Array.from({ length: EACH }, (_, n) => event(`r${r}-${n}`)),
      );
    }
    assert.deepEqual(
      await rows(`SELECT sum(open_count)::int AS open, count(head_at)::int AS heads,
      (SELECT count(*)::int FROM bridge_audit) AS audits FROM bridge_rooms`),
      [{ open: 0, heads: 0, audits: wanted }],
    );
  });

  it("are given back many at once, each until its own time, and one that was lost fails alone [DEL-1] [DEL-9]", async (t) => {
    const { delegations, admit, claim, rows } = await ledgerFixture(t);
    await admit(["a", "b", "c", "d"].map((name) => job(name, { room: room(name) })));
    const leases = (await claim({ limit: 4 })).map(({ lease }) => lease);
    assert.equal(leases.length, 4);
    const until = (index: number) => new Date(T0 + 1_000 * index);
    const defer = ({ lease, index }: { lease: Lease; index: number }) =>
      delegations.defer(lease, until(index).getTime(), index === 3 ? { reason: "agent_unavailable" } : {});
    const given = leases.map((lease, index) => ({
      lease: index === 2 ? { ...lease, fence: "0" } : lease,
      index,
    }));
    // The last one's is given back by an earlier holder besides.
    const all = [
      ...given,
      ...leases.slice(3).map((lease) => ({ lease: { ...lease, fence: "0" }, index: 9 })),
    ];
    const failed = await Promise.all(
      all.map((one) =>
        defer(one).then(
          () => null,
          ({ code }) => code,
        ),
      ),
    );
    assert.deepEqual(failed, [null, null, "lease_lost", null, "lease_lost"]);
    const reasons = [null, null, null, "agent_unavailable"];
    const expected = leases.map(({ delegationId }, index) => ({
      ...{ id: delegationId, head_at: index === 2 ? new Date(T0 + LEASE_MS) : until(index) },
      ...{ leased: index === 2, attempts: index === 2 ? 0 : 1, retry_reason: reasons[index] },
    }));
    assert.deepEqual(
      await rows(`SELECT id, head_at, lease_holder IS NOT NULL AS leased, attempts, retry_reason
        FROM bridge_delegations JOIN bridge_rooms USING (room_id) ORDER BY array_position('{${leases.map((one) => one.delegationId)}}', id)`),
      expected,
    );
  });

  it("are held on a room's head for one minute of tries; then the room continues, and the head is tried by itself [DEL-1]", async (t) => {
    const { delegations, admit, claim, claimOne, rows } = await ledgerFixture(t);
    await admit([job("away"), job("behind")]);
    const names = async (now: number) => (await claim({ now })).map((one) => one.sourceEventId);
    const first = await claimOne();
    await delegations.defer(first.lease, T0 + 50_000, { reason: "agent_unavailable", undelivered: true });
    assert.deepEqual(await names(T0 + 49_999), []);
    const second = await claimOne({ now: T0 + 50_000 });
    assert.deepEqual([second.sourceEventId, second.triedAt], [event("away"), T0]);
    await delegations.defer(second.lease, T0 + 80_000, { reason: "agent_unavailable", undelivered: true });
    assert.deepEqual(await names(T0 + ROOM_GATE_MS - 1), []);
    const behind = await claimOne({ now: T0 + ROOM_GATE_MS });
    assert.equal(behind.sourceEventId, event("behind"));
    assert.deepEqual(await names(T0 + 79_999), []);
    const third = await claimOne({ now: T0 + 80_000 });
    assert.deepEqual([third.sourceEventId, third.resumedFrom], [event("away"), "queued"]);
    await delegations.beginDispatch(third.lease, BUCKET, T0 + 80_000);
    await delegations.recordAccepted(third.lease, ACCEPTED, T0 + 80_000);
    const ended = { state: "completed", stage: "reply", reason: "answered" } as const;
    for (const { lease } of [third, behind]) await delegations.finish(lease, ended, T0 + 80_000);
    assert.deepEqual(
      await rows("SELECT open_count, head_at, head_seq = next_seq AS empty FROM bridge_rooms"),
      [{ open_count: 0, head_at: null, empty: true }],
    );
  });

  it("are taken from a head by edits of its question, but its room continues after one minute of tries [DEL-1] [DEL-6]", async (t) => {
    const { admit, claim, claimOne, rows } = await ledgerFixture(t);
    await admit([job("edited"), job("behind")]);
    const { lease } = await claimOne();
    const edit = (now: number) => {
      const { event: source, ghost: by, room: where, sender } = job("edited");
      const change = {
        delegation: lease.delegationId,
        source,
        ghost: by,
        event: event(`edit at ${now}`),
        room: where,
        sender,
      };
      const edits = [{ ...change, originServerTs: now, indexDigest: undefined, prompt: `at ${now}` }];
      const derive = () => ({ delegations: [], answers: [], cancels: [], envelopes: [], notices: [], edits });
      return admit([], {
        receivedAt: now,
        events: edits,
        about: { rooms: [room("r")], related: [] },
        derive,
      });
    };
    const held = async (now: number) =>
      (await claim({ now })).map((one) => [one.sourceEventId, one.prompt?.text]);
    for (const now of [T0 + 25_000, T0 + 50_000]) {
      await edit(now);
      assert.deepEqual(await held(now), [[event("edited"), `at ${now}`]]);
    }
    const late = T0 + ROOM_GATE_MS + 10_000;
    await edit(late);
    const behind = [event("behind"), "prompt of behind"];
    assert.deepEqual((await held(late)).sort(), [behind, [event("edited"), `at ${late}`]]);
    // An edit of a question that its room is past takes nothing from the room.
    await edit(late + 1);
    assert.deepEqual(await held(late + 1), [[event("edited"), `at ${late + 1}`]]);
    assert.deepEqual(await rows("SELECT head_seq::int AS head FROM bridge_rooms"), [{ head: 2 }]);
  });

  it("end, and a redaction cancels a question whose room has continued without it [INT-6]", async (t) => {
    const { delegations, admit, claim, claimOne, rows } = await ledgerFixture(t);
    await admit([job("away"), job("behind")]);
    const { lease } = await claimOne();
    await delegations.defer(lease, T0 + 2 * ROOM_GATE_MS, { reason: "agent_unavailable", undelivered: true });
    await admit([], { redacted: [{ room: room("r"), event: event("away") }] });
    assert.deepEqual(await rows("SELECT state FROM bridge_delegations ORDER BY id LIMIT 1"), [
      { state: "canceled" },
    ]);
    const [next, ...others] = await claim({ now: T0 + 3 * ROOM_GATE_MS });
    assert.deepEqual([next?.sourceEventId, others], [event("behind"), []]);
  });

  it("are not needed to step over a question that was canceled while it waited, whoever may work for its ghost [ENC-10]", async (t) => {
    const { delegations, admit, pool } = await ledgerFixture(t);
    await admit([job("canceled", { ghost: ghost("stopped") }), job("behind")]);
    await pool.query("UPDATE bridge_rooms SET encrypted = true");
    await admit([], { redacted: [{ room: room("r"), event: event("canceled") }] });
    const request = { holder: "one", limit: 10, now: T0, leaseUntil: T0 + LEASE_MS, ghosts: [ghost()] };
    const names = (await delegations.claim(request)).map((one) => one.sourceEventId);
    assert.deepEqual(names, [event("behind")]);
  });

  it("are renewed while admissions run, without deadlocks [DEL-9]", async (t) => {
    const { delegations, admit, claim, pool } = await ledgerFixture(t, 12);
    const names = Array.from({ length: 40 }, (_, n) => `r${(n * 17) % 40}`);
    await admit(names.map((name) => job(`first-${name}`, { room: room(name) })));
    const held = await claim({ limit: 40 });
    assert.equal(held.length, 40);
    const leases = held.map((one) => one.lease);
    const renewing = Array.from({ length: 30 }, (_, n) => delegations.renew(leases, T0 + LEASE_MS + n));
    const admitting = Array.from({ length: 30 }, (_, n) =>
      admit(
        [...names].reverse().map((name) => job(`${n}-${name}`, { room: room(name) })),
        {
          capacity: { roomQueue: 1_000, globalQueue: 100_000 },
        },
      ),
    );
    await Promise.all([...renewing, ...admitting]);
    assert.equal(await deadlocks(pool), 0);
  });

  it("are renewed and released at the same time, in whatever order they are named, without a deadlock [DEL-9]", async (t) => {
    const { pool, delegations, admit, claim } = await ledgerFixture(t);
    await admit(["a", "b", "c"].map((name) => job(name, { room: room(name) })));
    const leases = (await claim()).map(({ lease }) => lease);
    const reversed = leases.toSorted((a, b) => Number(b.delegationId) - Number(a.delegationId));
    const holder = await pool.connect();
    await holder.query(BEGIN_PATIENT);
    await holder.query("SELECT FROM bridge_delegations WHERE id = $1 FOR UPDATE", [
      reversed[1]?.delegationId,
    ]);
    const renewing = delegations.renew(reversed, T0 + LEASE_MS);
    const releasing = delegations.release(reversed, T0);
    await untilWaiting(pool, 2, Promise.all([renewing, releasing]));
    await holder.query("COMMIT");
    holder.release();
    await Promise.all([renewing, releasing]);
    assert.equal(await deadlocks(pool), 0);
  });

  it("are released while an admission adds to their rooms, without a deadlock, however the database orders names [DEL-9]", async (t) => {
    const { pool, admit, claim } = await ledgerFixture(t);
    // The database compares UTF-8, and this process UTF-16.
    const rooms = [room("\uff5e"), room("\u{1f600}")];
    await admit(rooms.map((where, index) => job(`q${index}`, { room: where })));
    const leases = (await claim()).map(({ lease }) => lease);
    assert.equal(leases.length, 2);
    let tries = 0;
    const counted = interrupted(pool, () => {
      tries += 1;
    });
    const holder = await pool.connect();
    await holder.query(BEGIN_PATIENT);
    await holder.query("SELECT FROM bridge_rooms WHERE room_id = $1 FOR UPDATE", [rooms[0]]);
    const releasing = createLeases(counted, KEYS, ROOM_GATE_MS).release(leases, T0);
    await untilWaiting(pool, 1, releasing);
    const further = rooms.map((where, index) => job(`further${index}`, { room: where }));
    const derive = () => {
      tries += 1;
      return { delegations: further, answers: [], cancels: [], envelopes: [], notices: [] };
    };
    const admitting = admit(further, { derive });
    await untilWaiting(pool, 2, admitting);
    await holder.query("COMMIT");
    holder.release();
    await Promise.all([releasing, admitting]);
    assert.equal(tries, 2, "neither was made again");
  });

  it("that one statement has claimed are worked on where the other one fails [DEL-1]", async (t) => {
    const { pool, admit } = await ledgerFixture(t);
    await admit([job("q1")]);
    const failing = interrupted(pool, (statement) => {
      if (statement !== "claim_heads") throw new Error("Connection terminated unexpectedly");
    });
    const leases = createLeases(failing, KEYS, ROOM_GATE_MS);
    const request = { holder: "one", limit: 10, now: T0, leaseUntil: T0 + LEASE_MS };
    assert.deepEqual(
      (await leases.claim(request)).map(({ sourceEventId }) => sourceEventId),
      [event("q1")],
    );
    await assert.rejects(leases.claim(request), { message: "Connection terminated unexpectedly" });
  });
});
