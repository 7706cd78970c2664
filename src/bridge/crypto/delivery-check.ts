// Whether keys come with the homeserver's transactions, found out by doing: a ghost sends itself a to-device
// message. A homeserver on which a flag is missing leaves the messages out without a word, and ghosts then
// get their keys late, by catchup alone.
// Invariants: what is sent holds a nonce and nothing else; one check at a time; what was seen to work is
// believed for an hour and then looked at again, because a homeserver can be started anew without its flags.
import type { Clock, Random } from "../../domain/clock.ts";
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { DeviceChanges } from "../matrix/device-api.ts";
import type { Outcome } from "../matrix/outcome.ts";
import type { KeyDelivery, KeyDeliveryState } from "./device-types.ts";

const CHECK_TYPE = "org.drawbridge.delivery_check";
const ARRIVES_WITHIN_MS = 20_000;
/** What a homeserver had to send while transactions failed never comes, so one that is missing says little. */
const MISSING_TELL = 3;
const AGAIN_AFTER_MS = 5 * 60_000;
/** So long "works" is believed. */
const BELIEVED_MS = 60 * 60_000;

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
  #state: KeyDeliveryState = { result: "unknown", since: undefined, seenAt: undefined };
  #missing = 0;
  /** What is on its way; undefined when the last one came, or could not be sent. */
  #sent: { readonly ghost: GhostMxid; readonly nonce: string; readonly at: number } | undefined;

  constructor(deps: DeliveryCheckDependencies) {
    this.#deps = deps;
  }

  get state(): KeyDeliveryState {
    return this.#state;
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
    this.#sent = undefined;
    this.#missing = 0;
    // The counts of the ghost's keys come with whatever comes for it.
    const isCounted = change.oneTimeKeyCounts !== undefined || change.unusedFallbackKeys !== undefined;
    this.#found(isCounted ? "works" : "no_key_counts");
  }

  /**
   * Makes the check, or judges one that was made.
   * @param ghost one whose device is ready
   */
  async look(ghost: GhostMxid): Promise<void> {
    const { clock, random, send } = this.#deps;
    const now = clock.now();
    if (this.#sent === undefined) {
      const believed = this.#state.result === "works" ? BELIEVED_MS : AGAIN_AFTER_MS;
      if (this.#state.seenAt !== undefined && now - this.#state.seenAt < believed) return;
    } else {
      if (now - this.#sent.at < (this.#missing < MISSING_TELL ? ARRIVES_WITHIN_MS : AGAIN_AFTER_MS)) return;
      this.#missing += 1;
      if (this.#missing >= MISSING_TELL) this.#found("no_to_device");
    }
    const nonce = random.bytes(12).toString("base64url");
    // Before it is sent: it may arrive before the homeserver has answered.
    const sent = { ghost, nonce, at: now };
    this.#sent = sent;
    if ((await send(ghost, CHECK_TYPE, { nonce })).kind !== "ok" && this.#sent === sent)
      this.#sent = undefined;
  }

  #found(result: KeyDelivery): void {
    const now = this.#deps.clock.now();
    const since = this.#state.result === result ? this.#state.since : now;
    this.#state = { result, since, seenAt: now };
  }
}
