// A ghost of a guest organisation in a room of its host, at homeservers that answer as the test says.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { MatrixUser } from "../../../lab/matrix-user.ts";
import { bringGhost } from "../../../lab/seed/bring-ghost.ts";
import { systemRandom } from "../../../src/domain/clock.ts";
import { DrawbridgeError } from "../../../src/domain/errors.ts";
import type { RoomId, UserId } from "../../../src/domain/identifiers.ts";
import { ManualClock, settled } from "../../support/manual-clock.ts";
import { scriptedHomeserver } from "../../support/scripted-homeserver.ts";

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
  const invited = (name: "guest" | "host") => servers[name].seen.filter(({ method }) => method === "POST");
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

describe("bring ghost", () => {
  it("a guest's ghost is invited by the guest, and by nobody where it is there already", async (t) => {
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

  it("a ghost that the guest's homeserver still shows as banned is waited for, and not for ever", async (t) => {
    const { brought, clock } = await room(t, "ban", { guest: false, host: false });
    await assert.rejects(
      moveUntil(brought, clock),
      (error) => error instanceof DrawbridgeError && error.message.endsWith("!room: ban"),
    );
  });
});
