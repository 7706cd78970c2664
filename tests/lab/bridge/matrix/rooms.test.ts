// Invitations, encrypted rooms, leaving and notices, on a real Synapse and a real ledger.
import assert from "node:assert/strict";
import { after, before, describe, it, type TestContext } from "node:test";
import { pino } from "pino";
import { createTransactionHandler } from "../../../../src/bridge/intake/handle-transaction.ts";
import { createNamespace } from "../../../../src/bridge/intake/namespace.ts";
import type {
  GhostMembershipEvent,
  NewNotice,
  RoomStateEvent,
} from "../../../../src/bridge/ledger/admission-types.ts";
import type { ClaimedMembership } from "../../../../src/bridge/ledger/memberships.ts";
import { createMembershipQueue } from "../../../../src/bridge/matrix/answer-invitations.ts";
import { Ghosts } from "../../../../src/bridge/matrix/ghosts.ts";
import { createNoticeQueue } from "../../../../src/bridge/notices/send-notices.ts";
import { systemRandom } from "../../../../src/domain/clock.ts";
import type { EventId, GhostMxid, RoomId, ServerName } from "../../../../src/domain/identifiers.ts";
import { type TestAgent, testDirectory } from "../../../support/agents.ts";
import { ghostSide, noticeTexts } from "../../../support/ghosts.ts";
import { ghost, ledgerFixture } from "../../../support/ledger.ts";
import { startSynapse, type TestSynapse, type TestUser } from "../../../support/synapse.ts";

let synapse: TestSynapse;
let alice: TestUser;
let mallory: TestUser;
before(async () => {
  synapse = await startSynapse();
  alice = await synapse.user("alice");
  mallory = await synapse.user("mallory");
});
after(() => synapse.dispose());

async function bridge(t: TestContext) {
  const { ledger, admit, rows } = await ledgerFixture(t);
  const side = ghostSide(t, synapse.url, { asToken: synapse.asToken });
  const { homeserver, clock } = side;
  const entries: Record<string, TestAgent> = {
    docs: { senders: [alice.userId] },
    other: { displayName: "Other <b>" },
  };
  const agents = testDirectory(entries);
  const mayMake = async (who: GhostMxid) => (await agents.current()).byGhost.has(who);
  const ghosts = new Ghosts({ homeserver, ledger, clock, random: systemRandom, mayMake });
  const common = { ledger, homeserver, ghosts, agents, clock, log: pino({ level: "silent" }) };
  const left: (readonly [GhostMxid, RoomId, membership: unknown])[] = [];
  const onLeft = async ({ ghost: who, roomId: room }: Pick<ClaimedMembership, "ghost" | "roomId">) => {
    const [row] = await rows("SELECT membership FROM bridge_ghost_rooms WHERE room_id = $1", [room]);
    left.push([who, room, row?.["membership"]]);
  };
  return {
    ...side,
    ledger,
    rows,
    entries,
    agents,
    ghosts,
    left,
    memberships: createMembershipQueue({ ...common, onLeft }),
    notices: createNoticeQueue({ ...common, readsEncrypted: true, ...noticeTexts }),
    roomState: (...roomState: readonly RoomStateEvent[]) => admit([], { roomState }),
    notice: (notice: NewNotice) =>
      admit([], {
        events: [{ event: notice.source, room: notice.room }],
        about: { rooms: [notice.room], related: [] },
        derive: () => ({ delegations: [], answers: [], cancels: [], envelopes: [], notices: [notice] }),
      }),
  };
}

const invited = (room: RoomId, who: GhostMxid, by: TestUser): GhostMembershipEvent => ({
  kind: "ghost",
  room,
  ghost: who,
  membership: "invite",
  inviter: by.userId,
  direct: false,
  hasAgent: true,
});

async function membershipOf(user: TestUser, room: RoomId, who: GhostMxid): Promise<unknown> {
  const path = ["rooms", room, "state", "m.room.member", who].map(encodeURIComponent).join("/");
  return (await user.call("GET", `/${path}`))["membership"];
}

const noticesIn = async (user: TestUser, room: RoomId) =>
  (await user.messages(room)).filter((one) => one.content["msgtype"] === "m.notice");

/** A question of Alice's. */
async function ask(user: TestUser, room: RoomId, body: string): Promise<EventId> {
  const path = ["rooms", room, "send", "m.room.message", body].map(encodeURIComponent).join("/");
  return (await user.call("PUT", `/${path}`, { msgtype: "m.text", body }))["event_id"] as EventId;
}

describe("ghosts' rooms", () => {
  it("a ghost accepts the invitation of a user who may ask it, and reads the members", async (t) => {
    const { ghosts, memberships, roomState, rows } = await bridge(t);
    await ghosts.ensureGhost(ghost());
    const room = await alice.createRoom({ invite: [ghost()] });
    await roomState(invited(room, ghost(), alice));
    await memberships.round();
    assert.equal(await membershipOf(alice, room, ghost()), "join");
    await memberships.round();
    assert.deepEqual(await rows("SELECT membership, task FROM bridge_ghost_rooms"), [
      { membership: "join", task: null },
    ]);
    assert.deepEqual(await rows("SELECT user_id FROM bridge_room_members"), [{ user_id: alice.userId }]);
    assert.deepEqual(await rows("SELECT encrypted FROM bridge_rooms"), [{ encrypted: false }]);
    assert.deepEqual(await noticesIn(alice, room), []);
  });

  it("a ghost refuses the invitation of a user who may not ask it", async (t) => {
    const { ghosts, memberships, roomState, rows } = await bridge(t);
    await ghosts.ensureGhost(ghost());
    const room = await mallory.createRoom({ invite: [ghost()] });
    await roomState(invited(room, ghost(), mallory));
    await memberships.round();
    assert.equal(await membershipOf(mallory, room, ghost()), "leave");
    assert.deepEqual(await rows("SELECT DISTINCT membership, task FROM bridge_ghost_rooms"), [
      { membership: "leave", task: null },
    ]);
  });

  it("invitations of ghosts that no agent has make no account, no device and no row [ENC-2] [ENC-10]", async (t) => {
    const { ledger, agents, clock, memberships, operations, rows } = await bridge(t);
    const unknown = Array.from({ length: 40 }, (_, index) => ghost(`bait-${index}`));
    const room = await mallory.createRoom();
    const handle = createTransactionHandler({
      ...{
        ledger,
        agents,
        clock,
        contextLifetimeMs: 86_400_000,
        capacity: { roomQueue: 64, globalQueue: 4_096 },
      },
      namespace: createNamespace({
        ...{ serverName: "a.test" as ServerName, ghostPrefix: "agent_", senderLocalpart: "drawbridge" },
      }),
    });
    const deliver = async (transactionId: string) => {
      const path = `/rooms/${encodeURIComponent(room)}/messages?dir=b&limit=200`;
      const { chunk } = (await mallory.call("GET", path)) as { chunk: unknown[] };
      const events = chunk.toReversed();
      await handle(transactionId, events);
      await memberships.round();
      await clock.advance(60_000);
      await memberships.round();
    };
    const toRoom = `/rooms/${encodeURIComponent(room)}`;
    for (const who of unknown) await mallory.call("POST", `${toRoom}/invite`, { user_id: who });
    await deliver("invited");
    assert.equal(await membershipOf(mallory, room, ghost("bait-0")), "invite", "it is not even refused");
    for (const who of unknown) await mallory.call("POST", `${toRoom}/kick`, { user_id: who });
    await deliver("withdrawn");
    assert.deepEqual(await rows("SELECT * FROM bridge_ghosts"), []);
    assert.deepEqual(await rows("SELECT * FROM bridge_ghost_rooms"), []);
    assert.deepEqual(operations, []);
    for (const who of unknown) {
      await assert.rejects(mallory.call("GET", `/profile/${encodeURIComponent(who)}`), /404/);
    }
  });

  it("an invitation of a ghost without an agent is answered when it has one within half a minute, and declined after it", async (t) => {
    const { clock, entries, ghosts, memberships, roomState } = await bridge(t);
    await ghosts.ensureGhost(ghost());
    const { docs } = entries;
    assert.ok(docs !== undefined);
    delete entries["docs"];
    const [kept, withdrawn, foreign] = [
      await alice.createRoom({ invite: [ghost()] }),
      await alice.createRoom({ invite: [ghost()] }),
      await mallory.createRoom({ invite: [ghost()] }),
    ];
    const reported = (room: RoomId, by: TestUser) => ({ ...invited(room, ghost(), by), hasAgent: false });
    await roomState(reported(kept, alice), reported(withdrawn, alice), reported(foreign, mallory));
    await memberships.round();
    await alice.call("POST", `/rooms/${encodeURIComponent(withdrawn)}/kick`, { user_id: ghost() });
    await roomState({ ...reported(withdrawn, alice), membership: "leave", inviter: undefined });
    await memberships.round();
    assert.equal(await membershipOf(alice, kept, ghost()), "invite");
    entries["docs"] = docs;
    await clock.advance(5_000);
    await memberships.round();
    assert.equal(await membershipOf(alice, kept, ghost()), "join");
    assert.equal(await membershipOf(alice, withdrawn, ghost()), "leave");
    assert.equal(await membershipOf(mallory, foreign, ghost()), "leave", "it is refused by policy");
    delete entries["docs"];
    const late = await alice.createRoom({ invite: [ghost()] });
    await roomState(reported(late, alice));
    for (let second = 0; second <= 40; second++) {
      await memberships.round();
      await clock.advance(1_000);
    }
    assert.equal(await membershipOf(alice, late, ghost()), "leave");
  });

  it("a withdrawn invitation, and one to a room that no server has, end without a join", async (t) => {
    const { clock, ghosts, memberships, roomState, rows } = await bridge(t);
    await ghosts.ensureGhost(ghost());
    const room = await alice.createRoom({ invite: [ghost()] });
    await alice.call("POST", `/rooms/${encodeURIComponent(room)}/kick`, { user_id: ghost() });
    await roomState(invited(room, ghost(), alice), invited("!nowhere" as RoomId, ghost(), alice));
    for (let second = 0; second <= 30; second++) {
      await memberships.round();
      await clock.advance(1_000);
    }
    assert.deepEqual(await rows("SELECT DISTINCT membership, task FROM bridge_ghost_rooms"), [
      { membership: "leave", task: null },
    ]);
  });

  it("an encrypted room gets one notice, however many ghosts and events it has [ENC-1]", async (t) => {
    const { ghosts, memberships, notices, roomState, rows } = await bridge(t);
    const both = [ghost(), ghost("other")];
    for (const who of both) await ghosts.ensureGhost(who);
    const room = await alice.createRoom({
      invite: both,
      initial_state: [
        { type: "m.room.encryption", state_key: "", content: { algorithm: "m.megolm.v1.aes-sha2" } },
      ],
    });
    await roomState(...both.map((who) => invited(room, who, alice)));
    for (let round = 0; round < 3; round++) {
      await memberships.round();
      await notices.round();
    }
    await roomState({ kind: "encryption", room });
    await notices.round();
    const said = await noticesIn(alice, room);
    assert.equal(said.length, 1);
    assert.match(String(said[0]?.content["body"]), /^This room is encrypted, and this bridge does not read/);
    assert.deepEqual(await rows("SELECT state FROM bridge_notices"), [{ state: "sent" }]);
  });

  it("a ghost leaves a room when no person is left, and its device is told before that is recorded [ENC-10]", async (t) => {
    const { homeserver, ghosts, memberships, roomState, rows, left } = await bridge(t);
    await ghosts.ensureGhost(ghost());
    const members = () => ghosts.acting(ghost(), (actor) => homeserver.joinedMembers(actor, room));
    const room = await alice.createRoom({ invite: [ghost()] });
    await roomState(invited(room, ghost(), alice));
    await memberships.round();
    await memberships.round();
    await alice.call("POST", `/rooms/${encodeURIComponent(room)}/leave`, {});
    assert.deepEqual(await members(), { kind: "ok", value: [ghost()] });
    await roomState({ kind: "member", room, position: 0, user: alice.userId, joined: false });
    // It looks whether that is so, and leaves.
    await memberships.round();
    await memberships.round();
    assert.deepEqual(left, [[ghost(), room, "join"]]);
    assert.partialDeepStrictEqual(await members(), { kind: "refused", errcode: "M_FORBIDDEN" });
    assert.deepEqual(await rows("SELECT membership, task FROM bridge_ghost_rooms"), [
      { membership: "leave", task: null },
    ]);
  });

  /** A room with the ghost joined and settled. */
  async function joinedRoom(made: Awaited<ReturnType<typeof bridge>>): Promise<RoomId> {
    await made.ghosts.ensureGhost(ghost());
    const room = await alice.createRoom({ invite: [ghost()] });
    await made.roomState(invited(room, ghost(), alice));
    await made.memberships.round();
    await made.memberships.round();
    return room;
  }

  it("!agents is answered once, in its thread, with each agent's availability [NOT-1]", async (t) => {
    const made = await bridge(t);
    const room = await joinedRoom(made);
    const source = await ask(alice, room, "!agents");
    const asked = { room, ghost: ghost(), source, asker: alice.userId, threadRoot: source } as const;
    const notice: NewNotice = { kind: "agent_directory", ...asked };
    await made.notice(notice);
    await made.notice(notice);
    await made.notices.round();
    await made.notices.round();
    const [said, ...more] = await noticesIn(alice, room);
    assert.deepEqual(more, []);
    assert.equal(said?.sender, ghost());
    assert.match(String(said?.content["body"]), /- docs: @agent_docs:a\.test \(not available now/);
    assert.match(String(said?.content["formatted_body"]), />Other &lt;b&gt;<\/a>/);
    assert.partialDeepStrictEqual(said?.content["m.relates_to"], { rel_type: "m.thread", event_id: source });
  });

  it("a notice is not sent again when its process died after the first send [NOT-1]", async (t) => {
    const made = await bridge(t);
    const room = await joinedRoom(made);
    const source = await ask(alice, room, "!agents");
    await made.notice({ kind: "agent_directory", room, ghost: ghost(), source, threadRoot: undefined });
    // Killed between the homeserver's answer and the ledger: what came back is never recorded.
    const notices = { ...made.ledger.notices, recordSent: () => Promise.reject(new Error("killed")) };
    const ledger = { ...made.ledger, notices };
    const log = pino({ level: "silent" });
    const { homeserver, ghosts, clock } = made;
    const dying = createNoticeQueue({
      ...{ ledger, homeserver, ghosts, clock, log },
      agents: testDirectory({}),
      readsEncrypted: true,
      ...noticeTexts,
    });
    await assert.rejects(dying.round(), /killed/);
    assert.equal((await noticesIn(alice, room)).length, 1);
    await synapse.restart();
    await made.clock.advance(10 * 60_000);
    await made.notices.round();
    assert.equal((await noticesIn(alice, room)).length, 1);
    assert.deepEqual(await made.rows("SELECT state FROM bridge_notices"), [{ state: "sent" }]);
  });

  it("notices and invitations wait while the homeserver is away [NOT-1]", async (t) => {
    const made = await bridge(t);
    const room = await joinedRoom(made);
    const second = await alice.createRoom({ invite: [ghost()] });
    const source = await ask(alice, room, "!agents");
    await synapse.stop();
    await made.notice({ kind: "agent_directory", room, ghost: ghost(), source, threadRoot: undefined });
    await made.roomState(invited(second, ghost(), alice));
    for (let round = 0; round < 5; round++) {
      await made.notices.round();
      await made.memberships.round();
    }
    const waiting = await made.rows(
      "SELECT n.attempts AS notice, g.attempts AS invitation FROM bridge_notices n, bridge_ghost_rooms g WHERE g.room_id = $1",
      [second],
    );
    assert.deepEqual(waiting, [{ notice: 1, invitation: 1 }], "tried once: the next try is not due yet");
    await synapse.start();
    await made.clock.advance(60_000);
    await made.notices.round();
    await made.memberships.round();
    assert.equal((await noticesIn(alice, room)).length, 1);
    assert.equal(await membershipOf(alice, second, ghost()), "join");
  });

  it("a notice for a room that may not be written to is dropped", async (t) => {
    const made = await bridge(t);
    const room = await joinedRoom(made);
    const source = await ask(alice, room, "!agents");
    await alice.call("POST", `/rooms/${encodeURIComponent(room)}/kick`, { user_id: ghost() });
    await made.notice({ kind: "agent_directory", room, ghost: ghost(), source, threadRoot: undefined });
    await made.notices.round();
    assert.deepEqual(await made.rows("SELECT state FROM bridge_notices"), [{ state: "dropped" }]);
  });
});
