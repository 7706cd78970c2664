// What is wrong with ghosts' devices, and a hint for each problem: for /readyz and `drawbridge doctor`; and the check
// whether keys come with the homeserver's transactions. Invariants: one ghost's problem is shown and does not make the
// bridge unready, because the others go on; a check's message holds a nonce and nothing else; one check at a time.
import type { Clock, Random } from "../../domain/clock.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import { counted } from "../../domain/printable.ts";
import type { Readiness } from "../health/health-server.ts";
import { DEVICE_STOP_REASONS, type DeviceStopReason } from "../ledger/states.ts";
import type { DeviceChanges } from "../matrix/device-changes.ts";
import type { Outcome } from "../matrix/request-result.ts";
import type { DeviceStatus } from "./ghost-device.ts";

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

const HINTS = {
  device_keys_published:
    "the device is not open yet; it is tried again by itself. If that lasts, read the bridge's log.",
  devices_cross_signed:
    "not cross-signed, so clients that share keys with verified devices alone share none. Start the bridge again; if that does not help, read its log.",
  key_catchup:
    "the catchup of to-device messages fails; until it succeeds, keys that transactions have lost do not come. Read the homeserver's log.",
};

const ghostCount = (count: number) => counted(count, "ghost");

function named(ghosts: readonly GhostMxid[]): string {
  const more = ghosts.length - NAMED_MAX;
  const list = ghosts.slice(0, NAMED_MAX).join(", ");
  return more > 0 ? `${list} and ${more} more` : list;
}

export function deviceReadiness(
  devices: { statuses(): readonly DeviceStatus[]; keyDelivery(): KeyDeliveryState },
  configured: readonly GhostMxid[],
): readonly Readiness[] {
  const statuses = new Map(devices.statuses().map((status) => [status.ghost, status]));
  const running = configured.filter((ghost) => statuses.get(ghost)?.stopped === undefined);
  const ready = running.filter((ghost) => statuses.get(ghost)?.state === "ready");

  const checks: Readiness[] = DEVICE_STOP_REASONS.flatMap((reason) => {
    const ghosts = configured.filter((ghost) => statuses.get(ghost)?.stopped === reason);
    if (ghosts.length === 0) return [];
    const hint = `${named(ghosts)}: ${DEVICE_STOP_HINTS[reason]}`;
    return [{ name: `device_${reason}`, ok: false, blocking: false, found: ghostCount(ghosts.length), hint }];
  });
  const check = (
    name: keyof typeof HINTS,
    ghosts: typeof configured,
    isOk: (of?: DeviceStatus) => boolean,
  ) => {
    const bad = ghosts.filter((ghost) => !isOk(statuses.get(ghost)));
    const [ok, all] = [bad.length === 0, ghostCount(ghosts.length)];
    const found = ok ? `yes, of ${all}` : `no, of ${bad.length} of ${all}`;
    checks.push({ name, ok, blocking: false, found, ...(!ok && { hint: `${named(bad)}: ${HINTS[name]}` }) });
  };
  check("device_keys_published", running, (device) => device?.state === "ready");
  check("devices_cross_signed", ready, (device) => device?.crossSigned === true);
  check("key_catchup", ready, (device) => device?.catchupFailing === false);
  const delivery = devices.keyDelivery();
  // A process whose ghosts are all another's has no device that could send the message.
  if (running.length > 0 || delivery.result !== "unknown") checks.push(deliveryReadiness(delivery));
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

const CHECK_TYPE = "org.drawbridge.delivery_check";
const ARRIVES_WITHIN_MS = 20_000;
/** A message that was due while transactions failed never comes, so one missing message proves nothing. */
const MISSING_MIN = 3;
const AGAIN_AFTER_MS = 5 * 60_000;
/** A homeserver may be restarted without its flags. */
const VALID_MS = 60 * 60_000;

export type KeyDelivery = "unknown" | "works" | "no_to_device" | "no_key_counts";

export type KeyDeliveryState = { readonly result: KeyDelivery; readonly observedAt: number | undefined };

// A homeserver on which a flag is missing leaves to-device messages out silently: keys then come late, by the catchup alone.
/** A ghost sends itself a to-device message, and sees whether it comes. */
export function createKeyDeliveryCheck(
  clock: Clock,
  random: Random,
  send: (ghost: GhostMxid, eventType: string, content: UnknownObject) => Promise<Outcome<undefined>>,
) {
  let state: KeyDeliveryState = { result: "unknown", observedAt: undefined };
  let missing = 0;
  let expected: { readonly ghost: GhostMxid; readonly nonce: string; readonly at: number } | undefined;

  function received(changes: ReadonlyMap<GhostMxid, DeviceChanges>): void {
    const { ghost, nonce } = expected ?? {};
    const change = ghost && changes.get(ghost);
    if (change === undefined) return;
    const isThere = change.toDevice.some(
      ({ type, sender, content }) =>
        type === CHECK_TYPE &&
        sender === ghost &&
        (content as { nonce?: unknown } | undefined)?.nonce === nonce,
    );
    if (!isThere) return;
    expected = undefined;
    missing = 0;
    // The counts of the ghost's keys come with whatever comes for it.
    const isCounted = change.oneTimeKeyCounts !== undefined || change.unusedFallbackKeys !== undefined;
    found(isCounted ? "works" : "no_key_counts");
  }

  /** Sends the message when a check is due, and counts one that did not come in time. */
  async function check(ghost: GhostMxid): Promise<void> {
    const now = clock.now();
    if (expected === undefined) {
      const validMs = state.result === "works" ? VALID_MS : AGAIN_AFTER_MS;
      if (state.observedAt !== undefined && now - state.observedAt < validMs) return;
    } else {
      if (now - expected.at < (missing < MISSING_MIN ? ARRIVES_WITHIN_MS : AGAIN_AFTER_MS)) return;
      missing += 1;
      if (missing >= MISSING_MIN) found("no_to_device");
    }
    const nonce = random.bytes(12).toString("base64url");
    // Recorded before it is sent, because it may arrive before the homeserver has answered.
    const sent = { ghost, nonce, at: now };
    expected = sent;
    if ((await send(ghost, CHECK_TYPE, { nonce })).kind !== "ok" && expected === sent) expected = undefined;
  }

  function found(result: KeyDelivery): void {
    state = { result, observedAt: clock.now() };
  }

  return {
    received,
    check,
    get state() {
      return state;
    },
  };
}
