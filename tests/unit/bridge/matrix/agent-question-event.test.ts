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
};
describe("a question of an agent", () => {
  it("mentions who asked, and says how to answer [DEL-6]", async () => {
    const [part, ...others] = await questionParts({ text: "Which section?" }, SOURCE, systemClock);
    assert.deepEqual(others, []);
    assert.equal(part?.content["body"], "Which section?\n\nReply to this message to answer.");
    assert.deepEqual(part?.content["m.mentions"], { user_ids: ["@alice:a.test"] });
  });

  it("without words says that the agent needs an answer", async () => {
    const [part] = await questionParts({ text: " " }, SOURCE, systemClock);
    assert.match(String(part?.content["body"]), /^I need more information to go on\.\n\nReply/);
  });
});
