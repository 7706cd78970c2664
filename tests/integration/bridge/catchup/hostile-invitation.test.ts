// An invitation in whose state the inviting server has written what it likes, as a catchup reads it.
import assert from "node:assert/strict";
import { it } from "node:test";
import { SyncApi } from "../../../../src/bridge/catchup/sync-api.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import { namedTarget } from "../../../support/agents.ts";
import { scriptedHomeserver } from "../../../support/http-server.ts";

const { ghost } = namedTarget("docs");

it("an invitation is of whom the homeserver says, whatever its state names, and hides no other room [INT-8] [DEL-10]", async (t) => {
  const invitation = (sender: string, content = { membership: "invite" }) => ({
    type: "m.room.member",
    state_key: ghost,
    sender,
    content,
  });
  const forged = invitation("@alice:a.test");
  const own = invitation("@eve:evil.test");
  const said = { type: "m.room.message", event_id: "$said", sender: "@alice:a.test", content: {} };
  const { url } = await scriptedHomeserver(t, () => ({
    body: {
      next_batch: "s1",
      rooms: {
        join: { "!a": { timeline: { events: [said] } } },
        invite: {
          "!evil": { invite_state: { events: ["x", null, forged, [], own] } },
          ...{ "!bare": {}, "!none": { invite_state: {} }, "!null": null },
        },
      },
    },
  }));
  const api = new SyncApi({ url, asToken: "t", requestTimeoutMs: 5_000, clock: systemClock });
  t.after(() => api.close());
  const read = await api.changes({ ghost }, "s0");
  assert.equal(read.kind, "ok");
  assert.ok(read.kind === "ok");
  assert.deepEqual([...read.value.invitations.keys()], ["!evil"]);
  assert.equal(read.value.invitations.get("!evil" as RoomId)?.["sender"], "@eve:evil.test");
  assert.deepEqual(
    read.value.rooms.get("!a" as RoomId)?.events.map((event) => event["event_id"]),
    ["$said"],
  );
});
