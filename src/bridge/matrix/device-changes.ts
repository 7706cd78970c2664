// What a transaction, or a catchup, brings for a ghost's device; apart from the API, whose HTTP client no thread loads.
import type { UserId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";

export interface DeviceChanges {
  /** To-device messages, raw, in the order they came: `{ sender, type, content }`. */
  readonly toDevice: readonly UnknownObject[];
  readonly changedUsers: readonly UserId[];
  readonly leftUsers: readonly UserId[];
  /** By algorithm; undefined when nothing was said: the last known counts stay. */
  readonly oneTimeKeyCounts: Readonly<Record<string, number>> | undefined;
  /** Undefined when nothing was said. */
  readonly unusedFallbackKeys: readonly string[] | undefined;
}

export const NO_CHANGES: DeviceChanges = {
  toDevice: [],
  changedUsers: [],
  leftUsers: [],
  oneTimeKeyCounts: undefined,
  unusedFallbackKeys: undefined,
};
