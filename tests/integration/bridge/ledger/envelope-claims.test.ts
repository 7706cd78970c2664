// Intake envelopes from admission to their end: places, slots, refusals, replays.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { sha256 } from "../../../../src/domain/digest.ts";
import type { EventId, UserId } from "../../../../src/domain/identifiers.ts";
import {
  arrivals,
  asking,
  BUCKET,
  claimEnvelope,
  claimEnvelopes,
  envelope,
  event,
  ghost,
  interrupted,
  job,
  KEY_WAIT_MS,
  LEASE_MS,
  ledgerFixture,
  ledgerOn,
  ROOM_GATE_MS,
  room,
  seat,
  T0,
} from "../../../support/ledger.ts";

const lost = { code: "lease_lost" };
const ROOM = `SELECT next_seq::int AS next, head_seq::int AS head, head_at IS NOT NULL AS turn,
  gate_seq::int AS gate, open_count AS open, voids::text AS voids FROM bridge_rooms`;

describe("intake envelopes", () => {
  it("are one row without content, committed with their transaction [ENC-3]", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t);
    const same = { transactionId: "t", ...arrivals(envelope("e1")) };
    const admitted = await admit([], { ...same, ingress: "recovered" });
    assert.deepEqual([admitted.envelopes, admitted.admitted, admitted.refused.length], [1, 0, 0]);
    assert.equal((await admit([], same)).replayed, true);
    assert.equal((await admit([], arrivals(envelope("e1")))).envelopes, 0, "in another transaction, too");
    const [row, ...none] = await rows("SELECT * FROM bridge_encrypted_intake");
    assert.deepEqual(none, []);
    assert.deepEqual(row, {
      matrix_event_id: event("e1"),
      room_id: room("r"),
      sender_mxid: "@alice:a.test",
      origin_server_ts: String(T0),
      transaction_id: "t",
      ingress: "recovered",
      intake_fingerprint: sha256("e1"),
      edits_event_id: null,
      direct_ghost: null,
      refers_to: null,
      room_seq: "1",
      state: "awaiting_key",
      jobs: 0,
      attempts: 0,
      key_requests: 0,
      due_at: new Date(T0),
      holder: null,
      woken_at: null,
      fence: "0",
      deadline: new Date(T0 + KEY_WAIT_MS),
      admitted_at: new Date(T0),
      terminal_at: null,
      terminal_reason: null,
    });
    assert.deepEqual(await claimEnvelopes(ledger), [
      {
        event: event("e1"),
        fence: "1",
        room: room("r"),
        place: 1,
        sender: "@alice:a.test",
        originServerTs: T0,
        fingerprint: sha256("e1"),
        ingress: "recovered",
        attempts: 0,
        keyRequests: 0,
        edits: undefined,
        direct: undefined,
        questionWaits: false,
        admittedAt: T0,
        deadline: T0 + KEY_WAIT_MS,
      },
    ]);
  });

  it("exclude a delegation of the same event, and the reverse [ENC-3]", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t);
    await admit([], arrivals(envelope("e1"), job("q1")));
    const again = await admit([], arrivals(job("e1"), envelope("q1"), envelope("e2")));
    assert.deepEqual([again.admitted, again.envelopes], [0, 1]);
    assert.deepEqual(await rows("SELECT matrix_event_id FROM bridge_delegations"), [
      { matrix_event_id: event("q1") },
    ]);
    const e1 = await claimEnvelope(ledger, "e1");
    await ledger.envelopes.derive(e1, asking(e1, [job("e1")]), T0);
    assert.equal((await admit([], arrivals(job("e1"), envelope("e1")))).admitted, 0);
  });

  it("hold their room, and their delegations are dispatched before later ones [ENC-10]", async (t) => {
    const { ledger, delegations, admit, claim, rows } = await ledgerFixture(t);
    await admit([], arrivals(job("q1"), envelope("e2"), job("q3"), envelope("e4"), job("q5")));
    await admit([], arrivals(envelope("f1", { room: room("s") }), job("f2", { room: room("s") })));
    const order: string[] = [];
    const drain = async () => {
      for (const one of await claim()) {
        order.push(one.sourceEventId);
        await delegations.beginDispatch(one.lease, BUCKET, T0);
        await delegations.finish(
          one.lease,
          { state: "failed", stage: "dispatch", reason: "agent_failed" },
          T0,
        );
      }
    };
    const envelopes = new Map((await claimEnvelopes(ledger)).map((one) => [one.event, one]));
    const derive = async (name: string, ghosts: string[]) => {
      const claimed = envelopes.get(event(name));
      assert.ok(claimed);
      const jobs = ghosts.map((who) => job(name, { room: claimed.room, ghost: ghost(who) }));
      await ledger.envelopes.derive(claimed, asking(claimed, jobs), T0);
    };
    for (let n = 0; n < 3; n++) await drain();
    assert.deepEqual(order, [event("q1")], "nothing passes e2 or f1, and q1 did not wait for them");
    assert.deepEqual(await rows(`${ROOM} WHERE room_id = '!r'`), [
      { next: 6, head: 2, turn: false, gate: 2, open: 2, voids: "{}" },
    ]);
    await derive("e4", ["a"]);
    await drain();
    assert.deepEqual(order, [event("q1")], "e4 was read first, and still waits for e2");
    await derive("e2", ["a", "b"]);
    for (let n = 0; n < 6; n++) await drain();
    assert.deepEqual(
      order,
      ["q1", "e2", "e2", "q3", "e4", "q5"].map((name) => event(name)),
    );
    assert.deepEqual(
      await rows(
        `SELECT ghost_mxid, room_seq::int, room_ordinal, room_siblings, admitted_at FROM bridge_delegations
       WHERE matrix_event_id = $1 ORDER BY room_ordinal`,
        [event("e2")],
      ),
      ["a", "b"].map((who, ordinal) => ({
        ghost_mxid: ghost(who),
        room_seq: 2,
        room_ordinal: ordinal,
        room_siblings: 2,
        admitted_at: new Date(T0),
      })),
    );
    assert.deepEqual(
      await rows("SELECT state, jobs FROM bridge_encrypted_intake WHERE matrix_event_id = '$e2'"),
      [{ state: "derived", jobs: 2 }],
    );
    assert.deepEqual(await rows(`${ROOM} WHERE room_id = '!r'`), [
      { next: 6, head: 6, turn: false, gate: null, open: 0, voids: "{}" },
    ]);
    await derive("f1", []);
    await drain();
    assert.equal(order.at(-1), event("f2"));
  });

  it("leave void places, which the head steps over in any order [ENC-10]", async (t) => {
    const { ledger, delegations, admit, claim, rows } = await ledgerFixture(t);
    await admit(
      [],
      arrivals(envelope("e1"), job("q2"), envelope("e3"), envelope("e4"), job("q5"), envelope("e6")),
    );
    const claimed = await claimEnvelopes(ledger);
    const end = async (name: string) => {
      const one = claimed.find((each) => each.event === event(name));
      assert.ok(one);
      if (name === "e3") await ledger.envelopes.derive(one, asking(one, []), T0);
      else await ledger.envelopes.expire(one, "undecryptable", T0);
    };
    await end("e4");
    await end("e6");
    assert.deepEqual(await rows(ROOM), [
      { next: 7, head: 1, turn: false, gate: 1, open: 2, voids: "{[4,5),[6,7)}" },
    ]);
    await end("e3");
    await end("e1");
    assert.deepEqual(await rows(ROOM), [
      { next: 7, head: 2, turn: true, gate: null, open: 2, voids: "{[3,5),[6,7)}" },
    ]);
    const order: string[] = [];
    for (let n = 0; n < 3; n++) {
      for (const one of await claim()) {
        order.push(one.sourceEventId);
        await delegations.finish(
          one.lease,
          { state: "failed", stage: "dispatch", reason: "agent_failed" },
          T0,
        );
      }
    }
    assert.deepEqual(order, [event("q2"), event("q5")]);
    assert.deepEqual(await rows(ROOM), [{ next: 7, head: 7, turn: false, gate: null, open: 0, voids: "{}" }]);
    await admit([], arrivals(job("q7")));
    assert.equal((await claim())[0]?.sourceEventId, event("q7"));
  });

  it("are refused as denied rows beyond capacity, with one notice [ENC-4]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, admit, rows } = fixture;
    await seat(fixture);
    const thousand = Array.from({ length: 1_000 }, (_, n) => envelope(`e${n}`));
    const own = { roomQueue: 1, globalQueue: 2, roomEnvelopes: 64, senderEnvelopes: 100 };
    const admitted = await admit([], { ...arrivals(...thousand), capacity: own });
    assert.deepEqual(
      [admitted.envelopes, admitted.envelopesDenied, admitted.admitted, admitted.refused.length],
      [64, 936, 0, 0],
    );
    assert.deepEqual(
      await rows(`SELECT state, terminal_reason AS reason, count(*)::int AS count, min(room_seq)::int AS first
      FROM bridge_encrypted_intake GROUP BY 1, 2 ORDER BY 1`),
      [
        { state: "awaiting_key", reason: null, count: 64, first: 1 },
        { state: "denied", reason: "room_envelopes_exceeded", count: 936, first: null },
      ],
    );
    assert.deepEqual(await rows("SELECT kind, ghost_mxid, reason, source_event_id FROM bridge_notices"), [
      {
        kind: "capacity_exceeded",
        ghost_mxid: ghost(),
        reason: "room_envelopes_exceeded",
        source_event_id: "$e64",
      },
    ]);
    assert.deepEqual(await rows("SELECT 1 FROM bridge_audit"), []);
    // They take nothing of the room's capacity or of the global one; each sender has a limit in all rooms.
    assert.equal((await admit([], { ...arrivals(job("q")), capacity: own })).admitted, 1);
    const other = (name: string, sender: string) =>
      envelope(name, { room: room("s"), sender: sender as UserId });
    const more = arrivals(other("s1", "@alice:a.test"), other("s2", "@bob:b.test"));
    const limited = { ...own, senderEnvelopes: 64 };
    assert.equal((await admit([], { ...more, capacity: limited })).envelopes, 1);
    assert.deepEqual(
      await rows(
        "SELECT terminal_reason AS reason FROM bridge_encrypted_intake WHERE matrix_event_id = '$s1'",
      ),
      [{ reason: "sender_envelopes_exceeded" }],
    );
    const [one] = await claimEnvelopes(ledger);
    assert.ok(one);
    await ledger.envelopes.expire(one, "undecryptable", T0);
    const last = arrivals(other("s3", "@alice:a.test"));
    assert.equal((await admit([], { ...last, capacity: limited })).envelopes, 1);
    // 64 are of alice, and one is of another server.
    const shared = { ...limited, senderEnvelopes: 1, serverEnvelopes: 65, globalEnvelopes: 67 };
    // Servers that fill all leave each other one what one of its users may have.
    const names = ["@carol:a.test", "@dave:a.test", "@erin:c.test", "@frank:d.test", "@gina:d.test"];
    for (const [n, name] of names.entries()) {
      await admit([], { ...arrivals(other(`t${n}`, name)), capacity: shared });
    }
    assert.deepEqual(
      await rows(
        "SELECT terminal_reason AS reason FROM bridge_encrypted_intake WHERE matrix_event_id LIKE '$t%' ORDER BY matrix_event_id",
      ),
      [null, "server_envelopes_exceeded", null, null, "global_envelopes_exceeded"].map((reason) => ({
        reason,
      })),
    );
  });

  it("become delegations as far as there are slots; one beyond capacity is a denied row with a notice [ENC-5]", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t);
    const capacity = { roomQueue: 1, globalQueue: 4_096 };
    await admit([], { ...arrivals(envelope("e1"), envelope("e2")), capacity });
    const e1 = await claimEnvelope(ledger, "e1");
    const jobs = ["a", "b"].map((who) => job("e1", { ghost: ghost(who) }));
    const derived = await ledger.envelopes.derive(e1, asking(e1, jobs, capacity), T0 + 1);
    assert.deepEqual([derived.admitted, derived.refused.length, derived.notices], [1, 1, 1]);
    assert.deepEqual(
      await rows(`SELECT ghost_mxid, state, terminal_reason, prompt IS NULL AS empty, room_siblings
      FROM bridge_delegations ORDER BY ghost_mxid`),
      [
        { ghost_mxid: ghost("a"), state: "queued", terminal_reason: null, empty: false, room_siblings: 1 },
        {
          ghost_mxid: ghost("b"),
          state: "denied",
          terminal_reason: "room_capacity_exceeded",
          empty: true,
          room_siblings: null,
        },
      ],
    );
    assert.deepEqual(await rows("SELECT kind, ghost_mxid FROM bridge_notices"), [
      { kind: "capacity_exceeded", ghost_mxid: ghost("b") },
    ]);
    assert.deepEqual(await rows("SELECT record ->> 'schema' AS schema FROM bridge_audit"), [
      { schema: "svc.delegation.v1" },
    ]);
    assert.deepEqual(await rows(ROOM), [{ next: 3, head: 1, turn: true, gate: 2, open: 1, voids: "{}" }]);
    // The bound that counts from above knows of siblings, too.
    const [bound] = await rows(
      "SELECT counted_open + admitted - counted_at_admitted AS most FROM bridge_capacity",
    );
    assert.equal(Number(bound?.["most"]), 1);
  });

  it("are worked on though the places of those that waited too long could not be given up, which the next claim does [ENC-10]", async (t) => {
    const { pool, ledger, admit, rows } = await ledgerFixture(t);
    await admit([], arrivals(envelope("e1"), job("q2"), envelope("f1", { room: room("s") })));
    const failing = interrupted(pool, (statement) => {
      if (statement === "give_up_places") throw new Error("canceling statement due to statement timeout");
    });
    const late = T0 + ROOM_GATE_MS;
    const claimed = await claimEnvelopes(ledgerOn(failing, ROOM_GATE_MS).ledger, late);
    assert.deepEqual(claimed.map((one) => one.event).toSorted(), [event("e1"), event("f1")]);
    const head =
      "SELECT head_seq::int AS head, head_at IS NOT NULL AS turn FROM bridge_rooms WHERE room_id = '!r'";
    assert.deepEqual(await rows(head), [{ head: 1, turn: false }]);
    for (const one of claimed) await ledger.envelopes.defer(one, late + LEASE_MS);
    assert.equal((await claimEnvelopes(ledger, late)).length, 2);
    assert.deepEqual(await rows(head), [{ head: 2, turn: true }]);
  });

  it("of a used message index are replays under another event ID [ENC-9]", async (t) => {
    const { ledger, delegations, admit, claim, rows } = await ledgerFixture(t);
    const [one, two] = [sha256("index one"), sha256("index two")];
    const at = (digest: Buffer, who = "docs") => ({ indexDigest: digest, ghost: ghost(who) });
    await admit([], arrivals(job("q1", at(one, "a")), job("q1", at(one, "b")), job("q2", at(one))));
    await admit([], arrivals(job("q3", at(one)), job("q4", at(two)), envelope("e5")));
    assert.equal((await admit([], arrivals(job("q4", at(two, "late"))))).admitted, 0, "it was handled");
    const e5 = await claimEnvelope(ledger, "e5");
    const replayed = await ledger.envelopes.derive(e5, asking(e5, [job("e5", at(two))]), T0);
    assert.deepEqual([replayed.admitted, replayed.refused.length], [0, 1]);
    assert.deepEqual(
      await rows(`SELECT matrix_event_id AS event, state, terminal_reason AS reason FROM bridge_delegations
      WHERE state = 'denied' ORDER BY id`),
      ["q2", "q3", "e5"].map((name) => ({ event: event(name), state: "denied", reason: "event_replayed" })),
    );
    assert.deepEqual(await rows("SELECT kind, reason FROM bridge_notices"), [
      { kind: "policy_denied", reason: "event_replayed" },
    ]);
    assert.deepEqual(await rows("SELECT jobs FROM bridge_encrypted_intake"), [{ jobs: 0 }]);
    // A replay neither stands in the way nor takes the index from its owner.
    const order: EventId[] = [];
    for (let n = 0; n < 9; n++) {
      for (const each of await claim()) {
        order.push(each.sourceEventId);
        await delegations.finish(
          each.lease,
          { state: "failed", stage: "dispatch", reason: "agent_failed" },
          T0,
        );
      }
    }
    assert.deepEqual(order, [event("q1"), event("q1"), event("q4")]);
  });

  it("make their message index known to events that are decrypted at intake [ENC-9]", async (t) => {
    const { ledger, admit } = await ledgerFixture(t);
    const indexDigest = sha256("index");
    await admit([], arrivals(envelope("e1"), envelope("e2")));
    const claimed = await claimEnvelopes(ledger);
    for (const one of claimed) {
      const derived = await ledger.envelopes.derive(
        one,
        asking(one, [job(one.event.slice(1), { indexDigest })]),
        T0,
      );
      assert.equal(derived.refused.length, one === claimed[0] ? 0 : 1);
    }
    assert.equal((await admit([], arrivals(job("q3", { indexDigest })))).refused.length, 1);
  });

  it("refuse every write of a stale holder [ENC-3]", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t);
    await admit([], arrivals(envelope("e1")));
    const stale = await claimEnvelope(ledger, "e1");
    assert.deepEqual(await claimEnvelopes(ledger, T0 + LEASE_MS - 1), [], "the lease still holds");
    const fresh = await claimEnvelope(ledger, "e1", T0 + LEASE_MS);
    const before = await rows("SELECT * FROM bridge_encrypted_intake, bridge_rooms");
    await assert.rejects(ledger.envelopes.derive(stale, asking(stale, [job("e1")]), T0), lost);
    await assert.rejects(ledger.envelopes.expire(stale, "key_wait_elapsed", T0), lost);
    await assert.rejects(ledger.envelopes.defer(stale, T0, { requested: true }), lost);
    assert.deepEqual(await rows("SELECT * FROM bridge_encrypted_intake, bridge_rooms"), before);
    assert.deepEqual(await rows("SELECT 1 FROM bridge_audit"), []);
    await ledger.envelopes.derive(fresh, asking(fresh, [job("e1")]), T0);
    await assert.rejects(ledger.envelopes.derive(fresh, asking(fresh, [job("e1")]), T0), lost, "once");
    await assert.rejects(ledger.envelopes.expire(fresh, "key_wait_elapsed", T0), lost);
  });

  it("become due when a key arrives, also those that are leased [ENC-10]", async (t) => {
    const { ledger, admit } = await ledgerFixture(t);
    await admit([], arrivals(envelope("e1"), envelope("e2"), envelope("f1", { room: room("s") })));
    const claimed = await claimEnvelopes(ledger);
    const [e1, e2, f1] = ["e1", "e2", "f1"].map((name) => claimed.find((one) => one.event === event(name)));
    assert.ok(e1 && e2 && f1);
    for (const one of [e1, f1]) await ledger.envelopes.defer(one, T0 + 60_000, { requested: true });
    assert.equal(await ledger.envelopes.wake([], T0 + 10), 0);
    assert.equal(await ledger.envelopes.wake([room("r")], T0 + 10), 2);
    const due = async (now: number) =>
      (await claimEnvelopes(ledger, now)).map((one) => [one.event, one.attempts]);
    assert.deepEqual(await due(T0 + 10), [[event("e1"), 1]], "e2 is still in somebody's hands");
    await ledger.envelopes.defer(e2, T0 + 60_000, { requested: false });
    assert.deepEqual(await due(T0 + 10), [[event("e2"), 1]]);
    // A lease that was woken before does not count as woken again.
    const [again] = await claimEnvelopes(ledger, T0 + 10 + LEASE_MS, 1);
    assert.ok(again);
    await ledger.envelopes.defer(again, T0 + 90_000, { requested: false });
    assert.ok(!(await due(T0 + 20 + LEASE_MS)).some(([name]) => name === again.event));
  });

  it("are not deferred beyond their deadline, and count tries and key requests [ENC-6]", async (t) => {
    const { ledger, admit } = await ledgerFixture(t);
    await admit([], arrivals(envelope("e1", { deadline: T0 + 1_000 })));
    await ledger.envelopes.defer(await claimEnvelope(ledger, "e1"), T0 + 500, { requested: true });
    await ledger.envelopes.defer(await claimEnvelope(ledger, "e1", T0 + 500), T0 + 9_000, {
      requested: false,
    });
    assert.deepEqual(await claimEnvelopes(ledger, T0 + 999), []);
    const last = await claimEnvelope(ledger, "e1", T0 + 1_000);
    assert.deepEqual([last.attempts, last.keyRequests], [2, 1]);
  });

  it("never exceed capacity when their derivations race for one slot", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t, 12);
    const capacity = { roomQueue: 11, globalQueue: 4_096 };
    await admit([], { ...arrivals(...Array.from({ length: 10 }, (_, n) => envelope(`e${n}`))), capacity });
    const claimed = await claimEnvelopes(ledger);
    const derived = await Promise.all(
      claimed.map((one) => {
        const jobs = ["a", "b"].map((who) => job(one.event.slice(1), { ghost: ghost(who) }));
        return ledger.envelopes.derive(one, asking(one, jobs, capacity), T0);
      }),
    );
    assert.equal(
      derived.reduce((sum, one) => sum + one.admitted, 0),
      11,
    );
    assert.deepEqual(await rows("SELECT open_count AS open FROM bridge_rooms"), [{ open: 11 }]);
    assert.ok((await rows("SELECT 1 FROM bridge_notices")).length <= 2, "one for each ghost");
  });
});
