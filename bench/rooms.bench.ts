// The rooms plane at a hundred rooms of three homeservers: the partner out of all of them, and each verified.
// Its reference is what cannot be saved: the same three events in each of the same rooms, sent and nothing else.
import type { RoomId } from "../src/domain/identifiers.ts";
import { serverAcl } from "../src/federation/planes/rooms/acl.ts";
import { mapConcurrent } from "../src/runtime/concurrency.ts";
import { type RoomsScene, roomsScene } from "../tests/support/rooms-deployment.ts";
import type { Bench, BenchContext, BenchRow } from "./bench.ts";

const ROOMS = 100;
const AT_ONCE = 8;
const BAR_MS = 10_000;
const DRIFT_BAR_MS = 1_000;

const seconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`;

async function timed<T>(work: () => Promise<T>): Promise<{ ms: number; value: T }> {
  const begun = performance.now();
  const value = await work();
  return { ms: performance.now() - begun, value };
}

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

async function run({ postgresUrl, progress }: BenchContext): Promise<readonly BenchRow[]> {
  const scene = await roomsScene({ postgresUrl });
  try {
    const { plane, intent, closingB } = scene;
    await scene.sharedRooms(ROOMS);
    const closed = await timed(() => plane.apply(intent(closingB())));
    if (closed.value.state !== "in_force") throw new Error(JSON.stringify(closed.value));
    progress(`closed and verified: ${seconds(closed.ms)}`);
    const drift = await timed(() => plane.drift(intent(closingB())));
    if (drift.value.length > 0) throw new Error(JSON.stringify(drift.value));
    const others = await scene.sharedRooms(ROOMS);
    const bare = await timed(() => sendBare(scene, others));
    progress(`the same events alone: ${seconds(bare.ms)}`);
    return [
      {
        measure: `${ROOMS} rooms closed and verified`,
        ours: seconds(closed.ms),
        reference: `${seconds(bare.ms)} (the same events, sent and nothing else)`,
        bar: `≤ ${seconds(BAR_MS)}`,
        outcome: `${(closed.ms / bare.ms).toFixed(2)} of the reference`,
        met: closed.ms <= BAR_MS,
      },
      {
        measure: `drift of ${ROOMS} rooms`,
        ours: seconds(drift.ms),
        reference: `${seconds(closed.ms)} (closing them)`,
        bar: `≤ ${seconds(DRIFT_BAR_MS)}`,
        outcome: `${(drift.ms / ROOMS).toFixed(1)} ms a room`,
        met: drift.ms <= DRIFT_BAR_MS,
      },
    ];
  } finally {
    await scene.dispose();
  }
}

export const bench: Bench = {
  name: "Rooms",
  minutes: 30,
  description:
    "A hundred rooms, each with users of three homeservers on this machine. One partner is taken out of all of " +
    "them, 8 rooms at a time, and it is seen that the homeserver and the retained one enforce that. " +
    "Beside it the same three events sent to as many other rooms of the same servers, as fast, and nothing " +
    "read, journaled or verified.",
  run,
};
