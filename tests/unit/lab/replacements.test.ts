// Which room stands for one that was replaced, at a homeserver that answers as the test says.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { MatrixUser } from "../../../lab/matrix-user.ts";
import { openAsShared, replacementOf } from "../../../lab/seed/replacements.ts";
import { systemRandom } from "../../../src/domain/clock.ts";
import type { RoomId, UserId } from "../../../src/domain/identifiers.ts";
import { ManualClock } from "../../support/manual-clock.ts";
import { scriptedHomeserver } from "../../support/scripted-homeserver.ts";

const NEXT = "!next:a.test" as RoomId;
const SOURCES = { clock: new ManualClock(0), random: systemRandom };

/** A person who is in these rooms, each with the one that it names as its predecessor. */
async function memberOf(t: TestContext, rooms: Readonly<Record<string, string | undefined>>) {
  const { url } = await scriptedHomeserver(t, ({ path }) => {
    if (path.endsWith("/joined_rooms")) return { body: { joined_rooms: Object.keys(rooms) } };
    const room = Object.keys(rooms).find((one) => path.includes(`/rooms/${one}/`)) ?? "";
    const predecessor = rooms[room];
    return { body: predecessor === undefined ? {} : { predecessor: { room_id: predecessor } } };
  });
  return new MatrixUser(url, "@alice:a.test" as UserId, "t", SOURCES);
}

describe("replacements", () => {
  it("a room that was replaced is found by the predecessor that the new one names", async (t) => {
    const member = await memberOf(t, { "!other:a.test": undefined, [NEXT]: "!old:b.test" });
    assert.equal(await replacementOf("!old:b.test", member), NEXT);
    assert.equal(await replacementOf("!other:a.test", member), undefined);
  });

  it("of a room that was replaced twice, the last one stands for it", async (t) => {
    const member = await memberOf(t, { [NEXT]: "!middle:a.test", "!middle:a.test": "!old:b.test" });
    assert.equal(await replacementOf("!old:b.test", member), NEXT);
  });

  it("what stands for a shared room is opened as one, and keeps its other power levels", async (t) => {
    const { url, seen } = await scriptedHomeserver(t, ({ method }) =>
      method === "GET" ? { body: { users: { "@alice:a.test": 100 }, invite: 50 } } : { body: {} },
    );
    const acl = { allow: ["a.test", "b.test"], deny: [], allow_ip_literals: false };
    await openAsShared(NEXT, new MatrixUser(url, "@alice:a.test" as UserId, "t", SOURCES), acl);
    const written = seen
      .filter(({ method }) => method === "PUT")
      .map(({ path, body }) => [path.split("/state/")[1], body]);
    assert.deepEqual(written, [
      ["m.room.server_acl/", acl],
      ["m.room.power_levels/", { users: { "@alice:a.test": 100 }, invite: 0 }],
      ["m.room.join_rules/", { join_rule: "public" }],
    ]);
  });
});
