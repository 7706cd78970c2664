// The rooms plane at a homeserver with many rooms in which nothing has changed: what the reconciler's next passes cost.
// Its reference is the first full pass, which reads every room and closes it.
import type { RoomId } from "../src/domain/identifiers.ts";
import { mapConcurrent } from "../src/runtime/concurrency.ts";
import { roomsScene } from "../tests/support/rooms-deployment.ts";
import type { Bench, BenchContext, BenchRow } from "./bench.ts";
import { seconds, timedOnce } from "./support/measure.ts";
import { size } from "./support/size.ts";

const ROOMS = size(2_000, 20);
const AT_ONCE = 4;
const SHARE_MAX = 0.1;
const NOTE_EVERY = 200;

async function run({ postgresUrl, progress }: BenchContext): Promise<readonly BenchRow[]> {
  const scene = await roomsScene({ postgresUrl });
  try {
    const { alice, plane, intent, closingB } = scene;
    const made: RoomId[] = [];
    await mapConcurrent(Array.from({ length: ROOMS }), AT_ONCE, async () => {
      made.push(await alice.createRoom({ room_version: "12" }));
      if (made.length % NOTE_EVERY === 0) progress(`${made.length} of ${ROOMS} rooms made`);
    });
    const first = await timedOnce(() => plane.apply(intent(closingB())));
    if (first.value.state !== "in_force") throw new Error(JSON.stringify(first.value));
    progress(`the first pass: ${seconds(first.ms)}`);
    const drift = await timedOnce(() => plane.drift(intent(closingB())));
    if (drift.value.length > 0) throw new Error(JSON.stringify(drift.value));
    progress(`a drift check: ${seconds(drift.ms)}`);
    const again = await timedOnce(() => plane.apply(intent(closingB())));
    const row = (measure: string, ms: number, max?: number): BenchRow => ({
      measure,
      ours: seconds(ms),
      reference: `${seconds(first.ms)} (the first pass)`,
      bar: max === undefined ? "none" : `≤ ${max} of the reference`,
      outcome: `${(ms / first.ms).toFixed(2)} of it; ${(ms / ROOMS).toFixed(1)} ms a room`,
      met: max === undefined || ms <= max * first.ms,
      numbers: { ours: ms / 1_000, reference: first.ms / 1_000, unit: "s" },
    });
    const rooms = ROOMS.toLocaleString("en");
    return [
      row(`a pass over ${rooms} unchanged rooms`, drift.ms, SHARE_MAX),
      row(`the state in force applied to ${rooms} rooms once more`, again.ms),
    ];
  } finally {
    await scene.dispose();
  }
}

export const bench: Bench = {
  name: "Reconcile",
  minutes: 10,
  description:
    `${ROOMS.toLocaleString("en")} rooms of a homeserver, while a partner is closed. The first pass reads each of them and sets its ACL. ` +
    "A later pass, with the same registry, asks the homeserver which rooms it enforces otherwise than their state says, and plans " +
    "what would be left to do in as many rooms as it reads in five seconds, beginning where the last pass ended. " +
    "Applying the state once more, which an operator may ask for, reads every room.",
  run,
};
