// A full room, a redacted question, an answer longer than an event: each ends as promised, and whichever way
// a question ended, nothing of it or of its answer stays with the bridge.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import { systemRandom } from "../../../src/domain/clock.ts";
import { assertNoTrace, type Question, Questions } from "../../support/lab-questions.ts";
import { eventually, LabSession } from "../../support/lab-session.ts";

/** The default of `limits.roomQueue`. */
const ROOM_QUEUE = 64;
const WORDS = Array.from({ length: 10_500 }, (_, index) => `w${String(index).padStart(5, "0")}`);
const EVENT_BYTES_MAX = 65_536;

const lab = await LabSession.start();
after(() => lab.end());
const questions = new Questions(lab);
// The agent quotes little of a section, but names its whole heading.
await questions.plant({
  "manifest.md": `# Manifest of the barge Margarethe ${WORDS.join(" ")}\n\nSigned. ${questions.canary()}\n`,
});
await lab.configure("org-a", { limits: { dispatchDeadline: "3s" } });

const GHOST = questions.ghostOf("org-b");

async function redact({ asker, room, event }: Question): Promise<void> {
  const path = [room, "redact", event, systemRandom.bytes(8).toString("hex")].map(encodeURIComponent);
  await asker.call("PUT", `/rooms/${path.join("/")}`, {});
}

describe("content of questions and answers", () => {
  it("the 65th waiting question of a room is refused with one notice, and the others reach the agent in order [INT-4]", async (t) => {
    const [room] = await questions.rooms(1, "org-b");
    assert.ok(room !== undefined);
    const thaw = await lab.freeze(t, "org-a/agent");
    const asked: Question[] = [];
    while (asked.length < ROOM_QUEUE + 2) asked.push(...(await questions.ask([room], "org-b")));
    const rows = await questions.until("all are recorded", asked, () => true);
    const [admitted, refused] = [asked.slice(0, ROOM_QUEUE), asked.slice(ROOM_QUEUE)];
    for (const row of rows.slice(ROOM_QUEUE)) {
      assert.deepEqual(
        [row.state, row.terminal_stage, row.terminal_reason],
        ["denied", "intake", "room_capacity_exceeded"],
      );
      assert.equal(row.a2a_attempted, false);
    }

    thaw();
    const answered = await questions.answeredOnce(admitted);
    const accepted = answered.map(({ accepted_at }) => accepted_at?.getTime() ?? 0);
    assert.deepEqual(
      accepted,
      accepted.toSorted((one, other) => one - other),
    );
    for (const question of refused) assert.deepEqual(await questions.repliesTo(question), []);
    const notices = await questions.noticesIn({ asker: questions.personOf("org-b"), room, ghost: GHOST });
    assert.equal(notices.length, 1);
    assert.match(notices[0] ?? "", /could not take this question.*waiting in this room/);
  });

  it("a question redacted while it waits, or while its agent works, gets neither answer nor notice [INT-6]", async (t) => {
    const rooms = await questions.rooms(3, "org-b");
    const thaw = await lab.freeze(t, "org-a/agent");
    const heads = await questions.ask(rooms, "org-b");
    await questions.until("the first of each room is at the agent", heads, (row) => row.a2a_attempted);
    const waiting = await questions.ask(rooms, "org-b");
    const kept = await questions.ask(rooms, "org-b");
    await questions.until("the others wait", [...waiting, ...kept], ({ state }) => state === "queued");
    const redacted = [...heads, ...waiting];
    await Promise.all(redacted.map(redact));
    for (const row of await questions.ended(redacted)) {
      assert.deepEqual([row.state, row.terminal_reason], ["canceled", "source_redacted"]);
    }
    thaw();
    await questions.answeredOnce(kept);
    for (const question of redacted) {
      assert.deepEqual(await questions.repliesTo(question), []);
      assert.deepEqual(await questions.noticesIn(question), []);
    }
  });

  it("an answer longer than an event arrives whole and in order [DEL-4]", async () => {
    const rooms = await questions.rooms(3, "org-b");
    const text = "What does the manifest of the barge Margarethe say?";
    const asked = await questions.ask(rooms, "org-b", { text });
    const rows = await questions.ended(asked);
    for (const [index, row] of rows.entries()) {
      const question = asked[index];
      assert.ok(question !== undefined);
      assert.deepEqual([row.state, row.terminal_reason], ["completed", "answered"]);
      const replies = await questions.repliesTo(question);
      assert.ok(replies.length > 2);
      // The room's message begins the answer; the thread has the whole of it.
      const [beginning, ...thread] = replies;
      assert.equal(beginning?.event_id, row.reply_event_id);
      const whole = thread.map(({ content }) => String(content["body"])).join("");
      assert.ok(Buffer.byteLength(whole) > EVENT_BYTES_MAX);
      assert.deepEqual(whole.match(/\bw\d{5}\b/g), WORDS);
      const [task] = questions.tasksOf(question, row);
      assert.equal(JSON.parse(task ?? "").task.artifacts[0].parts[0].text, whole);
    }
  });

  it("no trace is left of questions that were answered, failed, denied, refused or redacted [AUD-2]", async (t) => {
    const failing = await questions.rooms(2, "org-a");
    await lab.stop(t, "org-b/gateway");
    await questions.refusedWithNotice(await questions.ask(failing, "org-a"), /could not get an answer/);
    await lab.start("org-b/gateway");
    const denied = await questions.rooms(2, "org-b");
    const restore = lab.editAgents(t, "org-b", (agents) => {
      for (const entry of Object.values(agents)) delete entry["cardIdentity"];
    });
    await questions.refusedWithNotice(
      await questions.ask(denied, "org-b"),
      /stopped working on this question/,
    );
    restore();

    const reasons = await eventually("every question has ended", async () => {
      const rows = await questions.ended(questions.asked);
      return new Set(rows.map((row) => row.terminal_reason));
    });
    for (const reason of [
      "answered",
      "agent_unavailable",
      "agent_card_untrusted",
      "room_capacity_exceeded",
      "source_redacted",
    ]) {
      assert.ok(reasons.has(reason), reason);
    }
    await assertNoTrace(lab, questions);
  });
});
