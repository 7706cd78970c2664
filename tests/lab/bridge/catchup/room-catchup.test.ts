// What a ghost catches up of its rooms from a real homeserver, and how it notices that one's stop.
import assert from "node:assert/strict";
import { after, describe, it, type TestContext } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { pino } from "pino";
import { untilServing, untilStopped } from "../../../../src/bridge/catchup/catchup.ts";
import {
  type FoundBounds,
  FoundBudget,
  type FoundEvent,
  type RawEvent,
} from "../../../../src/bridge/catchup/found-events.ts";
import {
  createRoomCatchup,
  type MissedTransaction,
  readRooms,
} from "../../../../src/bridge/catchup/room-catchup.ts";
import { SyncApi } from "../../../../src/bridge/catchup/sync-api.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { EventId, GhostMxid, RoomId } from "../../../../src/domain/identifiers.ts";
import { ghostSide } from "../../../support/ghosts.ts";
import { startSynapse, type TestUser } from "../../../support/synapse.ts";

const GHOST = "@agent_docs:a.test" as GhostMxid;
const OTHER = "@agent_ships:a.test" as GhostMxid;

const synapse = await startSynapse();
const side = ghostSide({ after: after as TestContext["after"] }, synapse.url, { asToken: synapse.asToken });
const api = new SyncApi({
  url: synapse.url,
  asToken: synapse.asToken,
  requestTimeoutMs: 30_000,
  clock: systemClock,
});
after(async () => {
  await api.close();
  await synapse.dispose();
});
const alice = await synapse.user("alice");
const signal = new AbortController().signal;
for (const ghost of [GHOST, OTHER]) assert.equal((await side.ghosts.ensureGhost(ghost)).kind, "ok");

let texts = 0;
const say = (user: TestUser, room: RoomId, body: string) =>
  user.call("PUT", `/rooms/${encodeURIComponent(room)}/send/m.room.message/t${++texts}`, {
    msgtype: "m.text",
    body,
  });

async function join(ghost: GhostMxid, room: RoomId): Promise<void> {
  const actor = { ghost, deviceId: (await side.ledger.ghosts.ensureDevice(ghost, "", 0)).deviceId };
  assert.equal((await side.homeserver.join(actor, room, [])).kind, "ok");
}

async function roomOf(...ghosts: GhostMxid[]): Promise<RoomId> {
  const room = await alice.createRoom({ invite: ghosts });
  for (const ghost of ghosts) await join(ghost, room);
  return room;
}

async function positionOf(ghost: GhostMxid): Promise<string> {
  const position = await api.position({ ghost });
  assert.ok(position.kind === "ok");
  return position.value;
}

const readSince = (since: string) => readRooms(api, { ghost: GHOST }, since, new FoundBudget());
const contents = (events: readonly FoundEvent[] = []) => events.map(({ raw }) => raw ?? assert.fail());
const bodies = (events: readonly RawEvent[] = []) =>
  events
    .filter(({ type }) => type === "m.room.message")
    .map(({ content }) => String((content as { body?: unknown }).body));
const memberships = (events: readonly RawEvent[] = []) =>
  events
    .filter(({ type }) => type === "m.room.member")
    .map(({ content, state_key }) => [state_key, (content as { membership?: unknown }).membership]);

describe("the catchup of rooms on a real homeserver", () => {
  it("all events of a long absence are caught up, room by room in the homeserver's order [INT-8]", async () => {
    const rooms = [await roomOf(GHOST), await roomOf(GHOST)];
    const since = await positionOf(GHOST);
    const said = Array.from({ length: 120 }, (_, index) => `text ${index}`);
    for (const body of said) await say(alice, rooms[0] ?? assert.fail(), body);
    await say(alice, rooms[1] ?? assert.fail(), "elsewhere");
    const read = await readSince(since);
    assert.ok(read.kind === "ok");
    assert.deepEqual(read.value.cut, []);
    assert.deepEqual(bodies(contents(read.value.window.get(rooms[0] ?? assert.fail()))), said);
    assert.deepEqual(bodies(contents(read.value.window.get(rooms[1] ?? assert.fail()))), ["elsewhere"]);
    for (const [room, events] of read.value.window)
      for (const event of contents(events)) assert.equal(event["room_id"], room);
    const again = await readSince(read.value.next);
    assert.ok(again.kind === "ok" && again.value.window.size === 0);
  });

  it("an invitation is caught up, and nothing that was said before the ghost joined [INT-8]", async () => {
    const room = await alice.createRoom();
    const since = await positionOf(GHOST);
    await say(alice, room, "before");
    await alice.call("POST", `/rooms/${encodeURIComponent(room)}/invite`, { user_id: GHOST });
    const invited = await readSince(since);
    assert.ok(invited.kind === "ok");
    assert.deepEqual(memberships(contents(invited.value.window.get(room))), [[GHOST, "invite"]]);
    assert.match(String(invited.value.window.get(room)?.[0]?.id), /^\$/);
    await say(alice, room, "between");
    await join(GHOST, room);
    await say(alice, room, "after");
    await alice.call("POST", `/rooms/${encodeURIComponent(room)}/kick`, { user_id: GHOST });
    await say(alice, room, "behind its back");
    const left = await readSince(since);
    assert.ok(left.kind === "ok");
    const events = contents(left.value.window.get(room));
    assert.deepEqual(bodies(events), ["after"]);
    assert.deepEqual(memberships(events).slice(-2), [
      [GHOST, "join"],
      [GHOST, "leave"],
    ]);
  });

  /** Catches up as the bridge does, into a list. */
  function catchup(using: SyncApi = api, bounds?: FoundBounds) {
    const positions = new Map<GhostMxid, string>();
    const taken: MissedTransaction[] = [];
    const handled = new Set<EventId>();
    const rooms = createRoomCatchup({
      api: using,
      ...(bounds !== undefined && { bounds }),
      ghosts: side.ghosts,
      handled: async (events) => new Set(events.filter((id) => handled.has(id))),
      positions: {
        get: async (ghost) => positions.get(ghost),
        set: async (ghost, since) => {
          if (since === null) positions.delete(ghost);
          else positions.set(ghost, since);
        },
      },
      intake: async (transaction) => {
        taken.push(transaction);
        return { admitted: 0 };
      },
      catchupRoomState: async () => {},
      log: pino({ level: "silent" }),
    });
    return { rooms, positions, handled, taken, events: () => taken.flatMap(({ events }) => events) };
  }

  it("events of a room with two ghosts are caught up once, and those that transactions brought are not [INT-8]", async () => {
    const room = await roomOf(GHOST);
    const { rooms, handled, taken, events } = catchup();
    const ghosts = [GHOST, OTHER];
    assert.deepEqual(await rooms.afterDowntime(ghosts, signal), { complete: true, events: 0, admitted: 0 });
    const first = await say(alice, room, "one");
    await alice.call("POST", `/rooms/${encodeURIComponent(room)}/invite`, { user_id: OTHER });
    await join(OTHER, room);
    await say(alice, room, "two");
    await say(alice, room, "three");
    handled.add(first["event_id"] as EventId);
    assert.equal((await rooms.afterDowntime(ghosts, signal)).complete, true);
    assert.deepEqual(bodies(events()), ["two", "three"]);
    assert.deepEqual(memberships(events()), [[OTHER, "join"]]);
    const { length } = taken;
    await rooms.afterDowntime(ghosts, signal);
    assert.equal(taken.length, length);
  });

  it("an event is passed on one round after it was read in quiet times, and then the position moves [INT-8]", async () => {
    const room = await roomOf(GHOST);
    const { rooms, positions, handled, events } = catchup();
    await rooms.afterDowntime([GHOST], signal);
    const before = positions.get(GHOST);
    await say(alice, room, "lost");
    const brought = await say(alice, room, "brought late");
    await rooms.quietly([GHOST], signal);
    assert.deepEqual([bodies(events()), positions.get(GHOST)], [[], before]);
    handled.add(brought["event_id"] as EventId);
    await rooms.quietly([GHOST], signal);
    assert.deepEqual(bodies(events()), ["lost"]);
    assert.notEqual(positions.get(GHOST), before);
    // What is held when the homeserver stops is handed on with the rest.
    await say(alice, room, "held");
    await rooms.quietly([GHOST], signal);
    await say(alice, room, "after it");
    await rooms.afterDowntime([GHOST], signal);
    assert.deepEqual(bodies(events()), ["lost", "held", "after it"]);
  });

  it("events that exceed the memory bound are caught up in order [INT-8]", async (t) => {
    const options = {
      url: synapse.url,
      asToken: synapse.asToken,
      requestTimeoutMs: 30_000,
      clock: systemClock,
    };
    // No answer about rooms is small enough for it.
    const sparing = new SyncApi(options, { changesBytesMax: 1_000 });
    t.after(() => sparing.close());
    const rooms = [await roomOf(GHOST), await roomOf(GHOST, OTHER)];
    const since = await Promise.all([GHOST, OTHER].map(positionOf));
    const said = Array.from({ length: 130 }, (_, index) => `${index} ${"x".repeat(100)}`);
    for (const body of said) await say(alice, rooms[0] ?? assert.fail(), body);
    for (const body of said.slice(0, 60)) await say(alice, rooms[1] ?? assert.fail(), body);
    await alice.call("POST", `/rooms/${encodeURIComponent(rooms[1] ?? "")}/kick`, { user_id: OTHER });
    await say(alice, rooms[1] ?? assert.fail(), "the end");
    const taken = [];
    const none = { charactersMax: 0, eventsMax: 1_000 };
    for (const { using, bounds } of [
      { using: api, bounds: undefined },
      { using: sparing, bounds: undefined },
      { using: sparing, bounds: none },
      { using: api, bounds: { ...none, charactersMax: 10_000 } },
    ]) {
      const back = catchup(using, bounds);
      for (const [index, ghost] of [GHOST, OTHER].entries()) back.positions.set(ghost, since[index] ?? "");
      assert.equal((await back.rooms.afterDowntime([GHOST, OTHER], signal)).complete, true);
      const inRoom = (room?: RoomId) => back.events().filter((event) => event["room_id"] === room);
      assert.deepEqual(bodies(inRoom(rooms[0])), said);
      assert.deepEqual(bodies(inRoom(rooms[1])), [...said.slice(0, 60), "the end"]);
      assert.deepEqual(memberships(inRoom(rooms[1])), [[OTHER, "leave"]]);
      taken.push(rooms.flatMap(inRoom).map((event) => [event["event_id"], event["content"]]));
    }
    for (const one of taken) assert.ok(isDeepStrictEqual(one, taken[0]));
  });

  it("a position of another database, or from its future, is replaced by one of now [INT-8]", async () => {
    const room = await roomOf(GHOST);
    for (const wrong of ["s999999_1_0_1_1_1_1_1_0_1_1", "not a position"]) {
      const { rooms, positions, events } = catchup();
      positions.set(GHOST, wrong);
      assert.equal((await rooms.afterDowntime([GHOST], signal)).complete, true, wrong);
      assert.notEqual(positions.get(GHOST), wrong);
      await say(alice, room, wrong);
      await rooms.afterDowntime([GHOST], signal);
      assert.deepEqual(bodies(events()), [wrong]);
    }
  });

  it("a stop of the homeserver is detected at once, and so is its return [INT-8]", async (t) => {
    const watched = { api, ghosts: side.ghosts, clock: systemClock };
    const stopped = untilStopped(watched, [GHOST], signal);
    let isStopped = false;
    void stopped.then(() => {
      isStopped = true;
    });
    const room = await roomOf(GHOST);
    await say(alice, room, "it goes on");
    await systemClock.sleep(300);
    assert.equal(isStopped, false);
    const begun = systemClock.now();
    const ending = synapse.stop();
    await stopped;
    t.diagnostic(`noticed ${systemClock.now() - begun} ms after the signal`);
    await ending;
    const back = untilServing(watched, signal);
    await synapse.start();
    await back;
  });
});
