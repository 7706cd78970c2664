import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { absenceIn, countMessages, type Reader } from "../../../../lab/readmit/messages-while-removed.ts";
import type { UserId } from "../../../../src/domain/identifiers.ts";

const [HOST, GUEST] = ["@alice:a.test", "@alice:b.test"] as const;
const ABSENCE = { from: 100, until: 200 };

interface Said {
  readonly at: number;
  readonly by?: string;
  readonly body?: string;
  readonly membership?: string;
}

/** A room's copy, newest first, in pages of its homeserver's; `endless` goes on with pages of nothing. */
function copyOf(userId: string, events: readonly Said[], endless = false): Reader {
  const page = (index: number) => events.slice(index * 2, index * 2 + 2);
  return {
    userId: userId as UserId,
    async call(_method, path) {
      const index = Number(/from=(\d+)/.exec(path)?.[1] ?? 0);
      const chunk = page(index).map(({ at, by = HOST, body, membership }) => ({
        event_id: `$${by}${at}`,
        type: membership === undefined ? "m.room.message" : "m.room.member",
        sender: by,
        ...(membership !== undefined && { state_key: GUEST }),
        origin_server_ts: at,
        content: { ...(body !== undefined && { body }), ...(membership !== undefined && { membership }) },
      }));
      const isLast = !endless && page(index + 1).length === 0;
      return { chunk, ...(!isLast && { end: String(index + 1) }) };
    },
  };
}

const OURS: readonly Said[] = [
  { at: 210, body: "after" },
  { at: 200, membership: "leave" },
  { at: 190, body: "three" },
  { at: 180, body: "two" },
  { at: 150, by: GUEST, body: "came in late" },
  { at: 110, body: "one" },
  { at: 100, membership: "ban" },
  { at: 90, body: "before" },
];

describe("messages while a partner is removed", () => {
  it("the count takes messages by their time, and tells those that can be read back from those without content [RDM-1]", async () => {
    const theirs = copyOf(GUEST, [{ at: 190, body: "three" }, { at: 180 }]);
    const ours = copyOf(HOST, OURS);
    assert.deepEqual(await absenceIn("!r", ours, theirs), ABSENCE);
    assert.deepEqual(await countMessages("!r", ours, theirs, ABSENCE), {
      ...{ cameIn: 1, saidByOurs: 3, readable: 1, emptied: 1 },
      isWhole: true,
    });
  });

  it("a count is marked when a copy is longer than is read, and an absence that lies further back counts as unread [RDM-1]", async () => {
    const theirs = copyOf(GUEST, [{ at: 190, body: "three" }], true);
    assert.equal((await countMessages("!r", copyOf(HOST, OURS), theirs, ABSENCE)).isWhole, false);
    assert.equal((await countMessages("!r", copyOf(HOST, OURS, true), theirs, ABSENCE)).saidByOurs, 3);
    assert.equal(await absenceIn("!r", copyOf(HOST, OURS.slice(0, 6), true), theirs), "unread");
    assert.equal(await absenceIn("!r", copyOf(HOST, OURS.slice(0, 6)), theirs), undefined);
  });
});
