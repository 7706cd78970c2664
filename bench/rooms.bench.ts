// The rooms plane at one, a hundred and a thousand rooms of three homeservers: the partner out of all of them, and each
// verified. Its reference is what cannot be saved: the same three events in as many rooms, sent and nothing else.
import type { RoomId } from "../src/domain/identifiers.ts";
import { serverAcl } from "../src/federation/planes/rooms/acl.ts";
import { mapConcurrent } from "../src/runtime/concurrency.ts";
import { type RoomsScene, roomsScene } from "../tests/support/rooms-deployment.ts";
import type { Bench, BenchContext, BenchRow } from "./bench.ts";
import { seconds, timedOnce } from "./support/measure.ts";
import { size } from "./support/size.ts";

const ROOMS = size([1, 100, 1_000], [1, 4]);
const AT_ONCE = 8;
const MADE_AT_A_TIME = 50;
const TIMES_MAX = 1.1;
/** Of a hundred rooms. */
const DRIFT_BAR_MS = 1_000;

/** Level, ban and ACL, as the plane sends them; alice has made the rooms. */
async function sendBare({ alice, bob, servers }: RoomsScene, rooms: readonly RoomId[]): Promise<void> {
  const acl = serverAcl([servers.a.name, "a.test", servers.c.name, "c.test"]);
  await mapConcurrent(rooms, AT_ONCE, async (room) => {
    const state = `/rooms/${encodeURIComponent(room)}/state`;
    const levels = await alice.call("GET", `${state}/m.room.power_levels/`);
    await alice.call("PUT", `${state}/m.room.power_levels/`, { ...levels, invite: 50 });
    const member = `${state}/m.room.member/${encodeURIComponent(bob.userId)}`;
    await alice.call("PUT", member, { membership: "ban" });
    await alice.call("PUT", `${state}/m.room.server_acl/`, { ...acl });
  });
}

async function sharedRooms(scene: RoomsScene, count: number, progress: (text: string) => void) {
  const rooms: RoomId[] = [];
  while (rooms.length < count) {
    rooms.push(...(await scene.sharedRooms(Math.min(MADE_AT_A_TIME, count - rooms.length))));
    progress(`${rooms.length} of ${count} rooms made`);
  }
  return rooms;
}

async function measure(rooms: number, { postgresUrl, progress }: BenchContext): Promise<readonly BenchRow[]> {
  const scene = await roomsScene({ postgresUrl });
  const named = `${rooms.toLocaleString("en")} ${rooms === 1 ? "room" : "rooms"}`;
  try {
    const { plane, intent, closingB } = scene;
    await sharedRooms(scene, rooms, progress);
    const closed = await timedOnce(() => plane.apply(intent(closingB())));
    if (closed.value.state !== "in_force") throw new Error(JSON.stringify(closed.value));
    progress(`closed and verified: ${seconds(closed.ms)}`);
    const drift = await timedOnce(() => plane.drift(intent(closingB())));
    if (drift.value.length > 0) throw new Error(JSON.stringify(drift.value));
    const others = await sharedRooms(scene, rooms, progress);
    const bare = await timedOnce(() => sendBare(scene, others));
    progress(`the same events alone: ${seconds(bare.ms)}`);
    const driftMax = DRIFT_BAR_MS * Math.max(1, rooms / 100);
    return [
      {
        measure: `${named} closed and verified`,
        ours: seconds(closed.ms),
        reference: `${seconds(bare.ms)} (the same events, sent and nothing else)`,
        bar: `≤ ${TIMES_MAX} × the reference`,
        outcome: `${(closed.ms / bare.ms).toFixed(2)} of it; ${(closed.ms / rooms).toFixed(0)} ms a room`,
        met: closed.ms <= TIMES_MAX * bare.ms,
        numbers: { ours: closed.ms / rooms, reference: bare.ms / rooms, unit: "ms a room" },
      },
      {
        measure: `drift of ${named}`,
        ours: seconds(drift.ms),
        reference: `${seconds(closed.ms)} (closing them)`,
        bar: `≤ ${seconds(driftMax)}`,
        outcome: `${(drift.ms / rooms).toFixed(1)} ms a room`,
        met: drift.ms <= driftMax,
      },
    ];
  } finally {
    await scene.dispose();
  }
}

async function run(context: BenchContext): Promise<readonly BenchRow[]> {
  const rows: BenchRow[] = [];
  for (const rooms of ROOMS) rows.push(...(await measure(rooms, context)));
  return rows;
}

export const bench: Bench = {
  name: "Rooms",
  minutes: 40,
  description:
    "One, a hundred and a thousand rooms, each with users of three homeservers on this machine. One partner is taken " +
    "out of all of them, 8 rooms at a time, and it is seen that the homeserver and the retained one enforce that. " +
    "Beside it the same three events sent to as many other rooms of the same servers, as fast, and nothing " +
    "read, journaled or verified. Each number of rooms has homeservers of its own.",
  run,
};
