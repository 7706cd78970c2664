// Files that people attach to a question: from the event, through the real intake and ledger, to the agent.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type { EventId, RoomId } from "../../../../src/domain/identifiers.ts";
import { ATTACHMENT_TYPES } from "../../../../src/rendered-files/agents-file.ts";
import { conversation, DOCS, lastSent } from "../../../support/conversation.ts";
import { databaseText } from "../../../support/database.ts";
import { type CardOptions, cardOf } from "../../../support/delegation.ts";
import { type DelegationSetUpOptions, delegationSuite } from "../../../support/delegation-suite.ts";
import { T0 } from "../../../support/ledger.ts";

const TEXT = Buffer.from("the log says: ahoy");
const PNG = Buffer.from("\x89PNG\r\n\x1a\n rest", "latin1");
const ALLOWED = { types: [...ATTACHMENT_TYPES], bytes: 100 };

const ALLOWED_BOTH = {
  attachments: ALLOWED,
  allowedServers: ["a.test", "b.test"],
  allowedSenders: ["*:a.test", "*:b.test"],
};

/** A file with a caption, as clients send it. */
function fileEvent(content: Record<string, unknown> = {}, name = "q1", relation?: object) {
  return {
    type: "m.room.message",
    ...{ event_id: `$${name}`, room_id: "!r", sender: "@alice:a.test", origin_server_ts: T0 },
    content: {
      ...{ msgtype: "m.file", body: `${DOCS}: what is this?`, filename: "ship.log" },
      ...{ info: { mimetype: "text/plain" }, url: "mxc://a.test/secretMediaId" },
      "m.mentions": { user_ids: [DOCS] },
      ...(relation !== undefined && { "m.relates_to": relation }),
      ...content,
    },
  };
}

describe("a file that came with a question", () => {
  const setUpDelegation = delegationSuite();
  async function setUp(t: TestContext, options: DelegationSetUpOptions = {}) {
    const made = await setUpDelegation(t, {
      ...options,
      harness: { entry: { attachments: ALLOWED }, ...options.harness },
    });
    const { harness, fixture } = made;
    const { directory, clock } = harness.deps;
    const downloads: number[] = [];
    const stored = (content: Uint8Array) => {
      harness.download = async (_ghost, _file, bytesMax) => {
        downloads.push(bytesMax);
        return { kind: "ok", value: content };
      };
    };
    stored(TEXT);
    const { events } = conversation({ ledger: fixture.ledger, directory, clock });
    /** How the question ended; its content is cleared then. */
    const ended = async (event = "$q1") => {
      let row: Record<string, unknown> | undefined;
      await harness.until(async () => {
        [row] = await fixture.rows(
          `SELECT d.state, d.terminal_stage AS stage, d.terminal_reason AS reason, d.prompt, n.kind AS notice
           FROM bridge_delegations d LEFT JOIN bridge_notices n ON n.source_event_id = d.matrix_event_id
           WHERE d.matrix_event_id = $1`,
          [event],
        );
        return row !== undefined && row["reason"] !== null;
      });
      const { prompt, ...outcome } = row ?? {};
      assert.equal(prompt, null, "the content is cleared");
      return outcome;
    };
    return { ...made, events, ended, stored, downloads };
  }

  const interfaces: readonly CardOptions[] = [
    { binding: "JSONRPC", version: "1.0", streaming: false },
    { binding: "JSONRPC", version: "1.0", streaming: true },
    { binding: "HTTP+JSON", version: "1.0", streaming: false },
    { binding: "JSONRPC", version: "0.3", streaming: false },
  ];
  for (const card of interfaces) {
    const how = `${card.version} ${card.binding}${card.streaming === true ? ", streamed" : ""}`;
    it(`goes to the agent with the caption, under its verified type (${how}) [DEL-6] [INT-6]`, async (t) => {
      const { agent, harness, events, ended, fixture } = await setUp(t, {
        streaming: card.streaming ?? false,
        card,
      });
      await events(fileEvent());
      const tables = await databaseText(async (query) => (await fixture.rows(query)) as never);
      const text = [...tables.values()].join("");
      for (const secret of ["secretMediaId", "ship.log", "what is this"]) {
        assert.ok(!text.includes(secret), `${secret} is sealed`);
      }
      harness.worker().start();
      assert.partialDeepStrictEqual(await ended(), { state: "completed", reason: "answered" });
      assert.deepEqual(agent.behaviour.prompts, ["what is this?"]);
      assert.deepEqual(agent.behaviour.files, [
        { name: "ship.log", mediaType: "text/plain", text: TEXT.toString() },
      ]);
    });
  }

  it("goes alone where it has no caption and the message is addressed [INT-6]", async (t) => {
    const { agent, harness, events, ended } = await setUp(t);
    await events(fileEvent({ body: "ship.log" }));
    harness.worker().start();
    await ended();
    assert.deepEqual(agent.behaviour.prompts, []);
    assert.equal(agent.behaviour.files.length, 1);
  });

  it("asks nobody where nobody is addressed [INT-6]", async (t) => {
    const { events } = await setUp(t);
    assert.equal((await events(fileEvent({ "m.mentions": {} }))).admitted, 0);
  });

  const REFUSED = { state: "denied", stage: "dispatch", notice: "delegation_failed" };
  const cases: readonly (readonly [string, string, DelegationSetUpOptions, Uint8Array, object?])[] = [
    ["agents.yaml allows none", "attachment_refused", { harness: { entry: {} } }, TEXT],
    ["its type by its bytes is not allowed", "attachment_refused", {}, Buffer.from([0, 1, 2])],
    [
      "agents.yaml allows other types",
      "attachment_refused",
      { harness: { entry: { attachments: { types: ["text/csv"], bytes: 100 } } } },
      TEXT,
    ],
    ["its reference is broken", "attachment_unreadable", {}, TEXT, { url: "mxc://a.test/../x" }],
    [
      "the card does not accept its type",
      "attachment_refused",
      {},
      PNG,
      { info: { mimetype: "text/plain" } },
    ],
  ];
  for (const [why, reason, options, content, said] of cases) {
    it(`ends the question with a notice, and without a call, when ${why} [DEL-6] [INT-6]`, async (t) => {
      const { agent, harness, events, ended, stored, limiterTokens } = await setUp(t, options);
      stored(content);
      await events(fileEvent({ ...said }));
      harness.worker().start();
      assert.deepEqual(await ended(), { ...REFUSED, reason });
      assert.deepEqual([agent.requests.length, await limiterTokens()], [0, undefined]);
    });
  }

  for (const [value, reason] of [
    ["too_large", "attachment_too_large"],
    ["damaged", "attachment_unreadable"],
  ] as const) {
    it(`a file that is ${value} ends the question with a notice [DEL-6]`, async (t) => {
      const { agent, harness, events, ended } = await setUp(t);
      harness.download = async () => ({ kind: "ok", value });
      await events(fileEvent());
      harness.worker().start();
      assert.deepEqual(await ended(), { ...REFUSED, reason });
      assert.equal(agent.requests.length, 0);
    });
  }

  it("is not requested when no type is both allowed and accepted [DEL-6]", async (t) => {
    const { harness, events, ended, downloads } = await setUp(t, {
      harness: { entry: { attachments: { types: ["image/png"], bytes: 100 } } },
    });
    await events(fileEvent());
    harness.worker().start();
    assert.partialDeepStrictEqual(await ended(), { reason: "attachment_refused" });
    assert.deepEqual(downloads, []);
  });

  for (const mode of ["image/png", "image/*", "*/*", "IMAGE/PNG; q=1"]) {
    it(`is accepted by the input mode ${mode} of a skill [DEL-6]`, async (t) => {
      const { agent, harness, events, ended, stored } = await setUp(t);
      const skill = { id: "see", name: "See", description: "sees", tags: [], inputModes: [mode] };
      harness.trust = {
        trust: "verified",
        card: { ...cardOf(agent.url), skills: [skill] },
        agentVersion: "1.0.0",
      };
      stored(PNG);
      await events(fileEvent({ info: { mimetype: "application/pdf" } }));
      harness.worker().start();
      assert.partialDeepStrictEqual(await ended(), { reason: "answered" });
      assert.equal(agent.behaviour.files[0]?.mediaType, "image/png");
    });
  }

  it("a file that is not allowed any more after the download is not sent [DEL-2]", async (t) => {
    for (const attachments of [undefined, { types: ALLOWED.types, bytes: TEXT.length - 1 }]) {
      const { agent, harness, events, ended } = await setUp(t);
      harness.download = async () => {
        const { target } = harness;
        if (target !== undefined) {
          const { attachments: _before, ...entry } = target.entry;
          harness.target = { ...target, entry: { ...entry, ...(attachments && { attachments }) } };
        }
        return { kind: "ok", value: TEXT };
      };
      await events(fileEvent());
      harness.worker().start();
      assert.partialDeepStrictEqual(await ended(), REFUSED);
      assert.equal(agent.requests.length, 0);
    }
  });

  it("stops with the question when trust is lost during the download [DEL-2]", async (t) => {
    const { agent, harness, events, ended } = await setUp(t);
    harness.download = async () => {
      harness.trust = { trust: "quarantined", reason: "agent_card_untrusted" };
      return { kind: "ok", value: TEXT };
    };
    await events(fileEvent());
    harness.worker().start();
    assert.partialDeepStrictEqual(await ended(), { state: "denied", reason: "agent_card_untrusted" });
    assert.equal(agent.requests.length, 0);
  });

  it("a file that the homeserver does not deliver is tried again, until the dispatch deadline [DEL-6]", async (t) => {
    const { agent, harness, events, ended, stored } = await setUp(t);
    const away = {
      ...({ kind: "retry", cause: "server_error", afterMs: 1_000, errcode: undefined } as const),
    };
    harness.download = async () => away;
    await events(fileEvent());
    harness.worker().start();
    await harness.until(() => harness.metrics.count("deferred:attachment_unavailable") === 3);
    stored(TEXT);
    assert.partialDeepStrictEqual(await ended(), { reason: "answered" });
    assert.equal(agent.behaviour.files.length, 1);

    harness.download = async () => away;
    await events(fileEvent({}, "q2"));
    assert.deepEqual(await ended("$q2"), {
      ...{
        state: "failed",
        stage: "dispatch",
        reason: "attachment_unavailable",
        notice: "delegation_failed",
      },
    });
    assert.equal(agent.behaviour.files.length, 1);
  });

  it("a file that does not come keeps no slot from questions, nor from files of another server's users [DEL-7]", async (t) => {
    const { harness, events, ended } = await setUp(t, { harness: { entry: { ...ALLOWED_BOTH } } });
    let hanging = 0;
    harness.download = async (_ghost, { mediaId }, _bytesMax, signal) => {
      if (mediaId !== "slow") return { kind: "ok", value: TEXT };
      hanging += 1;
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
      return { kind: "retry", cause: "stopped", afterMs: 0, errcode: undefined };
    };
    const slow = (index: number) => ({
      ...fileEvent({ url: "mxc://b.test/slow" }, `slow${index}`),
      ...{ room_id: `!b${index}`, sender: `@mallory${index}:b.test` },
    });
    await events(...Array.from({ length: 40 }, (_, index) => slow(index)));
    const worker = harness.worker("one", { concurrency: 32, agentConcurrency: 8 });
    worker.start();
    await harness.until(() => harness.metrics.count("deferred:attachment_unavailable") === 38, 0);
    await events(fileEvent({ msgtype: "m.text", body: "quick?" }), fileEvent({}, "q2"));
    worker.wake();
    assert.partialDeepStrictEqual(await ended("$q1"), { reason: "answered" });
    assert.partialDeepStrictEqual(await ended("$q2"), { reason: "answered" });
    assert.equal(hanging, 2, "a quarter of the agent's share");
  });

  it("is repeated as it was, under the same message ID, when the agent's answer was lost [DEL-7]", async (t) => {
    const { agent, harness, events, ended } = await setUp(t, { dedupe: true });
    agent.fault("send", { kind: "accept_then_drop" });
    await events(fileEvent());
    harness.worker().start();
    assert.partialDeepStrictEqual(await ended(), { reason: "answered" });
    const [first, second] = agent.requestsOf("send");
    assert.equal(first?.messageId, second?.messageId);
    assert.equal(agent.tasksOf(first?.messageId ?? ""), 1);
    assert.deepEqual(agent.bodies[0], agent.bodies[1]);
  });

  for (const [method, when, times] of [
    ["claim", "after", 1],
    ["beginDispatch", "before", 2],
    ["beginDispatch", "after", 2],
    ["recordAccepted", "before", 1],
  ] as const) {
    it(`goes to the agent once when the process is killed ${when} ${method} [DEL-6] [DEL-7]`, async (t) => {
      const { agent, harness, events, ended, downloads } = await setUp(t, { lists: true });
      await events(fileEvent());
      const first = harness.mortal("first");
      const isKilled = first.killAt(method, when);
      first.worker.start();
      await harness.until(isKilled);
      harness.worker("second").start();
      assert.partialDeepStrictEqual(await ended(), { reason: "answered" });
      assert.deepEqual(agent.behaviour.prompts, ["what is this?"]);
      assert.equal(agent.behaviour.files.length, 1);
      assert.equal(downloads.length, times);
    });
  }

  it("may come back with each view of its task, beside an answer as large as one may be [DEL-7]", async (t) => {
    const limits = { answerBytes: 2_000 };
    for (const fault of [{ kind: "accept_then_drop" }, { kind: "cut", afterEvents: 1 }] as const) {
      const { agent, harness, events, ended, stored } = await setUp(t, {
        streaming: true,
        harness: { limits, entry: { attachments: { ...ALLOWED, bytes: 4_000 } } },
      });
      stored(Buffer.alloc(4_000, "x"));
      agent.behaviour.plan = { kind: "slow", text: "the answer" };
      agent.fault("stream", fault);
      await events(fileEvent());
      harness.worker().start();
      await harness.until(() => agent.requestsOf("subscribe").length === 1);
      agent.behaviour.releaseAll();
      assert.partialDeepStrictEqual(await ended(), { reason: "answered" });
    }
  });

  it("is not asked about any more when its event is redacted during the download [INT-6]", async (t) => {
    const { agent, harness, events, ended, fixture } = await setUp(t);
    harness.download = async (_ghost, _file, _bytesMax, signal) => {
      await fixture.admit([], { redacted: [{ room: "!r" as RoomId, event: "$q1" as EventId }] });
      await harness.deps.clock.sleep(60_000, signal).catch(() => undefined);
      return { kind: "ok", value: TEXT };
    };
    await events(fileEvent());
    harness.worker().start();
    assert.deepEqual(await ended(), {
      ...{ state: "canceled", stage: "dispatch", reason: "source_redacted", notice: null },
    });
    assert.equal(agent.requests.length, 0);
  });

  for (const [how, caption, prompts] of [
    ["with a caption", "here it is", ["what?", "here it is"]],
    ["alone", "ship.log", ["what?"]],
  ] as const) {
    it(`answers a question of the agent ${how} [DEL-6]`, async (t) => {
      const { agent, harness, events, ended, fixture } = await setUp(t);
      agent.behaviour.plan = { kind: "input_required", questions: ["Which log?"] };
      await events(fileEvent({ msgtype: "m.text", body: "what?" }));
      const worker = harness.worker();
      worker.start();
      await harness.until(async () => {
        const sent = await fixture.rows("SELECT 1 FROM bridge_sends WHERE event_id IS NOT NULL");
        return sent.length === 1;
      });
      const relation = { "m.in_reply_to": { event_id: await lastSent(fixture, "question") } };
      const { answers } = await events(fileEvent({ body: caption, "m.mentions": {} }, "a", relation));
      assert.equal(answers, 1);
      worker.wake();
      assert.partialDeepStrictEqual(await ended(), { reason: "answered" });
      assert.deepEqual(agent.behaviour.prompts, prompts);
      assert.equal(agent.behaviour.files.length, 1);
    });
  }

  it("a file that may not answer a question of the agent ends its task, and the asker is told [DEL-6]", async (t) => {
    const { agent, harness, events, ended, fixture, stored } = await setUp(t);
    agent.behaviour.plan = { kind: "input_required", questions: ["Which log?"] };
    await events(fileEvent({ msgtype: "m.text", body: "what?" }));
    const worker = harness.worker();
    worker.start();
    await harness.until(async () => {
      const sent = await fixture.rows("SELECT 1 FROM bridge_sends WHERE event_id IS NOT NULL");
      return sent.length === 1;
    });
    stored(PNG);
    const relation = { "m.in_reply_to": { event_id: await lastSent(fixture, "question") } };
    await events(fileEvent({ "m.mentions": {} }, "a", relation));
    worker.wake();
    assert.deepEqual(await ended(), {
      ...{ state: "failed", stage: "dispatch", reason: "attachment_refused", notice: "delegation_failed" },
    });
    assert.equal(agent.behaviour.canceled.length, 1);
  });
});
