// A process is killed at named instants of a conversation, and another one goes on: nothing is lost or done twice.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, it, type TestContext } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import type { PendingSend } from "../../src/bridge/ledger/replies.ts";
import { TRANSACTION_KEY } from "../../src/bridge/ledger/transaction-ids.ts";
import { systemClock } from "../../src/domain/clock.ts";
import { namedTarget } from "../support/agents.ts";
import { conversation, DOCS, lastSent } from "../support/conversation.ts";
import type { ConversationProcess } from "../support/conversation-process.ts";
import { FAILPOINTS, type FailpointName } from "../support/failpoints.ts";
import { startFaultAgent } from "../support/fault-agent.ts";
import { ledgerFixture } from "../support/ledger.ts";
import { ROOT, type Running, start } from "../support/temporary.ts";

const PROGRAM = `${ROOT}tests/support/conversation-process.ts`;
const PATIENCE_MS = 30_000;

/** What a homeserver does with transaction IDs: a repetition gets the event of the first request. */
async function startHomeserver(t: TestContext) {
  const events = new Map<string, { readonly event: string; readonly send: PendingSend }>();
  let requests = 0;
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += String(chunk);
    const send = JSON.parse(body) as PendingSend;
    requests += 1;
    const known = events.get(send.transactionId) ?? { event: `$event${events.size + 1}`, send };
    events.set(send.transactionId, known);
    response.end(known.event);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    /** The events in the room, in order. */
    events: () => [...events.values()].map(({ event, send }) => ({ event, ...send })),
    bodies: () => [...events.values()].map(({ send }) => String(send.content["body"]).split("\n")[0]),
    requests: () => requests,
  };
}

async function setUp(t: TestContext, dedupe = false) {
  // Before the database looks for connections that were left open.
  const running: Running[] = [];
  t.after(async () => {
    for (const { child, finished } of running) {
      child.kill("SIGKILL");
      await finished;
    }
  });
  const fixture = await ledgerFixture(t);
  const agent = await startFaultAgent(t, { dedupe });
  const homeserver = await startHomeserver(t);
  agent.behaviour.plan = { kind: "asks", questions: ["Which size?"] };
  const target = namedTarget("docs");
  const person = conversation({
    ledger: fixture.ledger,
    directory: {
      current: async () => ({ byGhost: new Map([[target.ghost, target]]), partnerGhosts: [], revision: 1 }),
    },
    clock: systemClock,
  });
  await person.say("q1", "what?", { mentions: [DOCS] });
  const process = (more: Partial<ConversationProcess> = {}) => {
    const options: ConversationProcess = {
      databaseUrl: fixture.url,
      agentUrl: agent.url,
      dedupes: dedupe,
      homeserverUrl: homeserver.url,
      ...more,
    };
    const started = start(globalThis.process.execPath, [PROGRAM, JSON.stringify(options)]);
    running.push(started);
    return started;
  };
  const row = async () => (await fixture.rows("SELECT * FROM bridge_delegations"))[0] ?? {};
  const until = async (what: string, holds: () => boolean | Promise<boolean>) => {
    for (const end = Date.now() + PATIENCE_MS; Date.now() < end; await pause(20)) if (await holds()) return;
    throw new Error(`${what} did not come about: ${JSON.stringify(await row())}`);
  };
  return {
    ...person,
    fixture,
    agent,
    homeserver,
    process,
    until,
    row,
    /** Runs a process to the failpoint. */
    killedAt: async (name: FailpointName, more: Partial<ConversationProcess> = {}) => {
      const { signal, stderr } = await process({ failpoint: FAILPOINTS[name], ...more }).finished;
      assert.deepEqual([signal, stderr], ["SIGKILL", ""]);
    },
    asked: () =>
      until("the question", async () => {
        const [found] = await fixture.rows(
          "SELECT 1 FROM bridge_sends s JOIN bridge_delegations d ON d.id = s.delegation_id WHERE s.event_id IS NOT NULL AND d.lease_holder IS NULL",
        );
        return found !== undefined;
      }),
    ended: async (reason: string) => {
      await until("the end", async () => (await row())["terminal_at"] !== null);
      const { terminal_reason, prompt, options } = await row();
      assert.deepEqual([terminal_reason, prompt, options], [reason, null, null]);
      assert.deepEqual(await fixture.rows("SELECT 1 FROM bridge_sends WHERE content IS NOT NULL"), []);
    },
  };
}

describe("a conversation whose process is killed", () => {
  it("at question_accepted_pre_record has its question once, and an answer that came meanwhile counts [DEL-6]", async (t) => {
    const { events, say, killedAt, process, homeserver, ended, agent } = await setUp(t);
    await killedAt("question_accepted_pre_record");
    const [question] = homeserver.events();
    assert.ok(question);
    // The homeserver gives the bridge its own event back, before what people answer.
    await events({
      type: "m.room.message",
      event_id: question.event,
      room_id: question.roomId,
      sender: question.ghost,
      origin_server_ts: 1,
      content: { ...question.content, [TRANSACTION_KEY]: question.transactionId },
    });
    assert.equal((await say("answer", "large", { replyTo: question.event })).answers, 1);
    process();
    await ended("answered");
    assert.deepEqual(homeserver.bodies(), ["Which size?", "large"]);
    assert.equal(agent.behaviour.started.length, 2);
  });

  it("at question_accepted_pre_record sends it again under the same transaction ID while nobody answers [DEL-6]", async (t) => {
    const { say, killedAt, process, homeserver, ended, asked, fixture } = await setUp(t);
    await killedAt("question_accepted_pre_record");
    process();
    await asked();
    assert.deepEqual([homeserver.bodies(), homeserver.requests()], [["Which size?"], 2]);
    await say("answer", "large", { replyTo: await lastSent(fixture, "question") });
    await ended("answered");
  });

  for (const dedupe of [false, true]) {
    it(`at continuation_accepted_pre_record hands the answer over once (the agent ${dedupe ? "dedupes" : "shows its history"}) [DEL-6]`, async (t) => {
      const { say, killedAt, process, homeserver, ended, asked, agent, fixture } = await setUp(t, dedupe);
      const killed = killedAt("continuation_accepted_pre_record");
      await asked();
      await say("answer", "large", { replyTo: await lastSent(fixture, "question") });
      await killed;
      process();
      await ended("answered");
      assert.deepEqual(homeserver.bodies(), ["Which size?", "large"]);
      assert.equal(agent.behaviour.started.length, 2);
      assert.equal(new Set(agent.behaviour.addressed.map(({ contextId }) => contextId)).size, 1);
    });
  }

  it("at control_intent_committed_pre_claim is canceled once by another process [DEL-6]", async (t) => {
    const { killedAt, process, ended, asked, agent, fixture } = await setUp(t);
    const first = process();
    await asked();
    first.child.kill("SIGKILL");
    await first.finished;
    const content = {
      msgtype: "m.text",
      body: "!cancel",
      "m.relates_to": { "m.in_reply_to": { event_id: await lastSent(fixture, "question") } },
    };
    const cancel = {
      type: "m.room.message",
      event_id: "$cancel",
      room_id: "!r",
      sender: "@alice:a.test",
      origin_server_ts: 1,
      content,
    };
    await killedAt("control_intent_committed_pre_claim", { admit: [cancel] });
    assert.equal(agent.behaviour.canceled.length, 0);
    // The homeserver repeats what was not acknowledged.
    process({ admit: [cancel] });
    await ended("sender_canceled");
    assert.equal(agent.behaviour.canceled.length, 1);
    assert.deepEqual(await fixture.rows("SELECT kind FROM bridge_notices"), [
      { kind: "delegation_canceled" },
    ]);
  });

  it("at cancel_accepted_pre_record ends canceled, with one notice and nothing in the room [DEL-6]", async (t) => {
    const { say, killedAt, process, ended, asked, agent, homeserver, fixture } = await setUp(t);
    const killed = killedAt("cancel_accepted_pre_record");
    await asked();
    await say("c", "!cancel", { replyTo: await lastSent(fixture, "question") });
    await killed;
    assert.equal(agent.behaviour.canceled.length, 1);
    process();
    await ended("sender_canceled");
    assert.deepEqual(homeserver.bodies(), ["Which size?"]);
    assert.deepEqual(await fixture.rows("SELECT kind FROM bridge_notices"), [
      { kind: "delegation_canceled" },
    ]);
    assert.equal(agent.behaviour.started.length, 1);
  });

  it("at long_task_polling is polled by another process, and answered once [DEL-6]", async (t) => {
    const { killedAt, process, ended, agent, homeserver, until } = await setUp(t);
    agent.behaviour.plan = { kind: "slow", text: "at last" };
    await killedAt("long_task_polling");
    const polls = agent.seenOf("get").length;
    process();
    await until("a poll", () => agent.seenOf("get").length > polls);
    agent.behaviour.releaseAll();
    await ended("answered");
    assert.deepEqual(homeserver.bodies(), ["at last"]);
    assert.equal(agent.behaviour.started.length, 1);
  });
});
