// Encrypted answers to a question of an agent, and messages near it, whose keys come late.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import type { EventId, RoomId } from "../../../../src/domain/identifiers.ts";
import { sealed } from "../../../support/fake-devices.ts";
import { question } from "../../../support/intake.ts";
import { BUCKET, PART } from "../../../support/ledger.ts";
import { type Raw, setUp } from "./envelope-worker.ts";

/** The relation stands outside the ciphertext, as clients write it. */
const related = (id: string, relation: Raw, session = "session-1") => {
  const event = sealed(id, {}, { "m.mentions": undefined, "m.relates_to": relation }, session);
  return { ...event, content: { ...event.content, "m.relates_to": relation } };
};
const IN_THREAD = { rel_type: "m.thread", event_id: "$root", is_falling_back: true };
const reply = (id: string, session?: string) =>
  related(id, { "m.in_reply_to": { event_id: "$asked" } }, session);

/** A question in a thread, whose agent asks something when `ask` is called. */
async function asking(t: TestContext) {
  const bridge = await setUp(t);
  const { clock, delegations, claimOne, devices, worker, rows } = bridge;
  await bridge.bring(question("q", {}, { "m.relates_to": IN_THREAD }));
  devices.sessions.add("session-1");
  const ask = async (event = "$asked") => {
    const now = clock.now();
    const claimed = await claimOne({ now });
    await delegations.beginDispatch(claimed.lease, BUCKET, now);
    const until = now + 900_000;
    const asked = { parts: [PART], options: [], key: event, taskId: "t", asked: claimed.asked, until };
    const unknown = { contextId: undefined, agentVersion: undefined };
    const sends = await delegations.recordQuestion(claimed, { ...asked, ...unknown }, now);
    assert.ok(sends !== "canceled");
    const [send] = sends;
    await delegations.recordAttempt(send?.sendId ?? "", now);
    await delegations.recordAsked(claimed.lease, send?.sendId ?? "", event as EventId, { now, until });
    await delegations.defer(claimed.lease, until);
  };
  const keyCame = async (session: string) => {
    devices.sessions.add(session);
    await worker.keysCame(["!r" as RoomId]);
    await bridge.pass(10_000);
  };
  /** The answers that were recorded, and what became a question of its own. */
  const recorded = async () =>
    (
      await rows(
        "SELECT COALESCE(answer_event_id, matrix_event_id) AS event FROM bridge_delegations ORDER BY room_seq",
      )
    ).map(({ event }) => event);
  return { ...bridge, ask, keyCame, recorded };
}

describe("answers to an agent in encrypted rooms", () => {
  for (const together of [false, true]) {
    const how = together ? "in one transaction" : "one after the other";
    it(`count in their order, whichever key comes first, when they come ${how} [DEL-6] [ENC-10]`, async (t) => {
      const bridge = await asking(t);
      await bridge.ask();
      const answers = [reply("first", "session-2"), reply("second"), reply("third", "session-3")];
      if (together) await bridge.bring(...answers);
      else for (const answer of answers) await bridge.bring(answer);
      await bridge.keyCame("session-3");
      assert.deepEqual(await bridge.recorded(), ["$q"]);
      await bridge.keyCame("session-2");
      assert.deepEqual(await bridge.recorded(), ["$first", "$second", "$third"]);
    });
  }

  it("are no messages of a thread that came before the question, though they are read after it [DEL-6] [ENC-5]", async (t) => {
    const bridge = await asking(t);
    await bridge.bring(related("before", IN_THREAD, "session-2"));
    await bridge.pass(2_000);
    await bridge.ask();
    await bridge.keyCame("session-2");
    assert.deepEqual(await bridge.recorded(), ["$q", "$before"]);
    await bridge.bring(related("answer", IN_THREAD, "session-3"));
    await bridge.keyCame("session-3");
    assert.deepEqual(await bridge.recorded(), ["$answer", "$before"]);
  });

  it("are told apart from an earlier one that comes once more in the same transaction [INT-2] [DEL-6]", async (t) => {
    const bridge = await asking(t);
    const answer = (id: string, to: string) =>
      question(id, {}, { "m.mentions": undefined, "m.relates_to": { "m.in_reply_to": { event_id: to } } });
    await bridge.ask("$one");
    await bridge.bring(answer("first", "$one"));
    await bridge.ask("$two");
    await bridge.bring(answer("first", "$one"), answer("second", "$two"));
    assert.deepEqual(await bridge.recorded(), ["$second"]);
  });

  it("wait a minute for the key of an earlier one [DEL-6] [ENC-10]", async (t) => {
    const bridge = await asking(t);
    await bridge.ask();
    await bridge.bring(reply("first", "session-2"));
    await bridge.bring(reply("second"));
    await bridge.pass(50_000, 5_000);
    assert.deepEqual(await bridge.recorded(), ["$q"]);
    await bridge.pass(20_000, 5_000);
    assert.deepEqual(await bridge.recorded(), ["$second"]);
  });
});
