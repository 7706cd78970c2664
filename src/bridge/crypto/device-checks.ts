// What is wrong with ghosts' devices, and a hint for each problem: for /readyz and `drawbridge doctor`.
// Invariant: one ghost's problem is shown and does not make the bridge unready, because the others go on.
import type { GhostMxid } from "../../domain/identifiers.ts";
import { counted } from "../../domain/printable.ts";
import type { Readiness } from "../health/health-server.ts";
import { DEVICE_STOP_REASONS, type DeviceStopReason } from "../ledger/states.ts";
import type { DeviceStatus } from "./ghost-device.ts";
import type { GhostDevices } from "./ghost-devices.ts";
import type { KeyDelivery, KeyDeliveryState } from "./key-delivery-check.ts";

const NAMED_MAX = 3;

const FLAGS =
  "In homeserver.yaml set `experimental_features: {msc2409_to_device_messages_enabled: true, msc3202_transaction_extensions: true}`, render the registration again with `drawbridge bridge registration`, and restart the homeserver.";

export const DEVICE_STOP_HINTS: Readonly<Record<DeviceStopReason, string>> = {
  store_lost:
    "Restore the bridge's database as it was, or give the ghost a new device: `drawbridge ghost device reset`.",
  store_foreign:
    "Restore the key file that `encryption.storeKeys` names, or run `drawbridge ghost device reset`.",
  store_behind: "Restore the newest state of the bridge's database, or run `drawbridge ghost device reset`.",
  device_deleted: "Find out who deleted the device, then run `drawbridge ghost device reset`.",
};

const DELIVERY_HINTS: Readonly<Record<Exclude<KeyDelivery, "works">, string>> = {
  unknown:
    "Nothing yet: a ghost's device sends itself a message to check whether it comes back. Run the command again in a minute.",
  no_to_device: `The homeserver sends no to-device messages in its transactions, so keys come late. ${FLAGS}`,
  no_key_counts: `The homeserver does not count ghosts' keys in its transactions. ${FLAGS}`,
};

const ghostCount = (count: number) => counted(count, "ghost");

function named(ghosts: readonly GhostMxid[]): string {
  const more = ghosts.length - NAMED_MAX;
  const list = ghosts.slice(0, NAMED_MAX).join(", ");
  return more > 0 ? `${list} and ${more} more` : list;
}

export function deviceReadiness(
  devices: Pick<GhostDevices, "statuses" | "keyDelivery">,
  configured: readonly GhostMxid[],
): readonly Readiness[] {
  const statuses = new Map(devices.statuses().map((status) => [status.ghost, status]));
  const running = configured.filter((ghost) => statuses.get(ghost)?.stopped === undefined);
  const ready = running
    .flatMap((ghost) => statuses.get(ghost) ?? [])
    .filter(({ state }) => state === "ready");
  const readyWith = (has: (status: DeviceStatus) => boolean) => ready.filter(has).map(({ ghost }) => ghost);

  const checks: Readiness[] = DEVICE_STOP_REASONS.flatMap((reason) => {
    const ghosts = configured.filter((ghost) => statuses.get(ghost)?.stopped === reason);
    if (ghosts.length === 0) return [];
    const hint = `${named(ghosts)}: ${DEVICE_STOP_HINTS[reason]}`;
    return [{ name: `device_${reason}`, ok: false, blocking: false, found: ghostCount(ghosts.length), hint }];
  });
  const check = (name: string, of: number, failing: readonly GhostMxid[], hint: string) => {
    const ok = failing.length === 0;
    const found = ok ? `yes, of ${ghostCount(of)}` : `no, of ${failing.length} of ${ghostCount(of)}`;
    checks.push({ name, ok, blocking: false, found, ...(!ok && { hint: `${named(failing)}: ${hint}` }) });
  };
  check(
    "device_keys_published",
    running.length,
    running.filter((ghost) => statuses.get(ghost)?.state !== "ready"),
    "the device is not open yet; it is tried again by itself. If that lasts, read the bridge's log.",
  );
  check(
    "devices_cross_signed",
    ready.length,
    readyWith(({ crossSigned }) => !crossSigned),
    "not cross-signed, so clients that share keys with verified devices alone share none. Start the bridge again; if that does not help, read its log.",
  );
  check(
    "key_catchup",
    ready.length,
    readyWith(({ catchupFailing }) => catchupFailing),
    "the catchup of to-device messages fails, so lost keys stay lost. Read the homeserver's log.",
  );
  checks.push(deliveryReadiness(devices.keyDelivery()));
  return checks;
}

function deliveryReadiness({ result, observedAt }: KeyDeliveryState): Readiness {
  const check = { name: "keys_by_transaction", blocking: false };
  const times = observedAt === undefined ? "" : `, last observed ${new Date(observedAt).toISOString()}`;
  if (result === "works") return { ...check, ok: true, found: `yes${times}; checked again once an hour` };
  const hint = DELIVERY_HINTS[result];
  if (result === "unknown") return { ...check, ok: false, known: false, found: "not known yet", hint };
  return { ...check, ok: false, found: `no${times}; checked again every five minutes`, hint };
}
