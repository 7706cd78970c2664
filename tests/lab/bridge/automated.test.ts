// Agents and other programs in one room of two organisations: agents do not answer each other, and an exchange with a
// program that marks nothing ends by itself.
import assert from "node:assert/strict";
import { after, describe, it } from "node:test";
import type { RoomEvent } from "../../../lab/matrix-user.ts";
import type { EventId, RoomId } from "../../../src/domain/identifiers.ts";
import { Questions, timeline } from "../../support/lab-questions.ts";
import { eventually, LabSession } from "../../support/lab-session.ts";

const lab = await LabSession.start();
after(() => lab.end());
const questions = new Questions(lab);
await questions.plant();
const alice = questions.personOf("org-a");
const GHOST_A = questions.ghostOf("org-a", "org-a");
const GHOST_B = questions.ghostOf("org-b", "org-b");

const said = async (room: RoomId, msgtype = "m.text") =>
  (await timeline(alice, room)).filter(
    ({ sender, content }) => [GHOST_A, GHOST_B].includes(sender as never) && content["msgtype"] === msgtype,
  );

async function joined(room: RoomId, ...ghosts: string[]): Promise<void> {
  await eventually("the ghosts join", async () => {
    const members: readonly string[] = await alice.members(room);
    return ghosts.every((ghost) => members.includes(ghost));
  });
}

const mention = (body: string, users: readonly string[], relation?: unknown) => ({
  msgtype: "m.text",
  body,
  "m.mentions": { user_ids: users },
  ...(relation !== undefined && { "m.relates_to": relation }),
});

describe("programs in a room of two organisations", () => {
  it("agents of both organisations answer a message that mentions both once, and not each other [INT-6]", async () => {
    const both = [GHOST_A, GHOST_B];
    const room = await alice.createRoom({ preset: "private_chat", invite: both });
    await joined(room, ...both);
    await alice.send(room, mention(`${both.join(" ")}: When is the lamp of the old lighthouse lit?`, both));
    await eventually("both answer", async () => (await said(room)).length === 2);
    // What each bridge would make of the other's answer, it makes of a person's next question at the latest.
    for (const ghost of both) {
      const [question] = await questions.ask([room], "org-a", { publisher: "org-a" });
      assert.ok(question !== undefined);
      await questions.ended([question]);
      await alice.send(room, mention(`${ghost}: And the lamp of the lighthouse?`, [ghost]));
    }
    const answers = await eventually("all questions are answered", async () => {
      const all = await said(room);
      return all.length >= 6 && all;
    });
    assert.equal(answers.length, 6, "two to the first message, one to each of the four questions");
    assert.equal(
      (await lab.rows("org-b", "SELECT 1 FROM bridge_delegations WHERE room_id = $1", [room])).length,
      2,
    );
    assert.equal(
      (await lab.rows("org-a", "SELECT 1 FROM bridge_delegations WHERE room_id = $1", [room])).length,
      4,
    );
    for (const { content } of answers) {
      assert.equal(content["org.matrix.msc1767.automated"], true);
      assert.equal(content["io.github.m13253.bounce_limit"], 1);
    }
  });

  it("a program that answers each answer at once gets three of them, and one notice [INT-6] [NOT-1]", async () => {
    const room = await alice.createRoom({ preset: "private_chat", invite: [GHOST_A] });
    await joined(room, GHOST_A);
    let last: EventId = await alice.send(
      room,
      mention("When is the lamp of the old lighthouse lit?", [GHOST_A]),
    );
    const replyTo = (event: RoomEvent) =>
      alice.send(
        room,
        mention(`And what else? ${event.event_id}`, [GHOST_A], {
          "m.in_reply_to": { event_id: event.event_id },
        }),
      );
    const after = async (event: EventId): Promise<RoomEvent> =>
      await eventually("something is said to it", async () =>
        (await timeline(alice, room)).find(({ sender, content }) => {
          const relation = content["m.relates_to"] as
            | { "m.in_reply_to"?: { event_id?: unknown } }
            | undefined;
          return sender === GHOST_A && relation?.["m.in_reply_to"]?.event_id === event;
        }),
      );
    for (let answer = 0; answer < 3; answer++) last = await replyTo(await after(last));
    const notice = await after(last);
    assert.equal(notice.content["msgtype"], "m.notice");
    assert.match(String(notice.content["body"]), /as from a program/);
    // It goes on, and is not told a second time.
    for (let more = 0; more < 3; more++) last = await replyTo(notice);
    await eventually("all of them are refused", async () => {
      const rows = await lab.rows(
        "org-a",
        "SELECT 1 FROM bridge_delegations WHERE room_id = $1 AND terminal_reason = 'agent_turns_exceeded'",
        [room],
      );
      return rows.length === 4;
    });
    assert.equal((await said(room)).length, 3);
    assert.equal((await said(room, "m.notice")).length, 1);
  });
});
