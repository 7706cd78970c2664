// The rooms plane on real homeservers: A removes B, C is a neutral third server.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { systemClock } from "../../../src/domain/clock.ts";
import type { RoomId } from "../../../src/domain/identifiers.ts";
import { aclAllow } from "../../../src/federation/planes/rooms/acl.ts";
import type { ClosingPartner } from "../../../src/federation/planes/rooms/intent.ts";
import { type FederatedUser, type Federation, startFederation, until } from "../../support/federation.ts";
import { type RoomsDeployment, roomsDeployment } from "../../support/rooms-deployment.ts";

type Name = "a" | "b" | "c";
let federation: Federation<Name>;
let alice: FederatedUser;
let bob: FederatedUser;
let carol: FederatedUser;
let plane: RoomsDeployment;
const folder = mkdtempSync(join(tmpdir(), "drawbridge rooms "));

before(async () => {
  federation = await startFederation(["a", "b", "c"] as const, {
    border: { a: (names) => JSON.stringify({ allowed_servers: Object.values(names) }) },
  });
  const { a, b, c } = federation.servers;
  const root = await a.user("root", true);
  [alice, bob, carol] = await Promise.all([a.user("alice"), b.user("bob"), c.user("carol")]);
  plane = roomsDeployment(a, root.accessToken, folder);
});
after(async () => {
  await federation?.dispose();
  rmSync(folder, { recursive: true, force: true });
});

const via = () => Object.values(federation.servers).map(({ name }) => name);
const closingB = (more: Partial<ClosingPartner> = {}): ClosingPartner => ({
  serverName: federation.servers.b.name,
  name: "org-b",
  mode: "contained",
  after: "keep",
  unclosable: "list",
  ...more,
});
const intent = (closing: readonly ClosingPartner[]) => {
  const { a, b, c } = federation.servers;
  const retained = closing.length === 0 ? [b.name, c.name] : [c.name];
  return { version: 1, own: a.name, allow: aclAllow([a.name, ...retained]), retained, closing };
};

async function sharedRoom(
  creator: FederatedUser,
  others: readonly FederatedUser[],
  version = "12",
): Promise<RoomId> {
  const room = await creator.createRoom({ room_version: version, name: "shared" });
  for (const user of others) {
    const joined = await user.join(room, ...via());
    assert.equal(joined.status, 200, JSON.stringify(joined.body));
  }
  return room;
}

async function sharedRooms(count: number): Promise<RoomId[]> {
  const rooms: RoomId[] = [];
  const make = async () => {
    while (rooms.length < count) {
      const at = rooms.push("" as RoomId) - 1;
      rooms[at] = await sharedRoom(alice, [bob, carol]);
    }
  };
  await Promise.all([make(), make(), make(), make()]);
  return rooms;
}

async function stateOf(user: FederatedUser, room: RoomId) {
  const events = (await user.request("GET", `/rooms/${encodeURIComponent(room)}/state`)).body as unknown as {
    type: string;
    state_key: string;
    event_id: string;
    content: Record<string, unknown>;
  }[];
  return events.sort((one, other) => (one.event_id < other.event_id ? -1 : 1));
}

async function membership(user: FederatedUser, room: RoomId, of: FederatedUser) {
  const events = await stateOf(user, room);
  return events.find(({ type, state_key }) => type === "m.room.member" && state_key === of.userId)?.content[
    "membership"
  ];
}

test("PLN-2: rooms of A are closed in versions 10, 11 and 12, a second pass does nothing, and restoring invites B back", async () => {
  const rooms = await Promise.all(
    ["10", "11", "12"].map((version) => sharedRoom(alice, [bob, carol], version)),
  );
  const invited = await alice.createRoom({ preset: "private_chat", invite: [bob.userId] });
  const closed = await plane.apply(intent([closingB()]));
  assert.deepEqual(closed, { state: "in_force", changed: true });

  for (const room of rooms) {
    assert.equal(await membership(alice, room, bob), "ban");
    const again = await bob.join(room, federation.servers.c.name);
    assert.equal(again.status, 403);
    const events = await stateOf(alice, room);
    const ban = events.find(({ state_key }) => state_key === bob.userId);
    const acl = events.find(({ type }) => type === "m.room.server_acl");
    assert.deepEqual(acl?.content["allow"], aclAllow([federation.servers.a.name, federation.servers.c.name]));
    assert.ok(ban !== undefined && acl !== undefined);
  }
  assert.equal(await membership(alice, invited, bob), "ban");

  const eventIds = async (room: RoomId) => (await stateOf(alice, room)).map(({ event_id }) => event_id);
  const before = await Promise.all([...rooms, invited].map(eventIds));
  assert.deepEqual(await plane.apply(intent([closingB()])), { state: "in_force", changed: false });
  assert.deepEqual(await Promise.all([...rooms, invited].map(eventIds)), before);
  assert.deepEqual(await plane.drift(intent([closingB()])), []);

  const opened = await plane.apply(intent([]));
  assert.deepEqual(opened, { state: "in_force", changed: true });
  for (const room of [...rooms, invited]) {
    assert.equal(await membership(alice, room, bob), "invite");
    const back = await until(
      "the way back",
      () => bob.join(room),
      ({ status }) => status === 200,
    );
    assert.equal(back.status, 200);
  }
});

test("PLN-2: a room that B's user created is listed, or replaced and purged, as the intent says", async () => {
  const room = await sharedRoom(bob, [alice, carol]);
  await until(
    "everybody at A",
    () => membership(alice, room, carol),
    (found) => found === "join",
  );
  const listed = await plane.apply(intent([closingB()]));
  assert.equal(listed.state, "incomplete");
  assert.ok(listed.state === "incomplete");
  assert.deepEqual(
    listed.outOfReach.filter(({ subject }) => subject === room).map(({ reason }) => reason),
    ["partner_created", "no_power"],
  );

  const replaced = await plane.apply(intent([closingB({ mode: "removed", unclosable: "replace" })]));
  assert.deepEqual(replaced, { state: "in_force", changed: true });
  const { joined_rooms: joined } = (await alice.call("GET", "/joined_rooms")) as { joined_rooms: RoomId[] };
  assert.ok(!joined.includes(room));
  const states = await Promise.all(joined.map((one) => stateOf(alice, one)));
  const made = states.find((events) =>
    events.some(
      ({ type, content }) =>
        type === "m.room.create" &&
        (content["predecessor"] as { room_id?: string } | undefined)?.room_id === room,
    ),
  );
  assert.ok(made !== undefined);
  assert.ok(made.some(({ type, content }) => type === "m.room.name" && content["name"] === "shared"));
  assert.ok(
    made.some(({ state_key, content }) => state_key === carol.userId && content["membership"] === "invite"),
  );
  assert.ok(!made.some(({ state_key }) => state_key === bob.userId));
  await plane.apply(intent([]));
  const replacement = made.find(({ type }) => type === "m.room.create") as { room_id?: RoomId } | undefined;
  assert.ok(replacement?.room_id !== undefined);
  // It was removed, not contained: whoever admits it again invites whom that is meant for.
  assert.equal(await membership(alice, replacement.room_id, bob), undefined);
});

test("PLN-2: of fifty rooms closed under traffic, none counts as closed while the homeserver enforces an older ACL", async () => {
  const rooms = await sharedRooms(50);
  let talking = true;
  const talk = async (user: FederatedUser) => {
    for (let turn = 0; talking; turn++)
      await user.say(rooms[turn % rooms.length] as RoomId, "traffic").catch(() => undefined);
  };
  const talkers = [talk(bob), talk(carol), talk(carol)];
  const closed = await plane.apply(intent([closingB()]));
  talking = false;
  await Promise.all(talkers);
  assert.equal(closed.state, "in_force", JSON.stringify(closed));
  for (const room of rooms) {
    const seen = await plane.enforcement(room, federation.servers.b.name);
    assert.deepEqual([seen.allowed, seen.enforces_state], [false, true]);
  }
  process.stdout.write(`${plane.notes.filter((line) => line.includes("enforcement")).at(-1)}\n`);
  await plane.apply(intent([]));
});

test("PLN-2: a hundred rooms are closed in one pass, and the time is printed", async () => {
  await sharedRooms(100);
  const startedAt = systemClock.now();
  const closed = await plane.apply(intent([closingB()]));
  const tookMs = systemClock.now() - startedAt;
  process.stdout.write(`a hundred rooms closed and verified: ${tookMs} ms\n`);
  assert.equal(closed.state, "in_force", JSON.stringify(closed));
  await plane.apply(intent([]));
});
