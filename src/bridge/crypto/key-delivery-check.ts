// Checks whether keys come with the homeserver's transactions: a ghost sends itself a to-device message. A homeserver on
// which a flag is missing leaves such messages out silently, and ghosts then get their keys late, by the catchup alone.
// Invariants: the message holds a nonce and nothing else; one check at a time.
import type { Clock, Random } from "../../domain/clock.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import type { DeviceChanges } from "../matrix/device-changes.ts";
import type { Outcome } from "../matrix/request-result.ts";

const CHECK_TYPE = "org.drawbridge.delivery_check";
const ARRIVES_WITHIN_MS = 20_000;
/** A message that was due while transactions failed never comes, so one missing message proves nothing. */
const MISSING_MIN = 3;
const AGAIN_AFTER_MS = 5 * 60_000;
/** A homeserver may be restarted without its flags. */
const VALID_MS = 60 * 60_000;

export type KeyDelivery = "unknown" | "works" | "no_to_device" | "no_key_counts";

export interface KeyDeliveryState {
  readonly result: KeyDelivery;
  readonly observedAt: number | undefined;
}

export interface KeyDeliveryDependencies {
  readonly clock: Clock;
  readonly random: Random;
  readonly send: (ghost: GhostMxid, eventType: string, content: UnknownObject) => Promise<Outcome<undefined>>;
}

export function createKeyDeliveryCheck({ clock, random, send }: KeyDeliveryDependencies) {
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
