// Whether keys come with the homeserver's transactions, found out by doing: a ghost sends itself a to-device
// message. A homeserver on which a flag is missing leaves the messages out without a word, and ghosts then
// get their keys late, by read-back alone.
// Invariants: what is sent holds a nonce and nothing else; one check at a time; once it was seen to work, it
// is not made again.
import type { Clock, Random } from "../../domain/clock.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { Outcome } from "../matrix/outcome.ts";
import type { KeyDelivery } from "./device-types.ts";
import type { DeviceChanges } from "./types.ts";

const CHECK_TYPE = "org.drawbridge.delivery_check";
const ARRIVES_WITHIN_MS = 20_000;
/** What a homeserver had to send while transactions failed never comes, so one that is missing says little. */
const MISSING_TELL = 3;
const AGAIN_AFTER_MS = 5 * 60_000;

export interface DeliveryCheckDependencies {
  readonly clock: Clock;
  readonly random: Random;
  /** Sends a to-device message of this type from a ghost to its own device. */
  readonly send: (
    ghost: GhostMxid,
    eventType: string,
    content: Readonly<Record<string, unknown>>,
  ) => Promise<Outcome<undefined>>;
}

export class DeliveryCheck {
  readonly #deps: DeliveryCheckDependencies;
  #result: KeyDelivery = "unknown";
  #missing = 0;
  #sent: { readonly ghost: GhostMxid; readonly nonce: string; readonly at: number } | undefined;

  constructor(deps: DeliveryCheckDependencies) {
    this.#deps = deps;
  }

  get result(): KeyDelivery {
    return this.#result;
  }

  /** Sees what a transaction brought. */
  seen(changes: ReadonlyMap<GhostMxid, DeviceChanges>): void {
    const sent = this.#sent;
    const change = sent === undefined ? undefined : changes.get(sent.ghost);
    if (sent === undefined || change === undefined) return;
    const isThere = change.toDevice.some(
      ({ type, sender, content }) =>
        type === CHECK_TYPE &&
        sender === sent.ghost &&
        (content as { nonce?: unknown } | undefined)?.nonce === sent.nonce,
    );
    if (!isThere) return;
    // The counts of the ghost's keys come with whatever comes for it.
    const isCounted = change.oneTimeKeyCounts !== undefined || change.unusedFallbackKeys !== undefined;
    this.#result = isCounted ? "works" : "no_key_counts";
  }

  /**
   * Makes the check, or judges one that was made.
   * @param ghost one whose device is ready
   */
  async look(ghost: GhostMxid): Promise<void> {
    const { clock, random, send } = this.#deps;
    if (this.#result === "works") return;
    const now = clock.now();
    if (this.#sent !== undefined) {
      const known = this.#missing >= MISSING_TELL || this.#result !== "unknown";
      if (now - this.#sent.at < (known ? AGAIN_AFTER_MS : ARRIVES_WITHIN_MS)) return;
      this.#missing += 1;
      if (this.#missing >= MISSING_TELL && this.#result === "unknown") this.#result = "no_to_device";
    }
    const nonce = random.bytes(12).toString("base64url");
    // Before it is sent: it may arrive before the homeserver has answered.
    this.#sent = { ghost, nonce, at: now };
    if ((await send(ghost, CHECK_TYPE, { nonce })).kind !== "ok") this.#sent = undefined;
  }
}
