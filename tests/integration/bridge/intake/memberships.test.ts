// What a ghost does about invitations, and about rooms that it or the people in them leave.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { intakeFixture, jobs, member, question } from "../../../support/intake.ts";
import { ghost, T0 } from "../../../support/ledger.ts";

describe("memberships of ghosts", () => {
  it("a ghost answers invitations, reads the room after joining, and leaves when the last person has left", async (t) => {
    const fixture = await intakeFixture(t);
    const tasks = () => fixture.rows("SELECT membership, task FROM bridge_ghost_rooms");
    await fixture.events("t1", member(ghost("docs"), "invite", { sender: "@alice:a.test" }));
    assert.deepEqual(await tasks(), [{ membership: "invite", task: "answer_invite" }]);
    const now = Date.now() + 1_000;
    const request = { limit: 5, now, leaseUntil: now + 1_000 };
    const [invited] = await fixture.ledger.memberships.claim(request);
    assert.equal(invited?.inviter, "@alice:a.test");
    assert.ok(invited);
    await fixture.ledger.memberships.recordJoined(invited, now);
    const [settling] = await fixture.ledger.memberships.claim(request);
    assert.equal(settling?.task, "settle");
    assert.ok(settling);
    const facts = { encrypted: false, members: ["@alice:a.test", ghost("docs")] as never[] };
    await fixture.ledger.memberships.recordRoomFacts(settling, facts, now);
    assert.deepEqual(await tasks(), [{ membership: "join", task: null }]);
    // Its own join event, arriving late, asks for nothing again.
    await fixture.events("t2", member(ghost("docs"), "join"));
    assert.deepEqual(await tasks(), [{ membership: "join", task: null }]);
    await fixture.events("t3", member("@alice:a.test", "leave"));
    // Whether that is so is asked first: the event may be an old one that was held up.
    assert.deepEqual(await tasks(), [{ membership: "join", task: "settle" }]);
    const later = { ...request, now: Date.now() + 2_000 };
    const [claimed] = await fixture.ledger.memberships.claim(later);
    assert.ok(claimed);
    await fixture.ledger.memberships.recordRoomFacts(claimed, { ...facts, members: [ghost("docs")] }, now);
    assert.deepEqual(await tasks(), [{ membership: "join", task: "leave" }]);
  });

  it("invitations of ghosts that no agent has leave no row [ENC-2] [DEL-10]", async (t) => {
    const fixture = await intakeFixture(t);
    const invited = (name: string) => member(ghost(name), "invite", { sender: "@mallory:b.test" });
    const names = Array.from({ length: 40 }, (_, index) => `bait${index}`);
    assert.equal((await fixture.events("t1", ...["docs", ...names].map(invited))).status, 200);
    assert.deepEqual(await fixture.rows("SELECT ghost_mxid AS ghost FROM bridge_ghost_rooms"), [
      { ghost: ghost("docs") },
    ]);
    assert.deepEqual(await fixture.rows("SELECT FROM bridge_ghosts"), []);
  });

  it("an old join or leave that arrives late neither makes a room direct nor ends that [INT-8]", async (t) => {
    const fixture = await intakeFixture(t);
    const docs = ghost("docs");
    let people = ["@alice:a.test"];
    const settle = async () => {
      const now = Date.now() + 1_000;
      for (const one of await fixture.ledger.memberships.claim({ limit: 5, now, leaseUntil: now + 1_000 })) {
        const facts = { encrypted: false, members: [docs, ...people] as never[] };
        await fixture.ledger.memberships.recordRoomFacts(one, facts, now);
      }
    };
    const said = (id: string) => question(id, {}, { "m.mentions": undefined });
    await fixture.events("t1", member(docs, "invite", { sender: "@alice:a.test" }, { is_direct: true }));
    await fixture.events("t2", member(docs, "join"));
    await settle();
    // Bob has come and gone. A catchup has read that he left, and the transaction that was held up brings his join.
    const [bobJoined, bobLeft] = ["join", "leave"].map((membership) => member("@bob:a.test", membership));
    await fixture.events("t3", bobLeft);
    await fixture.events("t4", bobJoined);
    await settle();
    await fixture.events("t5", said("alone"));
    assert.deepEqual(await jobs(fixture), ["$alone"]);
    // And he comes back, before which an old leave of his arrives.
    people = ["@alice:a.test", "@bob:a.test"];
    await fixture.events("t6", member("@bob:a.test", "join"));
    await fixture.events("t7", member("@bob:a.test", "leave"));
    await settle();
    await fixture.events("t8", said("together"));
    assert.deepEqual(await jobs(fixture), ["$alone"]);
    // In a room of many nobody needs to be asked.
    for (const name of ["carol", "dave"]) await fixture.events(name, member(`@${name}:a.test`, "join"));
    assert.deepEqual(await fixture.rows("SELECT task FROM bridge_ghost_rooms"), [{ task: null }]);
  });

  it("a ghost's reported leave is verified with the homeserver, and what is asked meanwhile is kept [INT-8]", async (t) => {
    const fixture = await intakeFixture(t);
    const tasks = () => fixture.rows("SELECT membership, task FROM bridge_ghost_rooms");
    const claim = async () => {
      const now = Date.now() + 1_000;
      const [claimed] = await fixture.ledger.memberships.claim({ limit: 1, now, leaseUntil: now + 1_000 });
      return claimed ?? assert.fail();
    };
    const facts = { encrypted: false, members: ["@alice:a.test", ghost("docs")] as never[] };
    await fixture.events("t1", member(ghost("docs"), "join"));
    await fixture.ledger.memberships.recordRoomFacts(await claim(), facts, Date.now());
    // Held up behind what was caught up: it has long come again.
    await fixture.events("t2", member(ghost("docs"), "leave", { sender: "@alice:a.test" }));
    await fixture.events("t3", question("meanwhile"));
    assert.deepEqual(await jobs(fixture), ["$meanwhile"]);
    assert.deepEqual(await tasks(), [{ membership: "join", task: "settle" }]);
    await fixture.ledger.memberships.recordRoomFacts(await claim(), facts, Date.now());
    assert.deepEqual(await tasks(), [{ membership: "join", task: null }]);
    await fixture.events("t4", member(ghost("docs"), "leave", { sender: "@alice:a.test" }));
    await fixture.ledger.memberships.recordLeft(await claim(), T0);
    assert.deepEqual(await tasks(), [{ membership: "leave", task: null }]);
  });

  it("an invitation of a ghost that is in the room changes nothing until it is found to be out, and is answered then [INT-8]", async (t) => {
    const fixture = await intakeFixture(t);
    const known = async () =>
      (await fixture.rows("SELECT membership, task, direct FROM bridge_ghost_rooms"))[0];
    let now = Date.now();
    const claim = async () => {
      now += 1_000;
      const [claimed] = await fixture.ledger.memberships.claim({ limit: 1, now, leaseUntil: now });
      return claimed ?? assert.fail();
    };
    const members = ["@alice:a.test", "@bob:a.test", ghost("docs")] as never[];
    const settle = async () =>
      fixture.ledger.memberships.recordRoomFacts(await claim(), { encrypted: false, members }, now);
    const invite = (sender: string, at: number) =>
      member(ghost("docs"), "invite", { sender, origin_server_ts: at }, { is_direct: true });
    const leave = (at: number) =>
      member(ghost("docs"), "leave", { sender: "@alice:a.test", origin_server_ts: at });
    await fixture.events("t1", member(ghost("docs"), "join"));
    await settle();
    await fixture.events("t2", invite("@mallory:b.test", now));
    assert.deepEqual(await known(), { membership: "join", task: "settle", direct: false });
    await settle();
    assert.deepEqual(await known(), { membership: "join", task: null, direct: false });
    // Removed and invited again.
    await fixture.events("t3", leave(now), invite("@alice:a.test", now + 1));
    await fixture.ledger.memberships.recordLeft(await claim(), now);
    const answering = await claim();
    assert.deepEqual([answering.task, answering.inviter], ["answer_invite", "@alice:a.test"]);
    await fixture.ledger.memberships.recordJoined(answering, now);
    await settle();
    // And invited and removed: it does not come back by itself.
    await fixture.events("t4", invite("@mallory:b.test", now), leave(now + 1));
    await fixture.ledger.memberships.recordLeft(await claim(), now);
    assert.deepEqual(await known(), { membership: "leave", task: null, direct: false });
  });

  it("a ghost's leave that is reported twice is still verified with the homeserver [INT-8]", async (t) => {
    const fixture = await intakeFixture(t);
    const sender = "@alice:a.test";
    await fixture.events("t1", member(ghost("docs"), "join"));
    await fixture.events("t2", member(ghost("docs"), "ban", { sender }));
    await fixture.events("t3", member(ghost("docs"), "leave", { sender }));
    assert.deepEqual(await fixture.rows("SELECT membership, task FROM bridge_ghost_rooms"), [
      { membership: "join", task: "settle" },
    ]);
  });

  it("a ghost reads its rooms again when events may have been missed [INT-8]", async (t) => {
    const fixture = await intakeFixture(t);
    const tasks = () => fixture.rows("SELECT room_id, task FROM bridge_ghost_rooms ORDER BY room_id");
    const rooms = ["!a", "!b", "!c"];
    for (const room_id of rooms) await fixture.events(room_id, member(ghost("docs"), "join", { room_id }));
    const now = Date.now() + 1_000;
    const facts = { encrypted: false, members: ["@alice:a.test"] as never[] };
    for (const one of await fixture.ledger.memberships.claim({ limit: 5, now, leaseUntil: now })) {
      if (one.roomId === "!c") await fixture.ledger.memberships.recordLeft(one, T0);
      else await fixture.ledger.memberships.recordRoomFacts(one, facts, now);
    }
    await fixture.ledger.memberships.catchupRoomState(ghost("docs"), ["!b", "!c"] as never[], now);
    const expected = (a: string | null) => [
      { room_id: "!a", task: a },
      { room_id: "!b", task: "settle" },
      { room_id: "!c", task: null },
    ];
    assert.deepEqual(await tasks(), expected(null));
    await fixture.ledger.memberships.catchupRoomState(ghost("docs"), undefined, now);
    assert.deepEqual(await tasks(), expected("settle"));
  });

  it("an answer to an old invitation never overwrites later membership changes", async (t) => {
    const fixture = await intakeFixture(t);
    await fixture.events("t1", member(ghost("docs"), "invite", { sender: "@alice:a.test" }));
    const now = Date.now() + 1_000;
    const [stale] = await fixture.ledger.memberships.claim({ limit: 5, now, leaseUntil: now + 1_000 });
    assert.ok(stale);
    await fixture.events("t2", member(ghost("docs"), "leave", { sender: "@alice:a.test" }));
    await fixture.ledger.memberships.recordJoined(stale, now);
    assert.deepEqual(await fixture.rows("SELECT membership, task FROM bridge_ghost_rooms"), [
      { membership: "leave", task: null },
    ]);
  });
});
