// What is received of a device when nothing was said of it; apart from the API, so that a thread of machines loads no HTTP
// client.
import type { DeviceChanges } from "./device-api.ts";

export const NO_CHANGES: DeviceChanges = {
  toDevice: [],
  changedUsers: [],
  leftUsers: [],
  oneTimeKeyCounts: undefined,
  unusedFallbackKeys: undefined,
};
