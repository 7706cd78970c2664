// One look at an encrypted event that waits: fetch it again, see that it is the one that came in, open it.
// Invariants: what is fetched counts only with the fingerprint it came in with; keys are read back before a
// key counts as missing; nothing is written here, and nothing of the event outlives the look.
import type { EventId, GhostMxid, RoomId } from "../../domain/identifiers.ts";
import { eventFingerprint } from "../intake/open-encrypted.ts";
import { type EncryptedEvent, type Inside, readEvents } from "../intake/read-events.ts";
import type { ClaimedIntakeEnvelope } from "../ledger/intake-envelopes.ts";
import type { ExpiryReason } from "../ledger/states.ts";
import type { Outcome } from "../matrix/outcome.ts";
import type { GhostDevices, KeyCatchupResult } from "./device-types.ts";

type RawEvent = Readonly<Record<string, unknown>>;

export interface LookDependencies {
  readonly devices: Pick<GhostDevices, "decrypt" | "follow">;
  /** Reads a ghost's to-device messages back, once a round. */
  readonly catchup: (ghost: GhostMxid) => Promise<Outcome<KeyCatchupResult>>;
  /** `GET /rooms/{room}/event/{event}` as the ghost. */
  readonly fetchEvent: (
    ghost: GhostMxid,
    room: RoomId,
    event: EventId,
    signal: AbortSignal | undefined,
  ) => Promise<Outcome<RawEvent>>;
}

export type Look =
  | {
      readonly kind: "opened";
      readonly event: EncryptedEvent;
      readonly inside: Inside;
      /** Whether reading back brought the key, or it was here already. */
      readonly by: "catchup" | "after_wait";
    }
  /** With the event where it is the one that came in. */
  | { readonly kind: "hopeless"; readonly reason: ExpiryReason; readonly event?: EncryptedEvent }
  | { readonly kind: "missing_key"; readonly event: EncryptedEvent }
  /** Its device may be judged otherwise once more is known of it. */
  | { readonly kind: "not_trusted"; readonly event: EncryptedEvent }
  /** The homeserver or the machine did not answer: nothing was learned. `signal` ended it when 0. */
  | { readonly kind: "unanswered"; readonly afterMs: number };

const DECRYPT_MS_MAX = 5_000;
const UNAVAILABLE_WAIT_MS = 2_000;
/** Ghosts whose messages are read back in one look; the next look takes the next ones. */
const CATCHUPS_MAX = 3;

/** @param ghosts those in the event's room; at least one */
export async function look(
  deps: LookDependencies,
  envelope: ClaimedIntakeEnvelope,
  ghosts: readonly GhostMxid[],
  signal: AbortSignal | undefined,
): Promise<Look> {
  const fetched = await fetchAs(deps, envelope, ghosts, signal);
  if (fetched.kind !== "event") return fetched;
  const { event } = fetched;
  const first = await decrypt(deps, event, ghosts, "after_wait");
  if (first.kind !== "missing_key" && first.kind !== "not_trusted") return first;

  if (first.kind === "not_trusted") {
    await Promise.all(ghosts.map((ghost) => deps.devices.follow(ghost, [event.sender]))).catch(
      () => undefined,
    );
  }
  const catchups = await Promise.all(turnOf(ghosts, envelope.attempts).map((ghost) => deps.catchup(ghost)));
  const second = await decrypt(deps, event, ghosts, "catchup");
  const failed = catchups.find((outcome) => outcome.kind === "retry");
  // What was not read back may hold the key.
  if (second.kind === "missing_key" && failed !== undefined && !catchups.some(({ kind }) => kind === "ok")) {
    return { kind: "unanswered", afterMs: failed.kind === "retry" ? failed.afterMs : UNAVAILABLE_WAIT_MS };
  }
  return second;
}

function turnOf(ghosts: readonly GhostMxid[], attempts: number): readonly GhostMxid[] {
  const from = (attempts * CATCHUPS_MAX) % ghosts.length;
  return [...ghosts.slice(from), ...ghosts.slice(0, from)].slice(0, CATCHUPS_MAX);
}

/** The event as the first ghost sees it that may. A ghost that is itself refused says nothing for the others. */
async function fetchAs(
  deps: LookDependencies,
  envelope: ClaimedIntakeEnvelope,
  ghosts: readonly GhostMxid[],
  signal: AbortSignal | undefined,
): Promise<Exclude<Look, { kind: "opened" }> | { readonly kind: "event"; readonly event: EncryptedEvent }> {
  let unasked: number | undefined;
  for (const ghost of ghosts) {
    const outcome = await deps.fetchEvent(ghost, envelope.room, envelope.event, signal);
    if (outcome.kind === "ok") return recognised(envelope, outcome.value);
    if (outcome.kind === "refused") continue;
    const isOfGhost = outcome.cause === "ghost_refused" || outcome.cause === "device_unavailable";
    if (!isOfGhost) return { kind: "unanswered", afterMs: outcome.afterMs };
    unasked ??= outcome.afterMs;
  }
  return unasked === undefined
    ? { kind: "hopeless", reason: "event_unavailable" }
    : { kind: "unanswered", afterMs: unasked };
}

function recognised(
  envelope: ClaimedIntakeEnvelope,
  raw: RawEvent,
):
  | { readonly kind: "hopeless"; readonly reason: ExpiryReason }
  | { readonly kind: "event"; readonly event: EncryptedEvent } {
  const [event] = readEvents([raw], envelope.fingerprint).events;
  const isIt = event?.event === envelope.event && event.room === envelope.room;
  if (isIt && raw["type"] === "m.room.encrypted" && event.type === "other") {
    return { kind: "hopeless", reason: "source_redacted" };
  }
  const fingerprint = eventFingerprint(raw);
  if (!isIt || event.type !== "encrypted" || fingerprint?.equals(envelope.fingerprint) !== true) {
    return { kind: "hopeless", reason: "event_changed" };
  }
  return { kind: "event", event };
}

async function decrypt(
  deps: LookDependencies,
  event: EncryptedEvent,
  ghosts: readonly GhostMxid[],
  by: "catchup" | "after_wait",
): Promise<Look> {
  const decryption = await deps.devices.decrypt(ghosts, event, DECRYPT_MS_MAX);
  switch (decryption.kind) {
    case "decrypted":
      return { kind: "opened", event, inside: decryption, by };
    case "missing_key":
      return { kind: "missing_key", event };
    case "unavailable":
      return { kind: "unanswered", afterMs: UNAVAILABLE_WAIT_MS };
    case "refused":
      return decryption.reason === "device_not_trusted"
        ? { kind: "not_trusted", event }
        : { kind: "hopeless", reason: decryption.reason, event };
  }
}
