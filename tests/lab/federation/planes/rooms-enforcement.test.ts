// Whether ACLs are enforced on real homeservers, and rooms that others disturb while they are closed. The tests share the
// homeservers, in this order: rooms that one has closed stay closed for the next.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, it } from "node:test";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import { signedRequests } from "../../../../src/federation/homeserver/signed-request.ts";
import { aclAllow } from "../../../../src/federation/planes/rooms/acl.ts";
import type { ClosingPartner } from "../../../../src/federation/planes/rooms/render.ts";
import type { FederatedServer, FederatedUser } from "../../../support/federation.ts";
import { type RoomsScene, roomsScene } from "../../../support/rooms-deployment.ts";

const IN_FORCE = { state: "in_force", changed: true } as const;
let scene: RoomsScene;

before(async () => {
  scene = await roomsScene();
});
after(() => scene?.dispose());

interface Event {
  readonly type: string;
  readonly state_key: string;
  readonly event_id: string;
  readonly room_id?: RoomId;
  readonly content: Readonly<Record<string, unknown>>;
}

const inRoom = (room: RoomId, rest: string) => `/rooms/${encodeURIComponent(room)}/${rest}`;

async function stateOf(user: FederatedUser, room: RoomId): Promise<Event[]> {
  const { body } = await user.request("GET", inRoom(room, "state"));
  const events = body as unknown as Event[];
  return events.sort((one, other) => (one.event_id < other.event_id ? -1 : 1));
}

async function membership(user: FederatedUser, room: RoomId, of: FederatedUser): Promise<unknown> {
  const events = await stateOf(user, room);
  const found = events.find(({ type, state_key }) => type === "m.room.member" && state_key === of.userId);
  return found?.content["membership"];
}

describe("enforcement of the rooms plane on real homeservers", () => {
  it("a homeserver's rate limit on the acting user is obeyed, and every room is closed all the same [PLN-2]", async () => {
    const { alice, bob, plane, root, servers, intent, closingB, sharedRoom } = scene;
    const rooms = await Promise.all([1, 2].map(() => sharedRoom(alice, [bob])));
    const limit = (method: string, body?: unknown) =>
      fetch(
        `${servers.a.url}/_synapse/admin/v1/users/${encodeURIComponent(alice.userId)}/override_ratelimit`,
        {
          method,
          headers: { authorization: `Bearer ${root.accessToken}` },
          ...(body !== undefined && { body: JSON.stringify(body) }),
        },
      );
    assert.equal((await limit("POST", { messages_per_second: 8, burst_count: 1 })).status, 200);
    const startedAt = systemClock.now();
    assert.deepEqual(await plane.apply(intent(closingB())), IN_FORCE);
    // At least invite level, ban and ACL in each room, eight a second.
    assert.ok(systemClock.now() - startedAt >= (rooms.length * 3 - 2) * 125);
    assert.equal((await limit("DELETE")).status, 200);
    for (const room of rooms) assert.equal(await membership(alice, room, bob), "ban");
  });

  /** Federation traffic of one server at A: typing in all rooms, for which A looks at each room's ACL. */
  async function traffic(
    from: FederatedServer,
    rooms: readonly RoomId[],
    isOn: () => boolean,
  ): Promise<void> {
    const { a } = scene.servers;
    const signed = signedRequests({ ...from, ca: readFileSync(from.caFile, "utf8") });
    const edus = rooms.map((room_id) => ({
      edu_type: "m.typing",
      content: { room_id, user_id: `@typist:${from.name}`, typing: false },
    }));
    const content = { origin: from.name, origin_server_ts: systemClock.now(), pdus: [], edus };
    try {
      while (isOn()) {
        const id = systemRandom.bytes(8).toString("hex");
        const { status } = await signed.request(a.name, `/_matrix/federation/v1/send/${id}`, content);
        // 429: the server itself is sending something just now.
        assert.ok(status === 200 || status === 429, String(status));
      }
    } finally {
      await signed.close();
    }
  }

  it("in fifty rooms under traffic every stale ACL is noticed by the enforcing cache and repaired, closing and opening [PLN-2]", async () => {
    const { alice, bob, plane, servers, intent, closingB, sharedRoom } = scene;
    const { a, b, c } = servers;
    await plane.apply(intent());
    // The module repairs by itself: without that, what is stale is left to the plane.
    await a.stop();
    a.loadBorder("unrepaired_border.UnrepairedBorder");
    await a.start();
    const rooms: RoomId[] = await Promise.all([1, 2].map(() => sharedRoom(alice, [bob])));
    for (let n = rooms.length; n < 50; n++) rooms.push(await alice.createRoom({ room_version: "12" }));
    const staleNow = async () => {
      const reported = await Promise.all(rooms.map((room) => plane.enforcement(room, b.name)));
      return reported.filter(({ enforces_state }) => !enforces_state).length;
    };
    const underTraffic = async (work: () => Promise<void>) => {
      let isOn = true;
      const typing = [b, c].map((server) => traffic(server, rooms, () => isOn));
      await work().finally(() => {
        isOn = false;
      });
      await Promise.all(typing);
    };
    let notesRead = plane.notes.length;
    const counted = () => {
      const found = { stale: 0, repaired: 0 };
      for (const note of plane.notes.slice(notesRead)) {
        const counts = /^(\d+) rooms? stale at the own homeserver, (\d+) repaired$/.exec(note);
        found.stale += Number(counts?.[1] ?? 0);
        found.repaired += Number(counts?.[2] ?? 0);
      }
      notesRead = plane.notes.length;
      process.stdout.write(`${found.stale} stale, ${found.repaired} repaired\n`);
      return found;
    };

    // What happens to an ACL that nobody looks after: it stays stale when all is quiet again.
    await underTraffic(async () => {
      const acl = { allow: aclAllow([a.name, c.name]), deny: [], allow_ip_literals: false };
      for (const room of rooms.slice(2, 22))
        await alice.call("PUT", inRoom(room, "state/m.room.server_acl/"), acl);
    });
    const unattended = await staleNow();
    process.stdout.write(`${unattended} of 20 stale where nobody looks\n`);
    assert.ok(unattended > 0);

    await underTraffic(async () => {
      assert.deepEqual(await plane.apply(intent(closingB())), IN_FORCE);
      assert.equal(await staleNow(), 0);
    });
    const closed = counted();
    assert.ok(closed.stale > unattended, "the pass itself was raced as well");
    assert.equal(closed.repaired, closed.stale);
    for (const room of rooms) assert.equal((await plane.enforcement(room, b.name)).allowed, false);

    await underTraffic(async () => {
      assert.deepEqual(await plane.apply(intent()), IN_FORCE);
      assert.equal(await staleNow(), 0);
    });
    const opened = counted();
    assert.ok(opened.stale > 0);
    assert.equal(opened.repaired, opened.stale);
    for (const room of rooms) assert.equal((await plane.enforcement(room, b.name)).allowed, true);
  });

  it("an ACL that is not enforced in a room that nobody closes is drift, and the next pass has it enforced [NEG-1] [PLN-2]", async () => {
    const { alice, bob, plane, servers, intent } = scene;
    const { a, b, c } = servers;
    const acl = { allow: aclAllow([a.name, b.name]), deny: [], allow_ip_literals: false };
    /** A room of bob's that alice joins after she was invited: her homeserver has looked up its ACL in between. */
    const joined = async () => {
      const room = await bob.createRoom({
        preset: "private_chat",
        invite: [alice.userId],
        initial_state: [{ type: "m.room.server_acl", state_key: "", content: acl }],
      });
      assert.equal((await plane.enforcement(room, c.name)).allowed, true, "nothing of the room is here yet");
      assert.equal((await alice.join(room, b.name)).status, 200);
      return room;
    };
    const drifted = async (room: RoomId) =>
      (await plane.drift(intent())).filter(({ subject }) => subject === room).map(({ kind }) => kind);

    await a.stop();
    a.loadBorder("unrepaired_border.UnrepairedBorder");
    await a.start();
    const room = await joined();
    const before = await plane.enforcement(room, c.name);
    assert.deepEqual([before.allowed, before.enforces_state], [true, false], "the homeserver by itself");
    assert.deepEqual(await drifted(room), ["enforcement"]);
    assert.deepEqual(await plane.apply(intent()), IN_FORCE);
    const after = await plane.enforcement(room, c.name);
    assert.deepEqual([after.allowed, after.enforces_state], [false, true]);
    assert.deepEqual(await drifted(room), []);

    await a.stop();
    a.loadBorder("drawbridge_border.BorderModule");
    await a.start();
    const watched = await joined();
    assert.equal((await plane.enforcement(watched, c.name)).allowed, false, "the border module by itself");
    assert.deepEqual(await drifted(watched), []);

    await alice.call("POST", inRoom(watched, "leave"), {});
    assert.deepEqual(await drifted(watched), [], "a room that the homeserver has left");
  });

  it("a room of ours with a member of an unregistered server is closed by a denial, and a moderator's denials stay [PLN-2]", async () => {
    const { alice, bob, carol, plane, servers, intent, closingB, sharedRoom } = scene;
    const { a, b } = servers;
    // The registry does not know C here.
    const known = (...closing: ClosingPartner[]) => ({
      ...(intent(...closing) as object),
      allow: aclAllow([a.name, ...(closing.length === 0 ? [b.name] : [])]),
      retained: closing.length === 0 ? [b.name] : [],
    });
    const room = await sharedRoom(alice, [bob, carol]);
    const moderated = { allow: ["*"], deny: ["evil.test"], allow_ip_literals: false };
    await alice.call("PUT", inRoom(room, "state/m.room.server_acl/"), moderated);
    const acl = async () =>
      (await stateOf(alice, room)).find(({ type }) => type === "m.room.server_acl")?.content;

    const closed = await plane.apply(known(closingB()));
    const reached = "outOfReach" in closed ? closed.outOfReach.filter(({ subject }) => subject === room) : [];
    assert.deepEqual(reached, []);
    assert.deepEqual((await acl())?.["deny"], [...aclAllow([b.name]), "evil.test"].sort());
    assert.deepEqual((await acl())?.["allow"], ["*"]);
    assert.equal(await membership(alice, room, bob), "ban");
    assert.equal(await membership(alice, room, carol), "join");
    assert.equal((await plane.enforcement(room, b.name)).allowed, false);

    await plane.apply(known());
    assert.deepEqual((await acl())?.["deny"], ["evil.test"]);
    assert.equal((await plane.enforcement(room, b.name)).allowed, true);
  });
});
