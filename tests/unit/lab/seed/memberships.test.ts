// How ghosts come into rooms and replaced rooms are found, at homeservers that answer as the test says.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { MatrixUser } from "../../../../lab/matrix-user.ts";
import { bringGhost, openAsShared, replacementOf } from "../../../../lab/seed/memberships.ts";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import type { RoomId, UserId } from "../../../../src/domain/identifiers.ts";
import { scriptedHomeserver } from "../../../support/http-server.ts";
import { ManualClock, settled } from "../../../support/manual-clock.ts";

const ROOM = "!room" as RoomId;
const GHOST = "@agent_docs-qa:guest.test" as UserId;

/** @param may who may invite: in a room that has replaced another, its moderators alone */
async function room(
  t: TestContext,
  membership: string,
  may: { readonly guest: boolean; readonly host: boolean },
) {
  const shown = { membership };
  const clock = new ManualClock(0);
  const inviting = (isAllowed: boolean) =>
    scriptedHomeserver(t, ({ method }) => {
      if (method === "GET") return { body: shown };
      if (!isAllowed) return { status: 403, body: { errcode: "M_FORBIDDEN" } };
      shown.membership = "invite";
      return { body: {} };
    });
  const servers = { guest: await inviting(may.guest), host: await inviting(may.host) };
  const person = (name: "guest" | "host") =>
    new MatrixUser(servers[name].url, `@alice:${name}.test` as UserId, "t", { clock, random: systemRandom });
  const invited = (name: "guest" | "host") =>
    servers[name].requests.filter(({ method }) => method === "POST");
  const brought = bringGhost(ROOM, { host: person("host"), guest: person("guest") }, GHOST, clock);
  return { brought, invited, clock, shown };
}

/** Moves time whenever it is waited for. */
async function moveUntil(brought: Promise<void>, clock: ManualClock): Promise<void> {
  let isDone = false;
  const end = () => {
    isDone = true;
  };
  brought.then(end, end);
  while (!isDone) await (clock.wakeTimes.length > 0 ? clock.advance(500) : settled());
  return brought;
}

describe("bringing a ghost into a room", () => {
  it("a guest's ghost is invited by the guest, and by nobody when it is in the room already", async (t) => {
    const gone = await room(t, "leave", { guest: true, host: true });
    await moveUntil(gone.brought, gone.clock);
    assert.deepEqual([gone.invited("guest").length, gone.invited("host").length], [1, 0]);
    const there = await room(t, "join", { guest: true, host: true });
    await there.brought;
    assert.deepEqual([there.invited("guest").length, there.invited("host").length], [0, 0]);
  });

  it("a guest's ghost that is gone from a room in which the guest may not invite is invited by the host", async (t) => {
    const { brought, invited, clock } = await room(t, "leave", { guest: false, host: true });
    await moveUntil(brought, clock);
    assert.deepEqual(
      invited("host").map(({ path, body }) => [path, body]),
      [[`/_matrix/client/v3/rooms/${ROOM}/invite`, { user_id: GHOST }]],
    );
  });

  it("a ghost that the guest's homeserver shows as banned is waited for until a deadline", async (t) => {
    const { brought, clock } = await room(t, "ban", { guest: false, host: false });
    await assert.rejects(
      moveUntil(brought, clock),
      (error) => error instanceof DrawbridgeError && error.message.endsWith("!room: ban"),
    );
  });
});

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

describe("rooms that replace others", () => {
  it("a room that was replaced is found by the predecessor that the new one names", async (t) => {
    const member = await memberOf(t, { "!other:a.test": undefined, [NEXT]: "!old:b.test" });
    assert.equal(await replacementOf("!old:b.test", member), NEXT);
    assert.equal(await replacementOf("!other:a.test", member), undefined);
  });

  it("the last replacement is found when a room was replaced twice", async (t) => {
    const member = await memberOf(t, { [NEXT]: "!middle:a.test", "!middle:a.test": "!old:b.test" });
    assert.equal(await replacementOf("!old:b.test", member), NEXT);
  });

  it("a replacement of a shared room is opened as one, and keeps its other power levels", async (t) => {
    const { url, requests } = await scriptedHomeserver(t, ({ method }) =>
      method === "GET" ? { body: { users: { "@alice:a.test": 100 }, invite: 50 } } : { body: {} },
    );
    const acl = { allow: ["a.test", "b.test"], deny: [], allow_ip_literals: false };
    await openAsShared(NEXT, new MatrixUser(url, "@alice:a.test" as UserId, "t", SOURCES), acl);
    const written = requests
      .filter(({ method }) => method === "PUT")
      .map(({ path, body }) => [path.split("/state/")[1], body]);
    assert.deepEqual(written, [
      ["m.room.server_acl/", acl],
      ["m.room.power_levels/", { users: { "@alice:a.test": 100 }, invite: 0 }],
      ["m.room.join_rules/", { join_rule: "public" }],
    ]);
  });
});
