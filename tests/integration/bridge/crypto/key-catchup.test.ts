// Catchup of keys from a homeserver that holds more for a ghost's device than anybody should have sent.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { createKeyCatchup } from "../../../../src/bridge/crypto/key-catchup.ts";
import type { RoomId } from "../../../../src/domain/identifiers.ts";
import { ghostSide } from "../../../support/ghosts.ts";
import { scriptedHomeserver } from "../../../support/http-server.ts";
import { ghost } from "../../../support/ledger.ts";
import { recordedLog } from "../../../support/recorded-log.ts";

const KEY = { type: "m.room_key", sender: "@alice:a.test", content: { session_id: "s" } };
const MiB = 1024 * 1024;
const large = (bytes: number) => ({
  type: "x",
  sender: "@mallory:b.test",
  content: { a: "x".repeat(bytes) },
});

/** What the homeserver holds for the device, page by page, and who reads it. */
async function reading(t: TestContext, pages: readonly (readonly unknown[])[], takesMs = 0) {
  const homeserver = await scriptedHomeserver(t, ({ path, query }) => {
    if (!path.endsWith("/sync")) return { body: {} };
    const at = Number(query.get("since")?.slice(1) ?? "0");
    const events = pages[at] ?? [];
    return { body: { next_batch: `s${Math.min(at + 1, pages.length)}`, to_device: { events } } };
  });
  const side = ghostSide(t, homeserver.url);
  const taken: unknown[] = [];
  const positions: (string | null)[] = [];
  const counted = { skipped: 0, outcomes: [] as string[] };
  const { log, text } = recordedLog();
  const catchup = createKeyCatchup({
    ghost: ghost(),
    api: side.homeserver.devices,
    positions: {
      get: async () => positions.at(-1) ?? undefined,
      set: async (_ghost, since) => void positions.push(since),
    },
    clock: side.clock,
    log,
    observe: {
      toDevice: () => {},
      toDeviceSkipped: (count) => {
        counted.skipped += count;
      },
      keyCatchupEnded: (outcome) => counted.outcomes.push(outcome),
    },
    onNewKeys: () => {},
    ensure: async () => ({ kind: "ok", value: { ghost: ghost(), deviceId: "DEVICE" } }),
    take: async ({ toDevice }) => {
      await side.clock.advance(takesMs);
      taken.push(...toDevice);
      return ["!r" as RoomId];
    },
    onRefused: async () => {},
  });
  return { catchup, taken, positions, counted, text, clock: side.clock };
}

describe("KeyCatchup", () => {
  it("keys behind a page of far too large messages are caught up [ENC-8]", async (t) => {
    const page = [KEY, ...Array.from({ length: 6 }, () => large(4 * MiB)), KEY];
    const { catchup, taken, positions, counted, text } = await reading(t, [page, [KEY]]);
    assert.equal((await catchup.run()).kind, "ok");
    assert.deepEqual(taken, [KEY, KEY, KEY]);
    assert.deepEqual(positions, ["s1", "s2"]);
    assert.deepEqual(counted, { skipped: 6, outcomes: ["ok"] });
    assert.equal(catchup.isFailing, false);
    assert.match(
      text(),
      /"messages":6,"msg":"to-device messages were too large or nested too deep, and were skipped"/,
    );
  });

  it("many messages that are large, but not too large, are read within a bound [ENC-8]", async (t) => {
    const page = Array.from({ length: 100 }, () => large(127 * 1024));
    const { catchup, taken, counted } = await reading(t, [page, page, [KEY]]);
    assert.equal((await catchup.run()).kind, "ok");
    assert.deepEqual([taken.length, counted.skipped], [201, 0]);
  });

  it("another catchup is due at once when there are more pages than one catchup reads", async (t) => {
    const page = Array.from({ length: 100 }, () => KEY);
    const pages = Array.from({ length: 51 }, () => page);
    const { catchup, taken } = await reading(t, pages);
    await catchup.run();
    assert.deepEqual([taken.length, catchup.isDue], [5_000, true]);
    await catchup.run();
    assert.deepEqual([taken.length, catchup.isDue], [5_100, false]);
  });

  it("the next catchup is due some minutes after the last one ended, however long that took", async (t) => {
    const MINUTE_MS = 60_000;
    const { catchup, clock } = await reading(t, [[KEY]], 6 * MINUTE_MS);
    await catchup.run();
    assert.equal(catchup.isDue, false);
    await clock.advance(5 * MINUTE_MS);
    assert.equal(catchup.isDue, true);
  });
});
