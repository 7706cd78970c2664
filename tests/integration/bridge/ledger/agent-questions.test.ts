// Questions of agents and the answers to them as rows: what the conditions of their statements keep out.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type { Derived, NewAnswer, Posted } from "../../../../src/bridge/ledger/admission-types.ts";
import { createOperations } from "../../../../src/bridge/ledger/operator-commands.ts";
import { sha256 } from "../../../../src/domain/digest.ts";
import type { UserId } from "../../../../src/domain/identifiers.ts";
import {
  arrivals,
  BUCKET,
  envelope,
  event,
  ghost,
  job,
  ledgerFixture,
  PART,
  room,
  T0,
} from "../../../support/ledger.ts";

const NOTHING: Derived = { delegations: [], answers: [], cancels: [], envelopes: [], notices: [] };

/** A question of the agent that is recorded, and whose delegation is leased. */
async function setUp(t: TestContext) {
  const fixture = await ledgerFixture(t);
  const { delegations, admit, claimOne } = fixture;
  await admit([job("q1")]);
  const claimed = await claimOne();
  const { lease } = claimed;
  await delegations.beginDispatch(lease, BUCKET, T0);
  const question = { parts: [PART], options: [], key: "k", taskId: "t", asked: 0, until: T0 + 900_000 };
  const sends = await delegations.recordQuestion(
    claimed,
    { ...question, contextId: undefined, agentVersion: undefined },
    T0,
  );
  const [send] = sends === "canceled" ? [] : sends;
  assert.ok(send);
  /** A transaction with an event that means this. */
  const brings = (name: string, derived: Partial<Derived>, receivedAt: number = T0) =>
    admit([], {
      receivedAt,
      events: [{ room: room("r"), event: event(name) }],
      about: { rooms: [room("r")], related: [] },
      derive: () => ({ ...NOTHING, ...derived }),
    });
  const answer: NewAnswer = {
    ...{ delegation: lease.delegationId, source: event("q1"), ghost: ghost(), room: room("r") },
    ...{ threadRoot: undefined, event: event("answer"), text: "large" },
  };
  const cancel = { delegation: lease.delegationId, event: event("cancel") };
  return { ...fixture, lease, send, brings, answer, cancel };
}

describe("questions of agents in the ledger", () => {
  it("are due at once when their lease is given back, if an answer came meanwhile [DEL-6]", async (t) => {
    const { brings, answer, delegations, lease, claimOne } = await setUp(t);
    assert.equal((await brings("answer", { answers: [answer] })).answers, 1);
    await delegations.defer(lease, T0 + 30_000);
    const { resumedFrom, prompt } = await claimOne();
    assert.deepEqual([resumedFrom, prompt], ["dispatching", { text: "large" }]);
  });

  it("are posted without what was not posted of an earlier question when that was answered [DEL-6]", async (t) => {
    const { brings, answer, delegations, lease, claimOne } = await setUp(t);
    await brings("answer", { answers: [answer] });
    await delegations.defer(lease, T0);
    const claimed = await claimOne();
    const next = {
      parts: [PART],
      options: [],
      key: "k2",
      taskId: "t",
      asked: claimed.asked,
      until: T0 + 900_000,
    };
    const unknown = { contextId: undefined, agentVersion: undefined };
    const sends = await delegations.recordQuestion(claimed, { ...next, ...unknown }, T0);
    assert.ok(sends !== "canceled");
    assert.deepEqual(
      (await delegations.pendingSends(claimed.lease, "question")).map(({ sendId }) => sendId),
      sends.map(({ sendId }) => sendId),
    );
  });

  it("are due at once when their lease is given back, if they were canceled meanwhile [DEL-6]", async (t) => {
    const { brings, cancel, delegations, lease, claimOne } = await setUp(t);
    assert.deepEqual((await brings("cancel", { cancels: [cancel] })).canceled, [lease.delegationId]);
    await delegations.defer(lease, T0 + 30_000);
    assert.equal((await claimOne()).cancelRequested, true);
  });

  it("keep their wait while an encrypted event of the asker that came before its end waits for its key in the room, and for no other event [DEL-6] [ENC-5]", async (t) => {
    const { admit, delegations, lease, pool } = await setUp(t);
    const elsewhere = envelope("e1", { room: room("other") });
    await admit([], arrivals(elsewhere, envelope("e2", { sender: "@bob:a.test" as UserId }), envelope("e3")));
    const end = T0 + 900_000;
    await admit([], { ...arrivals(envelope("e4")), receivedAt: end + 1 });
    assert.equal(await delegations.endWait(lease, end), false);
    await createOperations(pool, 0).cancelEnvelope(event("e3"), end);
    assert.equal(await delegations.endWait(lease, end), true);
  });

  for (const [what, end] of [
    ["they are canceled", ({ brings, cancel }) => brings("cancel", { cancels: [cancel] })],
    ["their wait has ended", ({ delegations, lease }) => delegations.endWait(lease, T0 + 900_000)],
  ] satisfies [string, (fixture: Awaited<ReturnType<typeof setUp>>) => Promise<unknown>][]) {
    it(`take no answer once ${what}, and whoever answers is told [DEL-6] [NOT-1]`, async (t) => {
      const fixture = await setUp(t);
      const { brings, answer, rows } = fixture;
      await end(fixture);
      assert.equal((await brings("answer", { answers: [answer] })).answers, 0);
      const stored = await rows("SELECT prompt, answer_event_id FROM bridge_delegations");
      assert.deepEqual(stored, [{ prompt: null, answer_event_id: null }]);
      assert.deepEqual(await rows("SELECT kind, reason FROM bridge_notices"), [
        { kind: "answer_refused", reason: "already_ended" },
      ]);
    });
  }

  it("are neither answered nor canceled by a ciphertext that was sent before, in whatever sense [DEL-6] [ENC-9]", async (t) => {
    const { brings, answer, cancel, admit, rows } = await setUp(t);
    const [one, two] = [sha256("index one"), sha256("index two")];
    await admit([job("q2", { indexDigest: one })]);
    const replay = { ...answer, event: event("replay"), indexDigest: one };
    assert.equal((await brings("replay", { answers: [replay] })).answers, 0);
    assert.deepEqual(await rows("SELECT prompt FROM bridge_delegations WHERE matrix_event_id = '$q1'"), [
      { prompt: null },
    ]);
    assert.equal((await brings("answer", { answers: [{ ...answer, indexDigest: two }] })).answers, 1);
    assert.deepEqual((await brings("cancel", { cancels: [{ ...cancel, indexDigest: two }] })).canceled, []);
    assert.equal((await admit([job("q3", { indexDigest: two })])).refused.length, 1);
  });

  it("are answered by the first of the events of a transaction that have one ciphertext [DEL-6] [ENC-9]", async (t) => {
    const { answer, admit, rows } = await setUp(t);
    const indexDigest = sha256("index");
    const said = { ...answer, indexDigest };
    const again = job("q2", { indexDigest });
    const both = await admit([], {
      events: [{ room: room("r"), event: answer.event }, again],
      about: { rooms: [room("r")], related: [] },
      derive: () => ({ ...NOTHING, answers: [said], delegations: [again] }),
    });
    assert.deepEqual([both.answers, both.refused.length], [1, 1]);
    assert.deepEqual(await rows("SELECT matrix_event_id AS event FROM bridge_megolm_indices"), [
      { event: answer.event },
    ]);
  });

  it("get their event ID from their own room and ghost alone, and only once they were attempted [DEL-6]", async (t) => {
    const { send, admit, delegations, rows } = await setUp(t);
    const posted: Posted = {
      ...{
        transaction: send.transactionId,
        event: event("posted"),
        room: room("r"),
        ghost: ghost(),
        position: 0,
      },
    };
    const state = async (one: Posted) => {
      await admit([], { posted: [one] });
      return (await rows("SELECT state, event_id FROM bridge_sends"))[0];
    };
    const pending = { state: "pending", event_id: null };
    assert.deepEqual(await state(posted), pending, "it cannot have been sent yet");
    await delegations.recordAttempt(send.sendId, T0);
    assert.deepEqual(await state({ ...posted, room: room("other") }), pending);
    assert.deepEqual(await state({ ...posted, ghost: ghost("other") }), pending);
    assert.deepEqual(await state(posted), { state: "sent", event_id: "$posted" });
    assert.equal(
      await delegations.recordAttempt(send.sendId, T0),
      "$posted",
      "who is about to send it need not",
    );
  });

  it("wait for the homeserver until they are posted, then for the asker; the wait begins anew with each step [OPS-1]", async (t) => {
    const { pool, ledger, send, delegations, lease, claimOne, brings, answer } = await setUp(t);
    const operations = createOperations(pool, 600_000);
    const shown = async (now: number) => {
      const found = await operations.delegation(lease.delegationId, now);
      return [found?.waitsFor, found?.since];
    };
    await delegations.defer(lease, T0 + 30_000);
    assert.deepEqual(await shown(T0 + 1), ["the_homeserver", T0]);
    const posting = await claimOne({ now: T0 + 60_000 });
    const times = { now: T0 + 60_000, until: T0 + 960_000 };
    await delegations.recordAsked(posting.lease, send.sendId, event("sent"), times);
    await delegations.defer(posting.lease, T0 + 90_000);
    assert.deepEqual(await shown(T0 + 61_000), ["the_asker", T0 + 60_000]);
    await brings("answer", { answers: [answer] }, T0 + 80_000);
    await claimOne({ now: T0 + 80_000 });
    assert.deepEqual(await shown(T0 + 81_000), ["nothing", T0 + 80_000]);
    assert.equal((await ledger.waiting([]))?.oldestQuestionAt, T0 + 80_000);
    assert.deepEqual(
      (await operations.rooms()).map(({ since }) => since),
      [T0 + 80_000],
    );
  });
});
