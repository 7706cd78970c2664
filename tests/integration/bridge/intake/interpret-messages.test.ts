import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EventId, UserId } from "../../../../src/domain/identifiers.ts";
import { intakeFixture, jobs, member, question } from "../../../support/intake.ts";
import { BUCKET, ghost, PART, T0 } from "../../../support/ledger.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const CANARY = "canary-9f2c41d7";

describe("which events ask a ghost", () => {
  it("edits, notices, redacted messages and messages of the bridge's own users never trigger [INT-6]", async (t) => {
    const fixture = await intakeFixture(t);
    await fixture.events(
      "t1",
      question(
        "edit",
        {},
        { "m.relates_to": { rel_type: "m.replace", event_id: "$q0" }, "m.new_content": {} },
      ),
      question("new-content", {}, { "m.new_content": { body: "x" } }),
      question("notice", {}, { msgtype: "m.notice" }),
      question("emote", {}, { msgtype: "m.emote" }),
      question("ghost", { sender: ghost("docs") }),
      question("other-ghost", { sender: ghost("other") }),
      question("bot", { sender: "@drawbridge:a.test" }),
      question("emptied", { content: {} }),
      question("nobody", {}, { "m.mentions": { user_ids: ["@bob:a.test"] } }),
      question("unmentioned", {}, { "m.mentions": undefined }),
      question("foreign-ghost", {}, { "m.mentions": { user_ids: ["@agent_docs:b.test"] } }),
      question("withdrawn"),
      { ...question("redaction"), type: "m.room.redaction", content: { redacts: "$withdrawn" } },
    );
    assert.deepEqual(await jobs(fixture), []);
    assert.equal((await fixture.rows("SELECT 1 FROM bridge_malformed_events")).length, 0);
  });

  it("messages of a partner's ghosts, and what is marked as automated, never trigger [INT-6]", async (t) => {
    const fixture = await intakeFixture(t);
    const marked = (id: string, mark: Record<string, unknown>) => question(id, {}, mark);
    await fixture.events(
      "t1",
      question("partners-ghost", { sender: "@agent_anything:b.test" }),
      marked("automated", { "m.automated": true }),
      marked("automated-unstable", { "org.matrix.msc1767.automated": true }),
      marked("bounced", { "m.bounce_limit": 1 }),
      marked("bounced-unstable", { "io.github.m13253.bounce_limit": 1 }),
      marked("bounced-thrice", { "m.bounce_limit": 3 }),
      marked("bounced-oddly", { "m.bounce_limit": "none" }),
      marked("person", { "m.automated": "yes", "org.matrix.msc1767.automated": false, "m.bounce_limit": 0 }),
      question("partners-person", { sender: "@bob:b.test" }),
      question("same-name-elsewhere", { sender: "@agent_anything:c.test" }),
    );
    assert.deepEqual(await jobs(fixture), ["$person", "$partners-person", "$same-name-elsewhere"]);
  });

  it("a sender who reacts to each answer at once gets three, and one notice, until it pauses [INT-6] [NOT-1]", async (t) => {
    const clock = new ManualClock(T0);
    const fixture = await intakeFixture(t, { clock });
    const { delegations } = fixture.ledger;
    const answer = async (name: string) => {
      const [claimed] = await fixture.claim({ now: clock.now() });
      assert.ok(claimed, name);
      await delegations.beginDispatch(claimed.lease, BUCKET, clock.now());
      const reply = { parts: [PART], agentVersion: undefined };
      const sends = await delegations.recordReply(claimed, reply, clock.now());
      assert.ok(sends !== "canceled");
      const sent = { sendId: sends[0]?.sendId ?? "", eventId: `$answer-${name}` as EventId };
      const outcome = { state: "completed", stage: "reply", reason: "answered", sent } as const;
      await delegations.finish(claimed.lease, outcome, clock.now());
    };
    const kinds = [
      (_name: string, before: string) => ({ "m.in_reply_to": { event_id: `$answer-${before}` } }),
      (name: string) => ({ rel_type: "m.thread", event_id: `$${name[0]}0` }),
    ];
    for (const [index, relation] of kinds.entries()) {
      const line = ["a", "b"][index] ?? "";
      const changes = { room_id: `!room-${line}` };
      const state = async (name: string) =>
        (
          await fixture.rows(
            "SELECT state, terminal_reason AS reason, agent_turn AS turn FROM bridge_delegations WHERE matrix_event_id = $1",
            [`$${name}`],
          )
        )[0];
      const ask = async (number: number) => {
        const name = `${line}${number}`;
        const relates = number === 0 ? {} : { "m.relates_to": relation(name, `${line}${number - 1}`) };
        await fixture.events(name, question(name, changes, relates));
        return name;
      };
      for (let number = 0; number < 3; number++) {
        await answer(await ask(number));
        await clock.advance(5_000);
      }
      const refused = { state: "denied", reason: "agent_turns_exceeded" };
      assert.deepEqual(await state(await ask(3)), { ...refused, turn: 4 });
      await clock.advance(20_000);
      // What goes on against the refusal does not count as a pause.
      await fixture.events(
        `${line}again`,
        question(`${line}again`, changes, { "m.relates_to": relation(`${line}4`, `${line}2`) }),
      );
      assert.partialDeepStrictEqual(await state(`${line}again`), refused);
      const notices = await fixture.rows(
        "SELECT kind, reason, source_event_id AS source FROM bridge_notices WHERE room_id = $1",
        [changes.room_id],
      );
      assert.deepEqual(notices, [
        { kind: "policy_denied", reason: "agent_turns_exceeded", source: `$${line}3` },
      ]);
      await clock.advance(31_000);
      const later = question(`${line}later`, changes, { "m.relates_to": relation(`${line}5`, `${line}2`) });
      await fixture.events(`${line}later`, later);
      assert.deepEqual(await state(`${line}later`), { state: "queued", reason: null, turn: 1 });
      await answer(`${line}later`);
    }
  });

  it("several people who ask in a thread, and questions without relation, are no exchange [INT-6]", async (t) => {
    const clock = new ManualClock(T0);
    const fixture = await intakeFixture(t, { clock });
    await fixture.events("root", question("root"));
    for (let number = 0; number < 6; number++) {
      const thread = { "m.relates_to": { rel_type: "m.thread", event_id: "$root" } };
      const sender = `@person${number}:a.test`;
      await fixture.events(
        `t${number}`,
        question(`thread${number}`, { sender }, thread),
        question(`q${number}`),
      );
    }
    await fixture.pool.query(
      "UPDATE bridge_delegations SET state = 'completed', terminal_stage = 'reply', terminal_reason = 'answered', terminal_at = $1, prompt = NULL",
      [new Date(clock.now())],
    );
    await fixture.events("more", question("more"));
    const turns = await fixture.rows("SELECT DISTINCT agent_turn AS turn FROM bridge_delegations");
    assert.deepEqual(turns, [{ turn: 1 }]);
  });

  it("a question that mentions somebody whose name cannot be read is asked all the same [INT-6] [INT-7]", async (t) => {
    const fixture = await intakeFixture(t);
    const mention = (user: unknown) => ({ "m.mentions": { user_ids: [ghost("docs"), user] } });
    const names = ["@eve a:evil.test", `@${"e".repeat(250)}:evil.test`, "@eve:evil_server", "", 7];
    await fixture.events("t1", ...names.map((name, index) => question(`q${index}`, {}, mention(name))));
    assert.deepEqual(await jobs(fixture), ["$q0", "$q1", "$q2", "$q3", "$q4"]);
  });

  it("a mention triggers everywhere, and any message in a direct room [INT-6]", async (t) => {
    const fixture = await intakeFixture(t);
    const plain = (id: string, changes = {}) => question(id, changes, { "m.mentions": undefined });
    const direct = { room_id: "!dm" };
    await fixture.events(
      "t1",
      member(ghost("docs"), "invite", { ...direct, sender: "@alice:a.test" }, { is_direct: true }),
      member(ghost("docs"), "join", direct),
      member("@alice:a.test", "join", direct),
    );
    await fixture.events("t2", plain("dm", direct), plain("shared"), question("mentioned"));
    assert.deepEqual(await jobs(fixture), ["$dm", "$mentioned"]);
    // A third person makes it a shared room, from then on.
    const third = member("@bob:a.test", "join", direct);
    await fixture.events("t3", plain("before", direct), third, plain("after", direct));
    await fixture.events("t4", plain("dm2", direct));
    assert.deepEqual(await jobs(fixture), ["$dm", "$mentioned", "$before"]);
    await fixture.events("t4-leave", plain("to-bob", direct), member("@bob:a.test", "leave", direct));
    assert.deepEqual(await jobs(fixture), ["$dm", "$mentioned", "$before"]);
    await fixture.events("t4-join", member("@bob:a.test", "join", direct));
    // So does one whose name no user may have, as long as it is there, whoever else of a similar name comes and goes.
    await fixture.events("t5", member("@bob:a.test", "leave", direct));
    const names = ["@eve b", `@${" ".repeat(200)}`, "@", "@eve\0"].map((name) => `${name}:evil.test`);
    for (const [index, name] of [...names, "@eve:evil_server", "@eve"].entries()) {
      const other = "@eve%20b:evil.test";
      const changes = [
        member(name, "join", direct),
        ...["join", "leave"].map((how) => member(other, how, direct)),
      ];
      await fixture.events(`t6-${index}`, ...changes);
      await fixture.events(`t7-${index}`, plain(`dm3-${index}`, direct));
      await fixture.events(`t8-${index}`, member(name, "leave", direct));
    }
    await fixture.events("t9", plain("dm4", direct));
    assert.deepEqual(await jobs(fixture), ["$dm", "$mentioned", "$before", "$dm4"]);
  });

  it("a reply to a ghost's answer, or a message in its thread, triggers [INT-6]", async (t) => {
    const fixture = await intakeFixture(t);
    await fixture.events("t1", question("q1"));
    const [claimed] = await fixture.claim({ now: Date.now() });
    assert.ok(claimed);
    await fixture.ledger.delegations.beginDispatch(claimed.lease, BUCKET, Date.now());
    const part = { eventType: "m.room.message", content: {} };
    const sends = await fixture.ledger.delegations.recordReply(
      claimed,
      { parts: [part], agentVersion: undefined },
      Date.now(),
    );
    assert.ok(sends !== "canceled");
    const sent = { sendId: sends[0]?.sendId ?? "", eventId: "$answer" as EventId };
    await fixture.ledger.delegations.finish(
      claimed.lease,
      { state: "completed", stage: "reply", reason: "answered", sent },
      Date.now(),
    );

    const relates = (id: string, relation: unknown) =>
      question(id, {}, { "m.mentions": undefined, "m.relates_to": relation });
    await fixture.events(
      "t2",
      relates("reply", { "m.in_reply_to": { event_id: "$answer" } }),
      relates("reply-to-other", { "m.in_reply_to": { event_id: "$something" } }),
      relates("thread", {
        rel_type: "m.thread",
        event_id: "$answer",
        is_falling_back: true,
        "m.in_reply_to": { event_id: "$x" },
      }),
      relates("thread-on-question", { rel_type: "m.thread", event_id: "$q1" }),
      relates("other-thread", {
        rel_type: "m.thread",
        event_id: "$z",
        is_falling_back: true,
        "m.in_reply_to": { event_id: "$answer" },
      }),
    );
    assert.deepEqual((await jobs(fixture)).slice(1), ["$reply", "$thread", "$thread-on-question"]);
    assert.deepEqual(
      await fixture.rows("SELECT thread_root FROM bridge_delegations WHERE matrix_event_id = '$thread'"),
      [{ thread_root: "$answer" }],
    );
  });

  const related = (id: string, relation: unknown, more: Record<string, unknown> = {}) =>
    question(id, {}, { "m.mentions": undefined, "m.relates_to": relation, ...more });

  it("a message in a thread triggers that came with the question which brought the agent there [INT-6]", async (t) => {
    const fixture = await intakeFixture(t, { allowedSenders: ["@alice:a.test"] });
    const inThread = (root: string) => ({ rel_type: "m.thread", event_id: root });
    await fixture.events(
      "t1",
      question("q1"),
      related("in-its-thread", inThread("$q1")),
      question("q2", {}, { "m.relates_to": inThread("$root") }),
      related("beside-it", inThread("$root")),
      related("elsewhere", inThread("$other")),
      question("eves", { sender: "@eve:a.test" }),
      related("in-eves", inThread("$eves")),
    );
    assert.deepEqual(await jobs(fixture), ["$q1", "$in-its-thread", "$q2", "$beside-it", "$eves"]);
  });

  it("a question that its asker cancels in the same transaction asks no agent, and is told of [DEL-6] [NOT-1]", async (t) => {
    const fixture = await intakeFixture(t, { agents: ["docs", "travel"] });
    const both = { "m.mentions": { user_ids: [ghost("docs"), ghost("travel")] } };
    const cancel = (id: string, relation: unknown) => related(id, relation, { body: "!cancel" });
    const thread = { rel_type: "m.thread", event_id: "$root" };
    await fixture.events(
      "t1",
      member(ghost("docs"), "join"),
      member(ghost("travel"), "join"),
      question("replied", {}, both),
      question("kept"),
      question("in-thread", {}, { "m.relates_to": thread }),
      cancel("c1", { "m.in_reply_to": { event_id: "$replied" } }),
      cancel("c2", thread),
      { ...cancel("c3", { "m.in_reply_to": { event_id: "$kept" } }), sender: "@bob:a.test" },
    );
    const ended = await fixture.rows(
      "SELECT matrix_event_id || ' ' || state AS what FROM bridge_delegations ORDER BY id",
    );
    assert.deepEqual(
      ended.map(({ what }) => what),
      ["$replied denied", "$replied denied", "$kept queued", "$in-thread denied"],
    );
    const recorded = await fixture.rows(
      "SELECT kind || ' ' || source_event_id || ' ' || reason AS what FROM bridge_notices ORDER BY what",
    );
    assert.deepEqual(
      recorded.map(({ what }) => what),
      [
        "cancel_refused $c3 nothing_to_cancel",
        "delegation_canceled $in-thread sender_canceled",
        ...["docs", "travel"].map(() => "delegation_canceled $replied sender_canceled"),
      ],
    );
  });

  it("a question to several agents is canceled for all of them, by a reply or in its thread, and no other one is [DEL-6]", async (t) => {
    const fixture = await intakeFixture(t, { agents: ["docs", "travel"] });
    const both = { "m.mentions": { user_ids: [ghost("docs"), ghost("travel")] } };
    const thread = { "m.relates_to": { rel_type: "m.thread", event_id: "$q1" } };
    await fixture.events("t1", question("q1", {}, both), question("q2", {}, { ...both, ...thread }));
    const states = async () =>
      (await fixture.rows("SELECT state FROM bridge_delegations ORDER BY id")).map(({ state }) => state);
    for (const [id, relation, expected] of [
      ["c1", thread, ["queued", "queued", "canceled", "canceled"]],
      ["c2", { "m.relates_to": { "m.in_reply_to": { event_id: "$q1" } } }, Array(4).fill("canceled")],
    ] as const) {
      await fixture.events(id, question(id, {}, { "m.mentions": undefined, body: "!cancel", ...relation }));
      assert.deepEqual(await states(), expected);
    }
  });

  it("a message is one of a direct room as that was when it came, whoever comes and goes in its transaction; an invited ghost does not count [INT-6]", async (t) => {
    const fixture = await intakeFixture(t, { agents: ["docs", "other"] });
    const direct = { room_id: "!dm" };
    const said = (id: string) => question(id, direct, { "m.mentions": undefined });
    const invited = { ...direct, sender: "@alice:a.test" };
    const bob = (how: string) => member("@bob:a.test", how, direct);
    const carol = member("@carol:a.test", "join", direct);
    await fixture.events(
      "t1",
      member(ghost("docs"), "invite", invited, { is_direct: true }),
      member(ghost("docs"), "join", direct),
      member("@alice:a.test", "join", direct),
    );
    await fixture.events("t2", bob("join"), said("to-bob"), bob("leave"), said("asked"), carol);
    await fixture.events("t3", member("@carol:a.test", "leave", direct));
    await fixture.events("t4", member(ghost("other"), "invite", { ...direct, sender: "@eve:evil.test" }));
    await fixture.events("t5", said("invited"), member(ghost("other"), "join", direct), said("to-two"));
    assert.deepEqual(await jobs(fixture), ["$asked", "$invited"]);
  });

  it("before a ghost has read who is in a direct room, messages of who invited it trigger, and nobody else's [INT-6]", async (t) => {
    const fixture = await intakeFixture(t);
    const direct = { room_id: "!dm" };
    const invitation = member(
      ghost("docs"),
      "invite",
      { ...direct, sender: "@alice:a.test" },
      { is_direct: true },
    );
    await fixture.events("t1", invitation, member(ghost("docs"), "join", direct));
    const others = { ...direct, sender: "@bob:a.test" };
    await fixture.events(
      "t2",
      question("dm", direct, { "m.mentions": undefined }),
      question("of-another", others, { "m.mentions": undefined }),
    );
    assert.deepEqual(await jobs(fixture), ["$dm"]);
  });

  it("an encrypted room gets one notice and no answers when encryption is refused [ENC-1]", async (t) => {
    const fixture = await intakeFixture(t);
    await fixture.events("t1", member(ghost("docs"), "join"), member("@alice:a.test", "join"));
    const state = {
      ...question("e"),
      type: "m.room.encryption",
      state_key: "",
      content: { algorithm: "m.megolm.v1.aes-sha2" },
    };
    await fixture.events("t2", state);
    const now = Date.now() + 1_000;
    const [settling] = await fixture.ledger.memberships.claim({ limit: 1, now, leaseUntil: now });
    const facts = { encrypted: true, members: ["@alice:a.test" as UserId, ghost("docs")] };
    await fixture.ledger.memberships.recordRoomFacts(settling ?? assert.fail(), facts, now);
    const encrypted = (id: string) => ({
      ...question(id),
      type: "m.room.encrypted",
      content: { ciphertext: CANARY },
    });
    for (let n = 0; n < 5; n++)
      assert.equal((await fixture.events(`t3-${n}`, encrypted(`x${n}`), question(`q${n}`))).status, 200);
    assert.deepEqual(await jobs(fixture), []);
    assert.deepEqual(await fixture.rows("SELECT kind, ghost_mxid FROM bridge_notices"), [
      { kind: "encrypted_room_refused", ghost_mxid: ghost("docs") },
    ]);
  });

  it("!agents requests one directory notice for each event, from one ghost of the room [NOT-1]", async (t) => {
    const fixture = await intakeFixture(t, { agents: ["docs", "other"] });
    await fixture.events("t1", member(ghost("other"), "join"), member(ghost("docs"), "join"));
    const command = question("cmd", {}, { body: " !agents ", "m.mentions": undefined });
    await fixture.events("t2", command);
    await fixture.events("t3", command, question("elsewhere", { room_id: "!s" }, { body: "!agents" }));
    assert.deepEqual(
      await fixture.rows("SELECT kind, ghost_mxid, source_event_id, asker_mxid FROM bridge_notices"),
      [
        {
          kind: "agent_directory",
          ghost_mxid: ghost("docs"),
          source_event_id: "$cmd",
          asker_mxid: "@alice:a.test",
        },
      ],
    );
  });

  it("!agents is answered by a ghost that is in the room, though another one is invited and does not join [NOT-1]", async (t) => {
    const fixture = await intakeFixture(t, { agents: ["docs", "absent"] });
    await fixture.events("t1", member(ghost("docs"), "join"), member(ghost("absent"), "invite"));
    await fixture.events("t2", question("cmd", {}, { body: "!agents" }));
    assert.deepEqual(await fixture.rows("SELECT kind, ghost_mxid FROM bridge_notices"), [
      { kind: "agent_directory", ghost_mxid: ghost("docs") },
    ]);
  });

  it("!agents of a partner's person is left to the partner's bridge where that has a ghost in the room [NOT-1]", async (t) => {
    const clock = new ManualClock(1_700_000_000_000);
    const fixture = await intakeFixture(t, {
      clock,
      allowedSenders: ["*:a.test", "*:b.test"],
      allowedServers: ["a.test", "b.test"],
    });
    const inRoom = (room: string) => ({ room_id: room });
    await fixture.events("t1", member(ghost("docs"), "join"), member(ghost("docs"), "join", inRoom("!s")));
    // A person whose name begins otherwise, and a ghost of the same name on another server, are none of the partner's.
    for (const user of ["@agent_docs:b.test", "@bob:b.test"])
      await fixture.events(user, member(user, "join"));
    for (const user of ["@agent_docs:c.test", "@bob:b.test"]) {
      await fixture.events(`s ${user}`, member(user, "join", inRoom("!s")));
    }
    const command = (name: string, sender: string, room = "!r") =>
      question(name, { sender, room_id: room }, { body: "!agents" });
    const asked = async () =>
      (await fixture.rows("SELECT source_event_id AS id FROM bridge_notices")).map(({ id }) => id);
    await fixture.events("t2", command("partners", "@bob:b.test"));
    assert.deepEqual(await asked(), []);
    await fixture.events("t3", command("own", "@alice:a.test"), command("alone", "@bob:b.test", "!s"));
    assert.deepEqual((await asked()).sort(), ["$alone", "$own"]);
    await fixture.events("t4", member("@agent_docs:b.test", "leave"));
    await clock.advance(60_000);
    await fixture.events("t5", command("after", "@bob:b.test"));
    assert.ok((await asked()).includes("$after"));
  });

  it("!cancel of what this bridge does not know is answered by one bridge where a partner's is in the room too [NOT-1]", async (t) => {
    const clock = new ManualClock(1_700_000_000_000);
    const both = { allowedSenders: ["*:a.test", "*:b.test"], allowedServers: ["a.test", "b.test"] };
    const fixture = await intakeFixture(t, { clock, ...both });
    const inRoom = (room: string) => ({ room_id: room });
    for (const room of ["!r", "!s", "!u"])
      await fixture.events(room, member(ghost("docs"), "join", inRoom(room)));
    await fixture.events("t2", member("@agent_docs:b.test", "join"), member("@bob:b.test", "join"));
    const reply = { "m.relates_to": { "m.in_reply_to": { event_id: "$of-the-partner" } } };
    const cancel = (name: string, sender: string, content: object = {}, room = "!r") =>
      question(name, { sender, room_id: room }, { body: "!cancel", ...content });
    await fixture.events(
      "t3",
      cancel("partners", "@bob:b.test"),
      cancel("partners-task", "@alice:a.test", reply),
      cancel("own", "@alice:a.test"),
      cancel("alone", "@bob:b.test", {}, "!s"),
      cancel("alone-reply", "@alice:a.test", reply, "!u"),
    );
    const said = await fixture.rows("SELECT source_event_id AS id, reason FROM bridge_notices ORDER BY 1");
    assert.deepEqual(
      said,
      ["$alone", "$alone-reply", "$own"].map((id) => ({ id, reason: "nothing_to_cancel" })),
    );
  });

  it("!help requests the help, and asks no agent [NOT-1]", async (t) => {
    const fixture = await intakeFixture(t);
    await fixture.events("t1", member(ghost("docs"), "join"));
    await fixture.events("t2", question("cmd", {}, { body: "!help" }));
    assert.deepEqual(await jobs(fixture), []);
    assert.deepEqual(await fixture.rows("SELECT kind, ghost_mxid FROM bridge_notices"), [
      { kind: "help", ghost_mxid: ghost("docs") },
    ]);
  });

  it("no event goes to an agent that is not addressed or not in the room [INT-6]", async (t) => {
    const fixture = await intakeFixture(t, { agents: ["docs", "other"] });
    await fixture.events("t1", member(ghost("docs"), "join"), member("@alice:a.test", "join"));
    await fixture.events("t2", question("q1"));
    const relates = (id: string, relation: unknown, changes = {}) =>
      question(id, changes, { "m.mentions": undefined, "m.relates_to": relation });
    await fixture.events(
      "t3",
      relates("between-us", { "m.in_reply_to": { event_id: "$q1" } }, { sender: "@bob:a.test" }),
      relates("elsewhere", { rel_type: "m.thread", event_id: "$q1" }, { room_id: "!s" }),
      question("absent", {}, { "m.mentions": { user_ids: [ghost("other")] } }),
    );
    assert.deepEqual(await jobs(fixture), ["$q1"]);
  });

  it("who may not ask brings no agent into a thread, where it would get what others say [INT-6]", async (t) => {
    const fixture = await intakeFixture(t, { allowedSenders: ["@alice:a.test", "@bob:a.test"] });
    const said = (id: string, root: string, sender = "@alice:a.test", content = { "m.mentions": {} }) =>
      question(id, { sender }, { ...content, "m.relates_to": { rel_type: "m.thread", event_id: root } });
    const asking = { "m.mentions": { user_ids: [ghost("docs")] } };
    await fixture.events("t1", question("refused", { sender: "@eve:a.test" }));
    await fixture.events("t2", said("refused-too", "$people", "@eve:a.test", asking));
    await fixture.events("t3", said("under-it", "$refused"), said("among-us", "$people"));
    assert.deepEqual(await jobs(fixture), ["$refused", "$refused-too"]);
    const ended = await fixture.rows("SELECT DISTINCT terminal_reason AS reason FROM bridge_delegations");
    assert.deepEqual(ended, [{ reason: "sender_policy_rejected" }]);
    await fixture.events("t4", said("asked", "$people", "@bob:a.test", asking));
    await fixture.events("t5", said("refused-again", "$people", "@eve:a.test", asking));
    await fixture.events("t6", said("follows", "$people"));
    assert.deepEqual((await jobs(fixture)).slice(2), ["$asked", "$refused-again", "$follows"]);
  });

  it("!agents is answered a bounded number of times, and not to a sender who may ask no agent [NOT-1]", async (t) => {
    const fixture = await intakeFixture(t);
    await fixture.events("t1", member(ghost("docs"), "join"));
    const command = (n: number, sender: string) => question(`c${n}`, { sender }, { body: "!agents" });
    await fixture.events("t2", ...Array.from({ length: 50 }, (_, n) => command(n, "@nobody:evil.test")));
    assert.deepEqual(await fixture.rows("SELECT 1 FROM bridge_notices"), []);
    await fixture.events("t3", ...Array.from({ length: 50 }, (_, n) => command(100 + n, "@alice:a.test")));
    assert.equal((await fixture.rows("SELECT 1 FROM bridge_notices")).length, 1);
  });
});
