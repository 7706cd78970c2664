// The rooms plane on real homeservers: A removes B, C is a neutral third server. The tests share them, in
// this order: rooms that one has closed stay closed for the next.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { systemClock } from "../../../../src/domain/clock.ts";
import { type RoomId, serverHost } from "../../../../src/domain/identifiers.ts";
import { aclAllow } from "../../../../src/federation/planes/rooms/acl.ts";
import type { ClosingPartner } from "../../../../src/federation/planes/rooms/render.ts";
import { journalIn } from "../../../../src/federation/planes/rooms/undo-journal.ts";
import { type FederatedUser, until } from "../../../support/federation.ts";
import { FEDERATION_PROCESS } from "../../../support/kills.ts";
import { type RoomsScene, roomsDeployment, roomsScene } from "../../../support/rooms-deployment.ts";

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

/** Sorted: where a server was slow to show it, it was sent again in another order. */
async function aclOf(room: RoomId): Promise<unknown> {
  const events = await stateOf(scene.alice, room);
  const allow = events.find(({ type }) => type === "m.room.server_acl")?.content["allow"];
  return Array.isArray(allow) ? allow.toSorted() : allow;
}

/** Everything that was ever sent into a room of one type, newest first. */
async function sent(room: RoomId, type: string): Promise<Event[]> {
  const filter = encodeURIComponent(JSON.stringify({ types: [type] }));
  const page = await scene.alice.call("GET", inRoom(room, `messages?dir=b&limit=200&filter=${filter}`));
  return page["chunk"] as Event[];
}

function closingC(): ClosingPartner {
  return { ...scene.closingB(), serverName: scene.servers.c.name, name: "org-c" };
}

describe("rooms plane on real homeservers", () => {
  it("rooms of A are closed in versions 10, 11 and 12, a second pass does nothing, and restoring invites B back [PLN-2]", async () => {
    const { alice, bob, carol, plane, servers, intent, closingB, sharedRoom } = scene;
    const rooms = await Promise.all(
      ["10", "11", "12"].map((version) => sharedRoom(alice, [bob, carol], version)),
    );
    const invited = await alice.createRoom({ preset: "private_chat", invite: [bob.userId] });
    assert.deepEqual(await plane.apply(intent(closingB())), IN_FORCE);

    for (const room of rooms) {
      assert.equal(await membership(alice, room, bob), "ban");
      assert.equal((await bob.join(room, servers.c.name)).status, 403);
      assert.deepEqual(await aclOf(room), aclAllow([servers.a.name, servers.c.name]));
    }
    assert.equal(await membership(alice, invited, bob), "ban");

    const eventIds = async (room: RoomId) => (await stateOf(alice, room)).map(({ event_id }) => event_id);
    const before = await Promise.all([...rooms, invited].map(eventIds));
    assert.deepEqual(await plane.apply(intent(closingB())), { state: "in_force", changed: false });
    assert.deepEqual(await Promise.all([...rooms, invited].map(eventIds)), before);
    assert.deepEqual(await plane.drift(intent(closingB())), []);

    assert.deepEqual(await plane.apply(intent()), IN_FORCE);
    for (const room of [...rooms, invited]) {
      assert.equal(await membership(alice, room, bob), "invite");
      await until(
        "the way back",
        () => bob.join(room),
        ({ status }) => status === 200,
      );
    }
  });

  it("a room that B's user created is listed, or replaced and purged, and our alias and ghost come along [PLN-2]", async () => {
    const { alice, bob, carol, plane, intent, closingB, sharedRoom, servers } = scene;
    const ghost = await scene.ghost("agent_docs");
    const room = await sharedRoom(bob, [alice, carol, ghost]);
    const alias = `#shared:${servers.a.name}`;
    const directory = `/directory/room/${encodeURIComponent(alias)}`;
    await alice.call("PUT", directory, { room_id: room });
    await until(
      "everybody at A",
      () => membership(alice, room, carol),
      (found) => found === "join",
    );
    const listed = await plane.apply(intent(closingB()));
    assert.ok(listed.state === "incomplete");
    assert.deepEqual(
      listed.outOfReach.filter(({ subject }) => subject === room).map(({ reason }) => reason),
      ["partner_created", "no_power"],
    );

    assert.deepEqual(
      await plane.apply(intent(closingB({ mode: "removed", unclosable: "replace" }))),
      IN_FORCE,
    );
    const { joined_rooms: joined } = (await alice.call("GET", "/joined_rooms")) as { joined_rooms: RoomId[] };
    assert.ok(!joined.includes(room));
    const made = (await alice.call("GET", directory))["room_id"] as RoomId;
    const state = await stateOf(alice, made);
    const content = (type: string) => state.find((event) => event.type === type)?.content;
    assert.partialDeepStrictEqual(content("m.room.create"), { predecessor: { room_id: room } });
    assert.equal(content("m.room.name")?.["name"], "shared");
    assert.equal(content("m.room.canonical_alias")?.["alias"], alias);
    assert.equal(await membership(alice, made, carol), "invite");
    // It accepts by itself, as it does with every other invitation.
    assert.equal(await membership(alice, made, ghost), "invite");
    assert.equal(await membership(alice, made, bob), undefined);
    await plane.apply(intent());
    // It was removed, not contained: whoever admits it again invites whom that is meant for.
    assert.equal(await membership(alice, made, bob), undefined);
  });

  it("a partner's room is replaced whatever it holds, and never by a room of ours that it names [CON-1] [PLN-2]", async () => {
    const { alice, bob, carol, plane, intent, closingB, servers } = scene;
    const roomsOf = async () => (await alice.call("GET", "/joined_rooms"))["joined_rooms"] as RoomId[];
    const secret = await alice.createRoom({ preset: "private_chat", name: "secret" });
    const before = new Set(await roomsOf());
    const trap = await bob.createRoom({
      ...{ preset: "private_chat", topic: "redacted below", invite: [alice.userId, carol.userId] },
      creation_content: { predecessor: { room_id: secret } },
    });
    for (const user of [alice, carol]) {
      const join = () => user.join(trap, servers.b.name);
      await until("the way in", join, ({ status }) => status === 200);
    }
    const topic = (await stateOf(bob, trap)).find(({ type }) => type === "m.room.topic");
    await bob.call("PUT", inRoom(trap, `redact/${encodeURIComponent(topic?.event_id ?? "")}/1`), {});
    const deny = [servers.a, servers.c].map(({ name }) => serverHost(name));
    await bob.call("PUT", inRoom(trap, "state/m.room.server_acl"), { allow: ["*"], deny });
    const found = async (type: string) => (await stateOf(alice, trap)).find((event) => event.type === type);
    await until("B's ACL at A", () => found("m.room.server_acl"), Boolean);
    await until(
      "everybody at A",
      () => membership(alice, trap, carol),
      (how) => how === "join",
    );
    assert.deepEqual((await found("m.room.topic"))?.content, {});

    assert.deepEqual(await plane.apply(intent(closingB({ unclosable: "replace" }))), IN_FORCE);
    const [made, ...more] = (await roomsOf()).filter((id) => !before.has(id));
    assert.ok(made !== undefined && more.length === 0);
    assert.equal((await carol.join(made, servers.a.name)).status, 200);
    await plane.apply(intent());
    assert.equal(await membership(alice, made, bob), "invite");
    const named = (await stateOf(alice, secret)).filter(({ type }) => type === "m.room.member");
    assert.deepEqual(
      named.map(({ state_key }) => state_key),
      [alice.userId],
      "nobody came into the secret room",
    );
  });

  it("two partners that contain each other in turn replace a room once, and then go to and fro between two [CON-1] [PLN-2]", async () => {
    const { alice, bob, carol, plane, servers, intent, closingB, sharedRoom } = scene;
    const { a, b, c } = servers;
    const root = await b.user("root", true);
    const planeOfB = roomsDeployment(b, root.accessToken, join(scene.folder, "of-b"));
    const closingA = { ...closingB({ unclosable: "replace" }), serverName: a.name, name: "org-a" };
    const intentOfB = (...closing: object[]) => {
      const retained = closing.length === 0 ? [a.name, c.name] : [c.name];
      return {
        version: 1,
        own: b.name,
        allow: aclAllow([b.name, ...retained]),
        retained,
        ghosts: [],
        closing,
      };
    };
    const roomsOf = async (user: FederatedUser) =>
      (await user.call("GET", "/joined_rooms"))["joined_rooms"] as RoomId[];
    const before = new Set([...(await roomsOf(alice)), ...(await roomsOf(bob))]);
    /** The rooms since then that a user is in. */
    const newRooms = async (user: FederatedUser) =>
      (await roomsOf(user)).filter((id) => !before.has(id)).sort();
    const comes = (user: FederatedUser, room: RoomId, via: typeof a) =>
      until(
        "the way back",
        () => user.join(room, via.name),
        ({ status }) => status === 200,
      );

    const first = await sharedRoom(bob, [alice, carol]);
    await until(
      "everybody at A",
      () => membership(alice, first, carol),
      (found) => found === "join",
    );
    const containsB = intent(closingB({ unclosable: "replace" }));
    assert.deepEqual(await plane.apply(containsB), IN_FORCE);
    const [second, ...more] = await newRooms(alice);
    assert.ok(second !== undefined && second !== first && more.length === 0, "A has one room in its place");
    await plane.apply(intent());
    await comes(bob, second, a);

    for (let turn = 1; turn <= 2; turn++) {
      assert.deepEqual(await planeOfB.apply(intentOfB(closingA)), IN_FORCE, planeOfB.notes.join("\n"));
      assert.deepEqual(await newRooms(bob), [first], "B goes back to its own room");
      await planeOfB.apply(intentOfB());
      await comes(alice, first, b);
      assert.deepEqual(await newRooms(alice), [first, second].sort());

      assert.deepEqual(await plane.apply(containsB), IN_FORCE, plane.notes.slice(-5).join("\n"));
      assert.deepEqual(await newRooms(alice), [second], "A goes back to the room that it has made");
      assert.equal((await bob.join(second, a.name)).status, 403);
      await plane.apply(intent());
      await comes(bob, second, a);
    }
  });

  it("of two partners closed at once, one comes back and the other stays out [PLN-2]", async () => {
    const { alice, bob, carol, plane, servers, intent, closingB, sharedRoom } = scene;
    const room = await sharedRoom(alice, [bob, carol]);
    assert.deepEqual(await plane.apply(intent(closingB(), closingC())), IN_FORCE);
    assert.deepEqual(
      [await membership(alice, room, bob), await membership(alice, room, carol)],
      ["ban", "ban"],
    );
    assert.deepEqual(await aclOf(room), aclAllow([servers.a.name]));

    assert.deepEqual(await plane.apply(intent(closingC())), IN_FORCE);
    assert.deepEqual(
      [await membership(alice, room, bob), await membership(alice, room, carol)],
      ["invite", "ban"],
    );
    assert.deepEqual(await aclOf(room), aclAllow([servers.a.name, servers.b.name]));
    assert.deepEqual(await plane.drift(intent(closingC())), []);
    const levels = async () =>
      (await stateOf(alice, room)).find(({ type }) => type === "m.room.power_levels")?.content["invite"];
    assert.equal(await levels(), 50, "the other still needs it");
    assert.deepEqual(await plane.apply(intent()), IN_FORCE);
    assert.equal(await membership(alice, room, carol), "invite");
    assert.notEqual(await levels(), 50);
  });

  it("a pass that is killed again and again bans each user once and sets each ACL once [PLN-2]", async () => {
    const { alice, bob, plane, root, servers, folder, intent, closingB, sharedRoom } = scene;
    const rooms = await Promise.all(Array.from({ length: 6 }, () => sharedRoom(alice, [bob])));
    const journal = () => {
      const records = journalIn(join(folder, "state/rooms"), servers.b.name).rooms;
      return records.filter(({ room }) => rooms.includes(room));
    };
    // By what the journal says: invite levels and bans, then bans and ACLs.
    const instants = [
      () => journal().length >= 2,
      () => journal().some(({ bans }) => [...bans.values()].some(({ event }) => event !== undefined)),
      () => journal().some(({ acl }) => acl !== undefined),
    ];
    for (const isNow of instants) {
      const argument = {
        server: servers.a,
        operatorToken: root.accessToken,
        folder,
        intent: intent(closingB()),
      };
      const child = spawn(process.execPath, [FEDERATION_PROCESS, "rooms", JSON.stringify(argument)], {
        stdio: "ignore",
      });
      const ended = once(child, "exit");
      while (child.exitCode === null && !isNow()) await systemClock.sleep(1);
      child.kill("SIGKILL");
      assert.deepEqual(await ended, [null, "SIGKILL"]);
    }
    assert.deepEqual(await plane.apply(intent(closingB())), IN_FORCE);
    for (const room of rooms) {
      const bans = (await sent(room, "m.room.member")).filter(
        ({ content }) => content["membership"] === "ban",
      );
      assert.deepEqual(
        bans.map(({ state_key }) => state_key),
        [bob.userId],
      );
      // One, or one sent again to who has not shown it: the same names in another order.
      const acls = (await sent(room, "m.room.server_acl")).map(({ content }) => content);
      const names = acls.map(({ allow }) => JSON.stringify((allow as string[]).toSorted()));
      assert.deepEqual([new Set(names).size, acls.length <= 2], [1, true], JSON.stringify(acls));
    }
    // What stood there before is known still.
    assert.deepEqual(await plane.apply(intent()), IN_FORCE);
    for (const room of rooms) assert.equal(await membership(alice, room, bob), "invite");
    const left = journalIn(join(folder, "state/rooms"), servers.b.name);
    assert.deepEqual(left.rooms, []);
  });

  it("a room is made read-only, writable again when B is back, and in the end retired [PLN-2]", async () => {
    const { alice, bob, carol, plane, servers, intent, closingB, sharedRoom } = scene;
    const room = await sharedRoom(alice, [bob, carol]);
    let turn = 0;
    const write = async () => {
      const path = inRoom(room, `send/m.room.message/${turn++}`);
      return (await carol.request("PUT", path, { msgtype: "m.text", body: "written" })).status;
    };
    assert.deepEqual(await plane.apply(intent(closingB({ after: "read_only" }))), IN_FORCE);
    await until("read-only at C", write, (status) => status === 403);
    await alice.say(room, "who holds the room still writes");
    assert.deepEqual(await plane.apply(intent()), IN_FORCE);
    await until("writable at C", write, (status) => status === 200);

    await bob.join(room);
    assert.deepEqual(await plane.apply(intent(closingB({ mode: "removed", after: "retire" }))), IN_FORCE);
    const { joined_rooms: joined } = (await alice.call("GET", "/joined_rooms")) as { joined_rooms: RoomId[] };
    assert.ok(!joined.includes(room));
    assert.equal((await alice.join(room, servers.c.name)).status, 403);
    await until(
      "left, as C sees it",
      () => membership(carol, room, alice),
      (found) => found === "leave",
    );
  });

  it("a partner's user whose ID the grammar excludes is banned by its raw ID, and comes back by it [PLN-2]", async () => {
    const { alice, plane, servers, intent, closingB } = scene;
    const { b } = servers;
    const room = await alice.createRoom({ room_version: "10" });
    const users = ["@a b", "@c\u00a0d", "@\u00e9"].map((name) => `${name}:${b.name}`);
    for (const user_id of users) {
      const { status, body } = await alice.request("POST", inRoom(room, "invite"), { user_id });
      assert.equal(status, 200, `${user_id}: ${JSON.stringify(body)}`);
    }
    const memberships = async () => {
      const events = await stateOf(alice, room);
      return users.map((user) => events.find(({ state_key }) => state_key === user)?.content["membership"]);
    };
    assert.deepEqual(await memberships(), ["invite", "invite", "invite"]);
    await plane.apply(intent(closingB()));
    assert.deepEqual(await memberships(), ["ban", "ban", "ban"]);
    await plane.apply(intent());
    assert.deepEqual(await memberships(), ["invite", "invite", "invite"]);
  });
});
