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

it("an invitation too large to be read hides neither another nor a room's events [INT-8] [DEL-10]", async (t) => {
  const invitation = { type: "m.room.member", state_key: ghost, sender: "@alice:a.test" };
  const large = Array.from({ length: 10 }, () => ({ type: "m.room.topic", content: "x".repeat(50_000) }));
  const said = { type: "m.room.message", event_id: "$said" };
  const { url, requests } = await scriptedHomeserver(t, () => ({
    body: {
      next_batch: "s1",
      rooms: {
        join: { "!a": { timeline: { events: [said] } } },
        invite: {
          "!large": { invite_state: { events: [...large, invitation] } },
          "!small": { invite_state: { events: [invitation] } },
        },
        leave: { "!b": { timeline: { events: [said], limited: true, prev_batch: "p1" } } },
      },
    },
  }));
  const options = { url, asToken: "t", requestTimeoutMs: 5_000, clock: systemClock };
  const api = new SyncApi(options, { changesBytesMax: 400_000 });
  t.after(() => api.close());
  const read = await api.changes({ ghost }, "s0");
  assert.ok(read.kind === "ok", JSON.stringify(read));
  const { rooms, invitations, unread, isWhole } = read.value;
  assert.deepEqual([...invitations.keys()], ["!small"]);
  assert.deepEqual([...rooms.keys()].sort(), ["!a", "!b"]);
  assert.deepEqual([unread, isWhole, requests.length], [1, false, 3]);
});

it("many invitations just below the length that is read hide no ordinary one behind them [INT-8] [DEL-10]", async (t) => {
  const invitation = { type: "m.room.member", state_key: ghost, sender: "@alice:a.test" };
  const state = [{ type: "m.room.topic", content: "x".repeat(60_000) }, invitation];
  const long = Array.from({ length: 9 }, (_, n) => [`!${n}`, { invite_state: { events: state } }]);
  const invite = { ...Object.fromEntries(long), "!ordinary": { invite_state: { events: [invitation] } } };
  const { url } = await scriptedHomeserver(t, () => ({ body: { next_batch: "s1", rooms: { invite } } }));
  const options = { url, asToken: "t", requestTimeoutMs: 5_000, clock: systemClock };
  // Four of the long ones leave too little for the ordinary one.
  const changesBytesMax = 4 * JSON.stringify(long[0]?.[1]).length + 50;
  const api = new SyncApi(options, { changesBytesMax });
  t.after(() => api.close());
  const read = await api.changes({ ghost }, "s0");
  assert.ok(read.kind === "ok", JSON.stringify(read));
  const { invitations, unread } = read.value;
  assert.deepEqual([[...invitations.keys()], unread], [["!0", "!1", "!2", "!3", "!ordinary"], 5]);
});

it("what is full of values is not parsed, and hides neither an invitation nor a room's events [INT-8] [DEL-10]", async (t) => {
  const invitation = { type: "m.room.member", state_key: ghost, sender: "@alice:a.test" };
  const dense = Array.from({ length: 600_000 }, () => ({}));
  const said = { type: "m.room.message", event_id: "$said" };
  const full = (id: number, values: number) => ({
    ...{ ...said, event_id: `$${id}` },
    content: { dense: dense.slice(0, values) },
  });
  const question = { ...said, event_id: "$question", content: { body: "hello" } };
  const { url, requests } = await scriptedHomeserver(t, ({ path, query }) => {
    if (path.endsWith("/messages")) {
      const length = Number(query.get("limit"));
      const many = Object.fromEntries(Array.from({ length: 3_000 }, (_, n) => [`m${n}`, 0]));
      const some = [...[1, 2, 3].map((id) => full(id, 20_000)), { ...said, ...many }, question];
      const chunk = length === 100 ? Array.from({ length }, (_, id) => full(id, 2_000)) : some;
      return { body: { chunk, end: "p1" } };
    }
    const rooms = {
      join: { "!a": { timeline: { events: [said] } } },
      invite: {
        "!dense": { invite_state: { events: [{ type: "m.room.topic", content: { dense } }, invitation] } },
        "!small": { invite_state: { events: [invitation] } },
      },
    };
    return { body: { next_batch: "s1", rooms } };
  });
  const api = new SyncApi({ url, asToken: "t", requestTimeoutMs: 20_000, clock: systemClock });
  t.after(() => api.close());
  const parsed = t.mock.method(JSON, "parse");
  const read = await api.changes({ ghost }, "s0");
  assert.ok(read.kind === "ok", JSON.stringify(read));
  assert.deepEqual([...read.value.invitations.keys()], ["!small"]);
  assert.deepEqual([[...read.value.rooms.keys()], read.value.unread], [["!a"], 1]);
  const page = await api.pageBack({ ghost }, "!a" as RoomId, "s1", "s0");
  assert.ok(page.kind === "ok", JSON.stringify(page));
  assert.deepEqual(
    page.value.events.map(({ event_id: id, content }) => [id, Object.keys(content ?? {})]),
    [...["$1", "$2", "$3"].map((id) => [id, []]), ["$question", ["body"]]],
  );
  assert.ok(parsed.mock.calls.every(({ arguments: [text] }) => String(text).length < 10_000));
  assert.deepEqual(
    requests.flatMap(({ query }) => query.get("limit") ?? []),
    ["100", "10"],
  );
});
