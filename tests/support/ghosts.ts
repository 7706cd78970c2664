// Ghosts for tests, with devices kept in memory as the ledger keeps them: made once, never changed; and what their notices
// need besides.
import type { TestContext } from "node:test";
import type { EnsuredDevice } from "../../src/bridge/ledger/ghosts.ts";
import type { GhostLedger } from "../../src/bridge/ledger/ledger.ts";
import { Ghosts } from "../../src/bridge/matrix/ghosts.ts";
import { Homeserver } from "../../src/bridge/matrix/homeserver.ts";
import { EN } from "../../src/bridge/texts/en.ts";
import { systemRandom } from "../../src/domain/clock.ts";
import type { GhostMxid } from "../../src/domain/identifiers.ts";
import { ManualClock } from "./manual-clock.ts";

export function memoryGhostLedger(): {
  readonly ghosts: Pick<GhostLedger, "ensureDevice" | "recordProfile" | "hadKeys">;
  readonly recorded: ReadonlyMap<GhostMxid, EnsuredDevice>;
} {
  const devices = new Map<GhostMxid, EnsuredDevice>();
  const ghosts: Pick<GhostLedger, "ensureDevice" | "recordProfile" | "hadKeys"> = {
    hadKeys: async () => false,
    ensureDevice: async (ghost, freshDeviceId) => {
      const none = { profileDigest: undefined, profileSetAt: undefined };
      const device = devices.get(ghost) ?? { deviceId: freshDeviceId, ...none };
      devices.set(ghost, device);
      return device;
    },
    recordProfile: async (ghost, profileDigest, profileSetAt) => {
      const device = devices.get(ghost);
      if (device !== undefined) devices.set(ghost, { ...device, profileDigest, profileSetAt });
    },
  };
  return { ghosts, recorded: devices };
}

export interface GhostSide {
  readonly homeserver: Homeserver;
  readonly ghosts: Ghosts;
  readonly clock: ManualClock;
  readonly ledger: ReturnType<typeof memoryGhostLedger>;
  /** What was asked of the homeserver, by name, in order. */
  readonly operations: readonly string[];
  /** The same bridge after its process was replaced: what it kept in memory is gone. */
  restarted(): Ghosts;
}

/** The bridge's side of a homeserver, real or scripted. */
export function ghostSide(
  t: Pick<TestContext, "after">,
  homeserverUrl: string,
  options: { asToken?: string; requestTimeoutMs?: number; now?: number } = {},
): GhostSide {
  const clock = new ManualClock(options.now ?? Date.UTC(2026, 0, 1));
  const operations: string[] = [];
  const homeserver = new Homeserver({
    url: homeserverUrl,
    asToken: options.asToken ?? "as-token",
    requestTimeoutMs: options.requestTimeoutMs ?? 30_000,
    clock,
    observe: (operation) => operations.push(operation),
  });
  t.after(() => homeserver.close());
  const ledger = memoryGhostLedger();
  const make = () => new Ghosts({ homeserver, ledger, clock, random: systemRandom });
  return { homeserver, ghosts: make(), clock, ledger, operations, restarted: make };
}

export const noticeTexts = {
  textsOf: () => EN,
  cards: { verifiedCard: () => undefined },
};
