// What a restore leaves of an ACL that others have written, in rooms of others.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { closeRooms } from "../../../../../src/federation/planes/rooms/close-rooms.ts";
import { reopenRooms } from "../../../../../src/federation/planes/rooms/reopen-rooms.ts";
import {
  ALICE,
  acl,
  admit,
  BOB,
  CAROL,
  type Content,
  FakeHomeserver,
  joined,
  madeBy,
  refused,
} from "../../../../support/rooms-homeserver.ts";

const FOUND = { allow: ["*"], deny: ["old.test"], allow_ip_literals: true };

function scene(t: TestContext, ...partners: readonly string[]) {
  const homeserver = new FakeHomeserver();
  const room = homeserver.room(
    ...(["!room", madeBy(CAROL, { room_version: "10" })] as const),
    ...joined(ALICE, BOB, CAROL, "@dan:d.test"),
    ["m.room.power_levels", "", { users: { [ALICE]: 100, [CAROL]: 100 } }, CAROL],
    acl(FOUND, CAROL),
  );
  const session = homeserver.session(t, partners);
  const deny = (...names: readonly string[]) => homeserver.put(room, acl({ ...FOUND, deny: names }, CAROL));
  const now = (): Content | undefined => homeserver.content(room, "m.room.server_acl");
  return { homeserver, session, deny, now };
}

describe("the ACL of a room of others after a restore", () => {
  it("is the one that was found, where nobody has changed it since [CON-1] [PLN-2]", async (t) => {
    const { session, now } = scene(t, "b.test");
    await closeRooms(session);
    assert.deepEqual(now()?.["deny"], ["b.test", "old.test"]);
    admit(session);
    await reopenRooms(session);
    assert.deepEqual(now(), FOUND);
  });

  it("denies whom a moderator's own list denies that has replaced ours, and that was completed by us [CON-1] [PLN-2]", async (t) => {
    const { session, deny, now } = scene(t, "b.test");
    await closeRooms(session);
    deny("evil.test", "old.test");
    await closeRooms(session);
    assert.deepEqual(now()?.["deny"], ["b.test", "evil.test", "old.test"]);
    admit(session);
    await reopenRooms(session);
    assert.deepEqual(now()?.["deny"], ["evil.test", "old.test"]);
  });

  it("denies a server whose entry was deleted after its removal [CON-1] [PLN-2]", async (t) => {
    const { session, now } = scene(t, "b.test", "d.test");
    await closeRooms(session);
    session.intent.closing.pop();
    admit(session);
    await reopenRooms(session);
    assert.deepEqual(now()?.["deny"], ["d.test", "old.test"]);
  });

  it("denies whom a moderator has denied between the announcement of ours and a kill [CON-1] [PLN-2]", async (t) => {
    const { homeserver, session, deny, now } = scene(t, "b.test");
    homeserver.onChange = (type) => {
      if (type === "m.room.server_acl") throw refused();
    };
    await closeRooms(session);
    homeserver.onChange = () => undefined;
    deny("evil.test", "old.test");
    await closeRooms(session);
    admit(session);
    await reopenRooms(session);
    assert.deepEqual(now()?.["deny"], ["evil.test", "old.test"]);
  });
});
