// One attempt to read an intake envelope: fetch the event again, check that it is the one that came in, decrypt it.
// Invariants: the event counts only with the fingerprint that it came in with; keys are caught up before one counts as
// missing; nothing is written here, and nothing of the event outlives the attempt.
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import type { UnknownObject } from "../../domain/json.ts";
import { type createRecentEvents, eventFingerprint } from "../intake/open-encrypted.ts";
import { type EncryptedEvent, type Inside, readEvents } from "../intake/read-events.ts";
import type { ClaimedIntakeEnvelope } from "../ledger/envelopes.ts";
import type { ExpiryReason } from "../ledger/states.ts";
import type { Outcome } from "../matrix/request-result.ts";
import type { GhostDevices } from "./ghost-devices.ts";

/** An intake envelope, and the ghosts in its room; at least one where it is opened. */
export interface Claim {
  readonly envelope: ClaimedIntakeEnvelope;
  readonly ghosts: readonly GhostMxid[];
}

export interface OpeningDependencies {
  readonly devices: Pick<GhostDevices, "decrypt" | "catchup">;
  readonly recent: Pick<ReturnType<typeof createRecentEvents>, "take">;
  /** `GET /rooms/{room}/event/{event}` as the ghost. */
  readonly fetchEvent: (
    ghost: GhostMxid,
    room: RoomId,
    event: EventId,
    signal: AbortSignal | undefined,
  ) => Promise<Outcome<UnknownObject>>;
}

export type Opening =
  | Readonly<{ kind: "opened"; event: EncryptedEvent; inside: Inside; by: "catchup" | "after_wait" }>
  /** The intake envelope will never be opened. `event` is present where it is the one that came in. */
  | { readonly kind: "unreadable"; readonly reason: ExpiryReason; readonly event?: EncryptedEvent }
  | { readonly kind: "missing_key"; readonly event: EncryptedEvent }
  /** The sender's device may be trusted once more is known of it. */
  | { readonly kind: "not_trusted"; readonly event: EncryptedEvent }
  /** The homeserver or the machine did not answer. `afterMs` is 0 when `signal` ended the attempt. */
  | { readonly kind: "unanswered"; readonly afterMs: number };

const DECRYPT_MS_MAX = 5_000;
const UNAVAILABLE_WAIT_MS = 1_000;
/** Ghosts that catch up in one attempt; the next attempt takes the next ones. */
const CATCHUPS_MAX = 3;

type Fetched = Exclude<Opening, { kind: "opened" }> | Readonly<{ kind: "event"; event: EncryptedEvent }>;

export function createOpening({ devices, recent, fetchEvent }: OpeningDependencies) {
  return async (claimed: Claim, signal: AbortSignal | undefined): Promise<Opening> => {
    const { envelope, ghosts } = claimed;
    const fetched = await fetchAs(claimed, signal);
    if (fetched.kind !== "event") return fetched;
    const { event } = fetched;
    const first = await decrypt(event, ghosts, "after_wait");
    if (first.kind !== "missing_key" && first.kind !== "not_trusted") return first;

    const from = (envelope.attempts * CATCHUPS_MAX) % ghosts.length;
    const turn = [...ghosts.slice(from), ...ghosts.slice(0, from)].slice(0, CATCHUPS_MAX);
    const catchups = await Promise.all(turn.map((ghost) => devices.catchup(ghost, signal)));
    const second = await decrypt(event, ghosts, "catchup");
    const failed = catchups.find((outcome) => outcome.kind === "retry");
    // The messages that were not read may hold the key.
    const unread = failed !== undefined && !catchups.some(({ kind }) => kind === "ok");
    return second.kind === "missing_key" && unread ? { kind: "unanswered", afterMs: failed.afterMs } : second;
  };

  /** The event as the first ghost gets it that may read it. */
  async function fetchAs({ envelope, ghosts }: Claim, signal: AbortSignal | undefined): Promise<Fetched> {
    const known = recent.take(envelope.event);
    if (known !== undefined) return compare(envelope, known);
    let retryAfterMs: number | undefined;
    for (const ghost of ghosts) {
      const outcome = await fetchEvent(ghost, envelope.room, envelope.event, signal);
      if (outcome.kind === "ok") return compare(envelope, outcome.value);
      if (outcome.kind === "refused") continue;
      const isOfGhost = ["ghost_refused", "device_unavailable", "device_elsewhere"].includes(outcome.cause);
      if (!isOfGhost) return { kind: "unanswered", afterMs: outcome.afterMs };
      retryAfterMs ??= outcome.afterMs;
    }
    return retryAfterMs === undefined
      ? { kind: "unreadable", reason: "event_unavailable" }
      : { kind: "unanswered", afterMs: retryAfterMs };
  }

  async function decrypt(
    event: EncryptedEvent,
    ghosts: readonly GhostMxid[],
    by: "catchup" | "after_wait",
  ): Promise<Opening> {
    const decryption = await devices.decrypt(ghosts, event, DECRYPT_MS_MAX);
    switch (decryption.kind) {
      case "decrypted":
        return { kind: "opened", event, inside: decryption, by };
      case "missing_key":
        // `m.no_olm` announces that the key will come, once there is an Olm session ("m.room_key.withheld").
        return [undefined, "m.no_olm"].includes(decryption.withheld)
          ? { kind: "missing_key", event }
          : { kind: "unreadable", reason: "key_withheld", event };
      case "unavailable":
        return { kind: "unanswered", afterMs: UNAVAILABLE_WAIT_MS };
      case "refused":
        return decryption.reason === "device_not_trusted"
          ? { kind: "not_trusted", event }
          : { kind: "unreadable", reason: decryption.reason, event };
    }
  }
}

function compare(envelope: ClaimedIntakeEnvelope, raw: UnknownObject): Fetched {
  const [event] = readEvents([raw]).events;
  const isSame = event?.event === envelope.event && event.room === envelope.room;
  if (isSame && raw["type"] === "m.room.encrypted" && event.type === "other") {
    return { kind: "unreadable", reason: "source_redacted" };
  }
  const fingerprint = eventFingerprint(raw);
  if (!isSame || event.type !== "encrypted" || fingerprint?.equals(envelope.fingerprint) !== true) {
    return { kind: "unreadable", reason: "event_changed" };
  }
  return { kind: "event", event };
}
