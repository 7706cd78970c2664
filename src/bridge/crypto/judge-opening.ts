// Whether a ghost's device may be opened, from what its store and the homeserver each say of it. Pure.
// Invariant: whenever the two do not fit together, the device stops; nothing here ever asks for a new one
// where there was one before.
import type { RecordedDevice } from "../ledger/ghosts.ts";
import type { DeviceStopReason } from "../ledger/states.ts";
import type { DeviceRecord, PublishedDevice } from "../matrix/device-api.ts";
import type { OpenResult } from "./types.ts";

export interface OpeningFacts {
  readonly deviceId: string;
  /** What came of loading the store. */
  readonly opened: OpenResult;
  /** Read after what the homeserver says: while another process still runs, the epoch here only grows. */
  readonly store: RecordedDevice["store"];
  /** The device's keys at the homeserver. */
  readonly published: PublishedDevice | undefined;
  /** What the homeserver was told of the ghost's device before. */
  readonly record: DeviceRecord | undefined;
}

export type Opening =
  | { readonly kind: "go" }
  /** There was no device before: make one. */
  | { readonly kind: "create" }
  | { readonly kind: "stop"; readonly reason: DeviceStopReason };

const stop = (reason: DeviceStopReason): Opening => ({ kind: "stop", reason });

export function judgeOpening({ deviceId, opened, store, published, record }: OpeningFacts): Opening {
  switch (opened.kind) {
    case "foreign":
      return stop("store_foreign");
    case "no_store":
      // The record is written before the first key goes out, and a reset writes it with epoch 0.
      return published !== undefined || (record?.epoch ?? 0n) > 0n ? stop("store_lost") : { kind: "create" };
    // Nothing was asked to be created yet.
    case "store_exists":
      return stop("store_foreign");
    case "opened": {
      if (published === undefined && store?.publishedAt !== undefined) return stop("device_deleted");
      if (record !== undefined) {
        // A reset has happened that this store knows nothing of, or uploads have.
        if (record.deviceId !== deviceId) return stop("store_behind");
        if (record.epoch > (store?.epoch ?? 0n)) return stop("store_behind");
      }
      const { identity } = opened;
      const isOurs =
        published === undefined ||
        (published.identity.ed25519 === identity.ed25519 &&
          published.identity.curve25519 === identity.curve25519);
      return isOurs ? { kind: "go" } : stop("store_foreign");
    }
  }
}
