// Decides whether a ghost's device may be opened, from what its store and the homeserver each say of it. Pure.
// Invariant: whenever the two are inconsistent, the device stops; no new device is ever made where there was one before.
import { isDeepStrictEqual } from "node:util";
import type { RecordedDevice } from "../ledger/ghosts.ts";
import type { DeviceStopReason } from "../ledger/states.ts";
import type { DeviceRecord, PublishedDevice } from "../matrix/device-api.ts";
import type { OpenResult } from "./machines.ts";

export interface DeviceFacts {
  readonly deviceId: string;
  readonly opened: OpenResult;
  /** Read after the homeserver's part: while another process still runs, the epoch here only grows. */
  readonly store: RecordedDevice["store"];
  readonly published: PublishedDevice | undefined;
  /** What was recorded about the device at the homeserver. */
  readonly record: DeviceRecord | undefined;
}

export type Consistency =
  | { readonly kind: "consistent" }
  /** There was no device before: one has to be made. */
  | { readonly kind: "create" }
  | { readonly kind: "stop"; readonly reason: DeviceStopReason };

const stop = (reason: DeviceStopReason): Consistency => ({ kind: "stop", reason });

export function checkConsistency({ deviceId, opened, store, published, record }: DeviceFacts): Consistency {
  switch (opened.kind) {
    case "foreign":
      return stop("store_foreign");
    case "no_store":
      // The record is written before the first key is uploaded, and a reset writes it with epoch 0.
      return published !== undefined || (record?.epoch ?? 0n) > 0n ? stop("store_lost") : { kind: "create" };
    // Only a creation is answered so, and none was requested yet.
    case "store_exists":
      return stop("store_foreign");
    case "opened": {
      if (published === undefined && store?.publishedAt !== undefined) return stop("device_deleted");
      if (record !== undefined) {
        // A reset has happened that this store does not contain, or uploads have.
        if (record.deviceId !== deviceId) return stop("store_behind");
        if (record.epoch > (store?.epoch ?? 0n)) return stop("store_behind");
      }
      const isOurs = published === undefined || isDeepStrictEqual(published.identity, opened.identity);
      return isOurs ? { kind: "consistent" } : stop("store_foreign");
    }
  }
}
