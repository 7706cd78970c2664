// What is wrong with ghosts' devices, link by link, and the mend of each: for /readyz and `drawbridge doctor`.
// Invariant: one ghost's trouble is shown and does not make the bridge unready: the others go on.
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { Readiness } from "../observe.ts";
import { DEVICE_STOP_MENDS, type DeviceStatus, type GhostDevices, type KeyDelivery } from "./device-types.ts";

/** So many ghosts are named for one trouble; the others are counted. */
const NAMED_MAX = 3;

const FLAGS =
  "In homeserver.yaml set `experimental_features: {msc2409_to_device_messages_enabled: true, msc3202_transaction_extensions: true}`, render the registration again with `drawbridge bridge registration`, and restart the homeserver.";

const DELIVERY_MENDS: Readonly<Record<KeyDelivery, string | undefined>> = {
  unknown: undefined,
  works: undefined,
  no_to_device: `The homeserver sends no to-device messages in its transactions, so keys come late. ${FLAGS}`,
  no_key_counts: `The homeserver does not count ghosts' keys in its transactions. ${FLAGS}`,
};

function named(ghosts: readonly GhostMxid[]): string {
  const more = ghosts.length - NAMED_MAX;
  const list = ghosts.slice(0, NAMED_MAX).join(", ");
  return more > 0 ? `${list} and ${more} more` : list;
}

export function deviceReadiness(
  devices: Pick<GhostDevices, "statuses" | "delivery">,
  configured: readonly GhostMxid[],
): readonly Readiness[] {
  const known = new Map(devices.statuses().map((status) => [status.ghost, status]));
  const which = (holds: (status: DeviceStatus | undefined) => boolean) =>
    configured.filter((ghost) => holds(known.get(ghost)));
  const checks: Readiness[] = [];
  const check = (name: string, ghosts: readonly GhostMxid[], mend: string) => {
    const shown = ghosts.length === 0 ? {} : { mend: `${named(ghosts)}: ${mend}` };
    checks.push({ name, ok: ghosts.length === 0, blocking: false, ...shown });
  };

  const reasons = new Set([...known.values()].map(({ stopped }) => stopped));
  for (const reason of reasons) {
    if (reason === undefined) continue;
    const ghosts = which((status) => status?.stopped === reason);
    check(`device_${reason}`, ghosts, DEVICE_STOP_MENDS[reason]);
  }
  check(
    "device_keys_published",
    which((status) => status?.stopped === undefined && status?.state !== "ready"),
    "the device is not open yet; it is tried again by itself. If that lasts, read the bridge's log.",
  );
  check(
    "devices_cross_signed",
    which((status) => status?.state === "ready" && !status.crossSigned),
    "not cross-signed, so clients that share keys with verified devices alone share none. Start the bridge again; if that does not help, read its log.",
  );
  check(
    "keys_read_back",
    which((status) => status?.state === "ready" && status.catchUpFailing),
    "to-device messages cannot be read back from the homeserver, so lost keys stay lost. Read the homeserver's log.",
  );
  const mend = DELIVERY_MENDS[devices.delivery()];
  checks.push({
    name: "keys_by_transaction",
    ok: mend === undefined,
    blocking: false,
    ...(mend !== undefined && { mend }),
  });
  return checks;
}
