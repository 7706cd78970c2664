// What a process takes of those that have ended, on a clock that stands still until the test moves it.
import assert from "node:assert/strict";
import { it } from "node:test";
import { pino } from "pino";
import { Ownership } from "../../../src/bridge/ownership.ts";
import type { GhostMxid } from "../../../src/domain/identifiers.ts";
import { ManualClock } from "../../support/manual-clock.ts";

const GHOST = "@agent_docs:a.test" as GhostMxid;
const NOTHING = async () => {};

for (const releaseMs of [400, 900])
  it(`a process takes others' ghosts after one release of their leases, also when that takes ${releaseMs} ms [DEL-9]`, async (t) => {
    const clock = new ManualClock(0);
    let releases = 0;
    const ownership = new Ownership({
      open: async () => ({
        process: "2",
        broken: new AbortController().signal,
        observe: async () => ({ live: ["2"], sharing: 1, owners: new Map([[GHOST, "1"]]) }),
        take: async (names: readonly string[]) => names,
        ...{ leave: NOTHING, giveUp: NOTHING, notify: NOTHING, close: NOTHING },
      }),
      releaseEnded: async () => {
        releases += 1;
        await clock.sleep(releaseMs);
        return 0;
      },
      ghosts: async () => [GHOST],
      isSettled: () => true,
      ...{ onTaken: NOTHING, close: NOTHING, onLost: NOTHING, onReleased: NOTHING, onNotified: NOTHING },
      clock,
      log: pino({ level: "silent" }),
    });
    t.after(() => ownership.end());
    const starting = ownership.start(new AbortController().signal);
    for (let ms = 0; ms <= releaseMs + 500; ms += 50) await clock.advance(50);
    assert.deepEqual([ownership.ghosts, releases], [[GHOST], 1]);
    await starting;
  });
