// What ghosts do about rooms, and what the ledger knows about the rooms that they are in.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";
import { createLedger } from "../../../../src/bridge/ledger/ledger.ts";
import type { UserId } from "../../../../src/domain/identifiers.ts";
import {
  ghost,
  LEASE_MS,
  ledgerFixture,
  NOTICE_INTERVAL_MS,
  room,
  seat,
  T0,
} from "../../../support/ledger.ts";

const joined = (name = "r") =>
  ({
    kind: "ghost",
    room: room(name),
    ghost: ghost(),
    membership: "join",
    inviter: undefined,
    direct: false,
    hasAgent: true,
  }) as const;

describe("memberships", () => {
  it("records the members of a large room again within seconds, while others wait for the room", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t);
    await admit([], { roomState: [joined()] });
    const members = Array.from({ length: 40_000 }, (_, index) => `@member${index}:b.test` as UserId);
    const request = { limit: 1, now: T0, leaseUntil: T0 + LEASE_MS };
    const read = async (present: readonly UserId[]) => {
      const [settling] = await ledger.memberships.claim(request);
      assert.ok(settling);
      const begun = performance.now();
      await ledger.memberships.recordRoomFacts(settling, { encrypted: false, members: present }, T0);
      return performance.now() - begun;
    };
    await read(members);
    await ledger.memberships.catchupRoomState(ghost(), undefined, T0);
    const ms = await read(members.slice(1));
    assert.deepEqual(await rows("SELECT count(*)::int FROM bridge_room_members"), [{ count: 39_999 }]);
    assert.ok(ms < 3_000, `${ms} ms`);
  });

  it("ignores a leave from a room in which the ghost was never recorded", async (t) => {
    const { admit, rows } = await ledgerFixture(t);
    const left = { kind: "ghost", room: room("r"), ghost: ghost("bait"), membership: "leave" } as const;
    await admit([], { roomState: [{ ...left, inviter: undefined, direct: false, hasAgent: false }] });
    assert.deepEqual(await rows("SELECT * FROM bridge_ghost_rooms"), []);
  });

  it("makes a ghost read the room again when a member joins or leaves while it reads", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t);
    await admit([], { roomState: [joined()] });
    const request = { limit: 1, now: T0, leaseUntil: T0 + LEASE_MS };
    const [settling] = await ledger.memberships.claim(request);
    assert.ok(settling);
    const bob = {
      kind: "member",
      room: room("r"),
      position: 0,
      user: "@bob:a.test" as UserId,
      joined: true,
    } as const;
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
    const [claimed] = await ledger.memberships.claim({ ...request, now: Date.now() });
    assert.ok(claimed);
    await ledger.memberships.recordRoomFacts(claimed, { encrypted: false, members: [ghost()] }, T0);
    assert.deepEqual(await rows("SELECT task FROM bridge_ghost_rooms"), [{ task: "leave" }]);
    await admit([], { roomState: [bob] });
    assert.deepEqual(await rows("SELECT task FROM bridge_ghost_rooms"), [{ task: "settle" }]);
  });

  it("takes a room for encrypted as soon as that was read, though somebody came or went meanwhile [ENC-7]", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t);
    const settle = async (encrypted: boolean) => {
      const [settling] = await ledger.memberships.claim({ limit: 1, now: T0, leaseUntil: T0 + LEASE_MS });
      assert.ok(settling);
      const user = "@bob:b.test" as UserId;
      await admit([], { roomState: [{ kind: "member", room: room("r"), position: 0, user, joined: true }] });
      await ledger.memberships.recordRoomFacts(settling, { encrypted, members: [ghost()] }, T0);
      return await ledger.memberships.isRoomEncrypted(room("r"));
    };
    await admit([], { roomState: [joined()] });
    assert.equal(await settle(false), false);
    assert.deepEqual(await rows("SELECT FROM bridge_rooms"), []);
    assert.equal(await settle(true), true);
    assert.equal(await settle(false), true);
    assert.deepEqual(await rows("SELECT task FROM bridge_ghost_rooms"), [{ task: "settle" }]);
  });

  it("keeps an invitation when an older leave arrives after it, and drops it when it was withdrawn", async (t) => {
    const { admit, rows } = await ledgerFixture(t);
    const receive = (membership: "invite" | "leave", originServerTs: number) =>
      admit([], {
        roomState: [
          {
            kind: "ghost",
            room: room("r"),
            ghost: ghost(),
            membership,
            inviter: membership === "invite" ? ("@alice:a.test" as UserId) : undefined,
            direct: false,
            hasAgent: true,
            originServerTs,
          },
        ],
      });
    const known = async () => (await rows("SELECT membership, task FROM bridge_ghost_rooms"))[0];
    await receive("invite", T0 + 2_000);
    await receive("invite", T0);
    await receive("leave", T0 + 1_000);
    assert.deepEqual(await known(), { membership: "invite", task: "answer_invite" });
    await receive("leave", T0 + 3_000);
    assert.deepEqual(await known(), { membership: "leave", task: null });
    await receive("invite", T0 + 1_500);
    assert.deepEqual(await known(), { membership: "invite", task: "answer_invite" });
    await receive("leave", T0 + 1_500);
    assert.deepEqual(await known(), { membership: "leave", task: null });
  });

  it("writes the notice of a refused encrypted room unless ghosts take part in encrypted rooms [ENC-1]", async (t) => {
    const fixture = await ledgerFixture(t);
    const serving = createLedger(fixture.pool, ContentKeys.parse(Buffer.alloc(32, 7).toString("base64")), {
      noticeIntervalMs: NOTICE_INTERVAL_MS,
      roomGateMs: 60_000,
      servesEncryptedRooms: true,
      isGhost: (user) => user.startsWith("@agent_"),
    });
    const encryption = (where: string) => ({ kind: "encryption", room: room(where) }) as const;
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
            receivedAt: T0,
            events: [],
            malformed: [],
            roomState,
            redacted: [],
            about: { rooms: [], related: [] },
            derive: () => ({ delegations: [], answers: [], cancels: [], envelopes: [], notices: [] }),
            capacity: { roomQueue: 1, globalQueue: 1 },
          });
        await admit([joined(where)]);
        if (how === "switched") await admit([encryption(where)]);
        assert.equal(await ledger.memberships.isRoomEncrypted(room(where)), false, "until it is read");
        const [settling] = await ledger.memberships.claim({ limit: 1, now: T0, leaseUntil: T0 + LEASE_MS });
        assert.ok(settling);
        const members = ["@alice:a.test" as UserId];
        await ledger.memberships.recordRoomFacts(settling, { encrypted: true, members }, T0);
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

  it("returns the joined ghosts of known rooms, and nothing about unknown ones", async (t) => {
    const fixture = await ledgerFixture(t);
    for (const who of ["b", "a"]) await seat(fixture, room("r"), ghost(who));
    await fixture.pool.query(
      `INSERT INTO bridge_ghost_rooms (room_id, ghost_mxid, membership, task, due_at, inactive_since)
       VALUES ('!r', '@agent_c:a.test', 'invite', 'answer_invite', now(), NULL),
         ('!left', '@agent_c:a.test', 'leave', NULL, NULL, now())`,
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

  it("remembers that a room was encrypted [ENC-7]", async (t) => {
    const { ledger, pool } = await ledgerFixture(t);
    const secret = room("secret");
    assert.equal(await ledger.memberships.isRoomEncrypted(secret), false);
    await pool.query("INSERT INTO bridge_rooms (room_id) VALUES ($1)", [secret]);
    assert.equal(await ledger.memberships.isRoomEncrypted(secret), false);
    await pool.query("UPDATE bridge_rooms SET encrypted = true WHERE room_id = $1", [secret]);
    assert.equal(await ledger.memberships.isRoomEncrypted(secret), true);
  });
});
