import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { questionParts } from "../../../../src/bridge/matrix/answer-events.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { EventId, RoomId, UserId } from "../../../../src/domain/identifiers.ts";

const SOURCE = {
  eventId: "$asked" as EventId,
  threadRoot: undefined,
  sender: "@alice:a.test" as UserId,
  roomId: "!room" as RoomId,
  takesReactions: true,
};
const OPTIONS = [
  { key: "1️⃣", value: "Opening fee" },
  { key: "2️⃣", value: "Lighthouse" },
];

describe("a question of an agent", () => {
  it("lists its options with their keys, and says how to answer [DEL-6]", async () => {
    const [part, ...others] = await questionParts({ text: "Which section?" }, OPTIONS, SOURCE, systemClock);
    assert.deepEqual(others, []);
    const { body, formatted_body: html } = part?.content ?? {};
    assert.match(
      String(body),
      /^Which section\?\n\n- 1️⃣ Opening fee\n- 2️⃣ Lighthouse\n\nReply to this message, or react/,
    );
    assert.match(String(html), /<li>1️⃣ Opening fee<\/li>\s*<li>2️⃣ Lighthouse<\/li>/);
    assert.deepEqual(part?.content["m.mentions"], { user_ids: ["@alice:a.test"] });
  });

  it("asks for no reaction where none counts [DEL-6]", async () => {
    const source = { ...SOURCE, takesReactions: false };
    const [part] = await questionParts({ text: "Which section?" }, OPTIONS, source, systemClock);
    assert.match(String(part?.content["body"]), /- 2️⃣ Lighthouse\n\nReply to this message to answer\.$/);
  });

  it("in plain text has no marks of a list, which would be shown as they are", async () => {
    const question = { text: "Which section?", mediaType: "text/plain; charset=utf-8" };
    const [part] = await questionParts(question, OPTIONS, SOURCE, systemClock);
    assert.match(String(part?.content["body"]), /\n\n1️⃣ Opening fee\n2️⃣ Lighthouse\n\n/);
    assert.equal(part?.content["formatted_body"], undefined);
  });

  it("without words or options says that the agent needs an answer", async () => {
    const [part] = await questionParts({ text: " " }, [], SOURCE, systemClock);
    assert.match(String(part?.content["body"]), /\S[\s\S]*\n\n\S/);
    assert.doesNotMatch(String(part?.content["body"]), /react/);
  });
});
