// What a room and the audit learn of events that could not be read.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { EncryptedIntakeAudit } from "../../../../src/bridge/audit/records.ts";
import { INTAKE_ENVELOPE_REASONS } from "../../../../src/bridge/ledger/states.ts";
import type { UserId } from "../../../../src/domain/identifiers.ts";
import {
  arrivals,
  asking,
  claimEnvelope,
  claimEnvelopes,
  envelope,
  NOTICE_INTERVAL_MS,
  seat,
  servingLedger,
} from "../../../support/intake-envelopes.ts";
import { event, ghost, job, LEASE_MS, ledgerFixture, room, T0 } from "../../../support/ledger.ts";

const NOTICES = "SELECT kind, room_id, ghost_mxid, source_event_id, reason FROM bridge_notices ORDER BY id";
const missing = (where = "r", who = "docs") => ({
  kind: "keys_missing",
  room_id: room(where),
  ghost_mxid: ghost(who),
  source_event_id: null,
  reason: null,
});

describe("key loss", () => {
  it("an expired event leaves one audit record, which names no ghost and no agent [ENC-6] [AUD-1]", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t);
    await admit([], { ...arrivals(envelope("e1")), ingress: "recovered" });
    await ledger.envelopes.defer(await claimEnvelope(ledger, "e1"), T0 + 5, { requested: true });
    await ledger.envelopes.expire(await claimEnvelope(ledger, "e1", T0 + 5), "key_wait_elapsed", T0 + 6);
    const [audit, ...none] = await rows("SELECT schema, record FROM bridge_audit");
    assert.deepEqual(none, []);
    assert.equal(audit?.["schema"], "svc.encrypted_intake.v1");
    assert.deepEqual(EncryptedIntakeAudit.parse(audit?.["record"]), {
      schema: "svc.encrypted_intake.v1",
      time: "2026-01-01T00:00:00.006Z",
      outcome: "expired",
      terminal_reason: "key_wait_elapsed",
      room_id: room("r"),
      event_id: event("e1"),
      sender: "@alice:a.test",
      ingress: "recovered",
      key_requests: 1,
      admitted_at: "2026-01-01T00:00:00.000Z",
    });
    assert.deepEqual(await ledger.envelopes.count(), { awaiting: 0, oldestAdmittedAt: undefined });
  });

  it("every reason an event can expire for fits the table and the schema [ENC-6]", async (t) => {
    const fixture = await ledgerFixture(t);
    await seat(fixture);
    const { ledger, admit, rows } = fixture;
    await admit([], arrivals(...INTAKE_ENVELOPE_REASONS.expired.map((reason) => envelope(reason))));
    for (const one of await claimEnvelopes(ledger)) {
      const reason = INTAKE_ENVELOPE_REASONS.expired.find((each) => event(each) === one.event);
      assert.ok(reason);
      await ledger.envelopes.expire(one, reason, T0);
    }
    const reasons = (await rows("SELECT record FROM bridge_audit ORDER BY id")).map(
      ({ record }) => EncryptedIntakeAudit.parse(record).terminal_reason,
    );
    assert.deepEqual(reasons, [...INTAKE_ENVELOPE_REASONS.expired]);
    assert.deepEqual(await rows(NOTICES), [
      missing(),
      {
        kind: "policy_denied",
        room_id: room("r"),
        ghost_mxid: ghost(),
        source_event_id: event("device_not_trusted"),
        reason: "sender_device_untrusted",
      },
    ]);
  });

  it("a room is told once in a key-loss episode, and never twice within the interval [NOT-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, admit, rows } = fixture;
    await seat(fixture);
    await seat(fixture, room("r"), ghost("another"));
    await seat(fixture, room("s"));
    let sent = 0;
    const expire = async (now: number, where = "r") => {
      const name = `e${sent++}`;
      await admit([], arrivals(envelope(name, { room: room(where) })));
      await ledger.envelopes.expire(await claimEnvelope(ledger, name, now), "key_requests_exhausted", now);
    };
    const decrypt = async (now: number) => {
      const name = `d${sent++}`;
      await admit([], arrivals(envelope(name)));
      const claimed = await claimEnvelope(ledger, name, now);
      await ledger.envelopes.derive(claimed, asking(claimed, []), now);
    };
    await expire(T0);
    await expire(T0 + 1);
    assert.deepEqual(await rows(NOTICES), [missing("r", "another")]);
    await expire(T0 + 2, "s");
    assert.deepEqual(
      await rows(NOTICES),
      [missing("r", "another"), missing("s")],
      "another room's is its own",
    );
    // The episode goes on, however long.
    await expire(T0 + 3 * NOTICE_INTERVAL_MS);
    assert.equal((await rows(NOTICES)).length, 2);
    // It ends, and another begins.
    await decrypt(T0 + 3 * NOTICE_INTERVAL_MS + 1);
    await expire(T0 + 3 * NOTICE_INTERVAL_MS + 2);
    assert.equal((await rows(NOTICES)).length, 3);
    // Episodes that flicker are one to those who read of them, whichever ghost is left to say so.
    await decrypt(T0 + 3 * NOTICE_INTERVAL_MS + 3);
    await fixture.pool.query("DELETE FROM bridge_ghost_rooms WHERE ghost_mxid = $1", [ghost("another")]);
    await expire(T0 + 4 * NOTICE_INTERVAL_MS + 1);
    assert.equal((await rows(NOTICES)).length, 3);
    await expire(T0 + 5 * NOTICE_INTERVAL_MS);
    assert.deepEqual((await rows(NOTICES)).slice(3), [missing("r")]);
  });

  it("an event that is read at once ends the episode of its room [NOT-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const { ledger, admit, rows } = fixture;
    await seat(fixture);
    const expire = async (name: string, now: number) => {
      await admit([], arrivals(envelope(name)));
      await ledger.envelopes.expire(await claimEnvelope(ledger, name, now), "key_wait_elapsed", now);
    };
    await expire("e1", T0);
    await admit([], { decryptedIn: [room("other")] });
    await expire("e2", T0 + 2 * NOTICE_INTERVAL_MS);
    assert.equal((await rows(NOTICES)).length, 1);
    await admit([], { decryptedIn: [room("other"), room("r")] });
    await expire("e3", T0 + 4 * NOTICE_INTERVAL_MS);
    assert.equal((await rows(NOTICES)).length, 2);
  });

  it("twenty events that expire at one moment bring one notice [NOT-1]", async (t) => {
    const fixture = await ledgerFixture(t, 20);
    await seat(fixture);
    await fixture.admit([], arrivals(...Array.from({ length: 20 }, (_, n) => envelope(`e${n}`))));
    const claimed = await claimEnvelopes(fixture.ledger);
    await Promise.all(claimed.map((one) => fixture.ledger.envelopes.expire(one, "key_wait_elapsed", T0)));
    assert.deepEqual(await fixture.rows(NOTICES), [missing()]);
    assert.equal((await fixture.rows("SELECT 1 FROM bridge_audit")).length, 20);
  });

  it("an event expires all the same in a room that its ghosts have left", async (t) => {
    const { ledger, admit, claim, rows } = await ledgerFixture(t);
    await admit([], arrivals(envelope("e1"), job("q2")));
    await ledger.envelopes.expire(await claimEnvelope(ledger, "e1"), "event_unavailable", T0);
    assert.equal((await claim()).length, 1);
    await admit([], arrivals(envelope("e3")));
    await ledger.envelopes.expire(await claimEnvelope(ledger, "e3"), "key_wait_elapsed", T0);
    assert.deepEqual(await rows(NOTICES), []);
  });

  it("an encrypted room is told that it is refused, and not where ghosts take part [ENC-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const serving = servingLedger(fixture);
    const joined = (where: string) =>
      ({
        kind: "ghost",
        room: room(where),
        ghost: ghost(),
        membership: "join",
        inviter: undefined,
        direct: false,
      }) as const;
    const encryption = (where: string) =>
      ({ kind: "encryption", room: room(where), event: event(`encryption-${where}`) }) as const;
    let transactions = 0;
    for (const [ledger, stage] of [
      [fixture.ledger, "a"],
      [serving, "c"],
    ] as const) {
      for (const how of ["found", "switched"]) {
        const where = `${stage}-${how}`;
        const admit = (roomState: readonly (ReturnType<typeof joined> | ReturnType<typeof encryption>)[]) =>
          ledger.intake.admit({
            transactionId: `s${++transactions}`,
            ingress: "transaction",
            body: Buffer.from("{}"),
            receivedAt: T0,
            eventCount: roomState.length,
            malformed: [],
            roomState,
            redacted: [],
            about: { rooms: [], events: [], related: [] },
            derive: () => ({ delegations: [], envelopes: [], notices: [] }),
            capacity: { room: 1, global: 1 },
            noticeIntervalMs: NOTICE_INTERVAL_MS,
          });
        await admit([joined(where)]);
        if (how === "switched") await admit([encryption(where)]);
        const [settling] = await ledger.memberships.claim({ limit: 1, now: T0, leaseUntil: T0 + LEASE_MS });
        assert.ok(settling);
        const members = ["@alice:a.test" as UserId];
        await ledger.memberships.recordRoomFacts(settling, { encrypted: how === "found", members }, T0);
      }
    }
    assert.deepEqual(await fixture.rows("SELECT kind, room_id FROM bridge_notices ORDER BY room_id"), [
      { kind: "encrypted_room_refused", room_id: room("a-found") },
      { kind: "encrypted_room_refused", room_id: room("a-switched") },
    ]);
    assert.deepEqual(await fixture.rows("SELECT DISTINCT encrypted FROM bridge_rooms"), [
      { encrypted: true },
    ]);
  });

  it("the ghosts that are in a room; of an unknown room nothing is known", async (t) => {
    const fixture = await ledgerFixture(t);
    for (const who of ["b", "a"]) await seat(fixture, room("r"), ghost(who));
    await fixture.pool.query(
      "INSERT INTO bridge_ghost_rooms (room_id, ghost_mxid, membership) VALUES ('!r', '@agent_c:a.test', 'invite'), ('!left', '@agent_c:a.test', 'leave')",
    );
    const found = await fixture.ledger.memberships.joinedGhosts([room("r"), room("left"), room("unknown")]);
    assert.deepEqual(
      [...found].sort(([left], [right]) => (left < right ? -1 : 1)),
      [
        [room("left"), []],
        [room("r"), [ghost("a"), ghost("b")]],
      ],
    );
    assert.equal((await fixture.ledger.memberships.joinedGhosts([])).size, 0);
  });

  it("a read position is moved by whoever knows where it stands, and by nobody else [ENC-2]", async (t) => {
    const { ledger } = await ledgerFixture(t);
    const overtaken = { code: "lease_lost" };
    await assert.rejects(ledger.roomPositions.set(ghost(), "s1", undefined), overtaken, "no such ghost");
    await ledger.ghosts.ensureDevice(ghost(), "DEVICE", T0);
    for (const [set, read] of [
      [ledger.roomPositions.set, ledger.roomPositions.get],
      [ledger.toDevicePositions.set, ledger.toDevicePositions.get],
    ] as const) {
      await set(ghost(), "s1", undefined);
      await set(ghost(), "s5", "s1");
      // What another had read before that: back, on, and away.
      for (const since of ["s3", "s9", null]) {
        await assert.rejects(set(ghost(), since, "s1"), overtaken);
        await assert.rejects(set(ghost(), since, undefined), overtaken);
      }
      assert.equal(await read(ghost()), "s5");
    }
  });

  it("a ghost's read positions move, are forgotten, and know nothing of each other", async (t) => {
    const { ledger } = await ledgerFixture(t);
    assert.equal(await ledger.toDevicePositions.get(ghost()), undefined);
    await ledger.ghosts.ensureDevice(ghost(), "DEVICE", T0);
    await ledger.toDevicePositions.set(ghost(), "s1", undefined);
    await ledger.roomPositions.set(ghost(), "s2", undefined);
    assert.deepEqual(
      [await ledger.toDevicePositions.get(ghost()), await ledger.roomPositions.get(ghost())],
      ["s1", "s2"],
    );
    await ledger.toDevicePositions.set(ghost(), null, "s1");
    assert.deepEqual(
      [await ledger.toDevicePositions.get(ghost()), await ledger.roomPositions.get(ghost())],
      [undefined, "s2"],
    );
  });

  it("a room that was encrypted once is remembered as such [ENC-7]", async (t) => {
    const { ledger, pool } = await ledgerFixture(t);
    const secret = room("secret");
    assert.equal(await ledger.memberships.isRoomEncrypted(secret), false);
    await pool.query("INSERT INTO bridge_rooms (room_id) VALUES ($1)", [secret]);
    assert.equal(await ledger.memberships.isRoomEncrypted(secret), false);
    await pool.query("UPDATE bridge_rooms SET encrypted = true WHERE room_id = $1", [secret]);
    assert.equal(await ledger.memberships.isRoomEncrypted(secret), true);
  });
});
