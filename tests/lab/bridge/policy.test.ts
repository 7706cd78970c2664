// What an operator decides in agents.yaml holds from that moment on, for questions that wait too; what a
// partner's person may not ask is refused where that person waits; and a cut between the homeservers is
// nothing that the bridge minds.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, describe, it } from "node:test";
import type * as z from "zod";
import { roomOf } from "../../../lab/seed/seed-file.ts";
import type { AgentCardAudit, DelegationAudit } from "../../../src/bridge/audit/records.ts";
import type { RoomId } from "../../../src/domain/identifiers.ts";
import { assertNoTrace, type Question, Questions, timeline } from "../../support/lab-questions.ts";
import { type AgentEntries, eventually, LabSession } from "../../support/lab-session.ts";

const lab = await LabSession.start();
after(() => lab.end());
const questions = new Questions(lab);
await questions.plant();

/** The name under which org B's bridge knows org A's agent. */
const AGENT = "org-a-docs-qa";
const GHOST = questions.ghostOf("org-b");

function entryOf(agents: AgentEntries): Record<string, unknown> {
  const entry = agents[AGENT];
  assert.ok(entry !== undefined);
  return entry;
}

type Audit = z.output<typeof AgentCardAudit> | z.output<typeof DelegationAudit>;

function auditOf(organisation: "org-a" | "org-b"): Audit[] {
  const text = readFileSync(lab.lab.paths.organisation(organisation).auditFile, "utf8");
  return text.split("\n").flatMap((line) => (line === "" ? [] : [JSON.parse(line) as Audit]));
}

/** What was recorded of the trust in the agent's card, oldest first. */
function trustAudit(): string[] {
  return auditOf("org-b").flatMap((record) =>
    record.schema === "svc.agent_card.v1" && record.target.ghost === GHOST ? [record.reason] : [],
  );
}

async function limiter(): Promise<unknown[]> {
  return await lab.rows(
    "org-b",
    "SELECT bucket, tokens, refilled_at::text FROM bridge_limiter ORDER BY bucket",
  );
}

/** Of several questions in one room, one notice was said, by the first of them. */
async function onlyNotice(asked: readonly Question[], notice: RegExp): Promise<void> {
  const [first] = asked;
  assert.ok(first !== undefined);
  const said = await eventually("the notice is in the room", async () => {
    const notices = await questions.noticesIn(first);
    return notices.length > 0 && notices;
  });
  assert.equal(said.length, 1);
  assert.match(said[0] ?? "", notice);
  for (const question of asked) assert.deepEqual(await questions.repliesTo(question), []);
}

describe("policy of agents.yaml in force", () => {
  it("waiting questions end agent_card_untrusted, without a limiter token, when the pin is removed [AGT-1]", async (t) => {
    const rooms = await questions.rooms(3, "org-b");
    await lab.stop(t, "org-a/gateway");
    const heads = await questions.ask(rooms, "org-b");
    await questions.until("the first of each room was tried", heads, ({ attempts }) => attempts > 0);
    const behind = await questions.ask([...rooms, ...rooms], "org-b");
    await questions.until("the others wait", behind, ({ state }) => state === "queued");
    const spent = await limiter();

    const restore = lab.editAgents(t, "org-b", (agents) => {
      delete entryOf(agents)["cardIdentity"];
    });
    for (const row of await questions.ended([...heads, ...behind])) {
      assert.deepEqual(
        [row.state, row.terminal_stage, row.terminal_reason],
        ["denied", "agent_card", "agent_card_untrusted"],
      );
    }
    const records = await eventually("each is audited", async () => {
      const found = auditOf("org-b").flatMap((record) =>
        record.schema === "svc.delegation.v1" && behind.some(({ event }) => event === record.event_id)
          ? [record]
          : [],
      );
      return found.length >= behind.length && found;
    });
    assert.equal(records.length, behind.length);
    for (const { a2a_attempted, terminal_reason } of records) {
      assert.deepEqual([a2a_attempted, terminal_reason], [false, "agent_card_untrusted"]);
    }
    assert.deepEqual(await limiter(), spent);
    for (const room of rooms) {
      const inRoom = [...heads, ...behind].filter((question) => question.room === room);
      await onlyNotice(inRoom, /stopped working on this question.*not verified/);
    }
    await eventually(
      "the loss of trust is audited",
      async () => trustAudit().at(-1) === "agent_card_untrusted",
    );

    await lab.start("org-a/gateway");
    restore();
    await eventually("trust is audited again", async () => trustAudit().at(-1) === "agent_card_verified");
    await questions.answeredOnce(await questions.ask(rooms, "org-b"));
  });

  it("emptying allowedSenders revokes the pin at once [AGT-1]", async (t) => {
    const rooms = await questions.rooms(1, "org-b");
    const spent = await limiter();
    const restore = lab.editAgents(t, "org-b", (agents) => {
      entryOf(agents)["allowedSenders"] = [];
    });
    const asked = await questions.ask([...rooms, ...rooms, ...rooms], "org-b");
    for (const row of await questions.ended(asked)) {
      assert.deepEqual([row.state, row.terminal_reason], ["denied", "agent_card_untrusted"]);
      assert.equal(row.a2a_attempted, false);
    }
    assert.deepEqual(await limiter(), spent);
    await onlyNotice(asked, /stopped working on this question.*not verified/);
    restore();
    await eventually("trust is audited again", async () => trustAudit().at(-1) === "agent_card_verified");
    await questions.answeredOnce(await questions.ask([...rooms, ...rooms, ...rooms], "org-b"));
  });

  it("a broken agents.yaml is logged with its line, and the last good one stays in force [AGT-1]", async (t) => {
    const rooms = await questions.rooms(3, "org-b");
    const rejected = () => lab.metric("org-b", "drawbridge_agents_file_rejected_total");
    const before = await rejected();
    const good = readFileSync(lab.agentsFile("org-b"), "utf8");
    const lines = good.split("\n").length;
    const restore = lab.replaceAgents(t, "org-b", `${good}surprise: true\n`);
    await eventually("the file is refused", async () => (await rejected()) > before);
    await questions.answeredOnce(await questions.ask(rooms, "org-b"));
    assert.equal(await rejected(), before + 1);
    const logged = readFileSync(lab.lab.paths.organisation("org-b").bridgeLog, "utf8")
      .split("\n")
      .filter((line) => line.includes("agents_file_rejected"));
    assert.equal(logged.length, 1);
    assert.match(logged[0] ?? "", new RegExp(`"line":${lines}\\b`));
    restore();
    await questions.answeredOnce(await questions.ask(rooms, "org-b"));
  });

  it("questions beyond the agent's rate are refused before any call, with one notice [DEL-2]", async (t) => {
    const rooms = await questions.rooms(1, "org-b");
    lab.editAgents(t, "org-b", (agents) => {
      entryOf(agents)["rate"] = { perMinute: 0.001, burst: 1 };
    });
    const [first] = await questions.ask(rooms, "org-b");
    assert.ok(first !== undefined);
    await questions.answeredOnce([first]);
    const refused = await questions.ask([...rooms, ...rooms], "org-b");
    for (const row of await questions.ended(refused)) {
      assert.deepEqual(
        [row.state, row.terminal_stage, row.terminal_reason],
        ["denied", "limiter", "rate_limited"],
      );
      assert.equal(row.a2a_attempted, false);
    }
    await onlyNotice(refused, /did not pass this question on: there are too many/);
  });

  it("a partner's user who may not ask is refused with one notice, and others are answered [DEL-2]", async (t) => {
    const room = roomOf(lab.seed, "org-b")?.roomId as RoomId;
    const stranger = questions.personOf("org-a");
    const { serverName } = lab.status.organisations["org-b"];
    const restore = lab.editAgents(t, "org-b", (agents) => {
      entryOf(agents)["allowedSenders"] = [`*:${serverName}`];
    });
    const refused = await questions.ask([room, room, room], "org-b", { asker: stranger });
    for (const row of await questions.ended(refused)) {
      assert.deepEqual(
        [row.state, row.terminal_stage, row.terminal_reason],
        ["denied", "policy", "sender_policy_rejected"],
      );
      assert.equal(row.a2a_attempted, false);
    }
    await questions.answeredOnce(await questions.ask([room], "org-b"));
    // Read at the homeserver of the one who waits.
    await onlyNotice(refused, /did not pass this question on.*not among those who may ask/);

    restore();
    const answered = await questions.ask([room], "org-b", { asker: stranger });
    await questions.ended(answered);
    await eventually("the answer has come over federation", async () => {
      return (await questions.repliesTo(answered[0] as Question)).length > 0;
    });
    await questions.answeredOnce(answered);
  });

  it("an answer reaches the partner once when the link, cut meanwhile, is restored [DEL-4]", async (t) => {
    const room = roomOf(lab.seed, "org-b")?.roomId as RoomId;
    const partner = questions.personOf("org-a");
    const heal = await lab.cutLink(t);
    const asked = await questions.ask([room, room, room], "org-b");
    const rows = await questions.answeredOnce(asked);
    const isAboutThem = ({ event_id }: { event_id: string }) =>
      rows.some((row) => row.reply_event_id === event_id || row.matrix_event_id === event_id);
    assert.deepEqual((await timeline(partner, room)).filter(isAboutThem), []);
    await heal();
    await eventually("all of it is in the partner's view", async () => {
      return (await timeline(partner, room)).filter(isAboutThem).length === 2 * asked.length;
    });
    for (const question of asked) {
      assert.equal((await questions.repliesTo({ ...question, asker: partner })).length, 1);
    }
  });

  it("refusals by trust, policy and rate leave no trace of the questions [AUD-2]", async () => {
    await assertNoTrace(lab, questions);
  });
});
