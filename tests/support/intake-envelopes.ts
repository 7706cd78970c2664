// Encrypted events for a test of the ledger: what arrives, in the order it arrives, and what it turns out to say.

import type { Admission, NewDelegation, NewIntakeEnvelope } from "../../src/bridge/ledger/admission.ts";
import type { Derivation } from "../../src/bridge/ledger/envelope-derivation.ts";
import type { ClaimedIntakeEnvelope } from "../../src/bridge/ledger/intake-envelopes.ts";
import type { Ledger } from "../../src/bridge/ledger/ledger.ts";
import { sha256 } from "../../src/domain/digest.ts";
import type { RoomId, UserId } from "../../src/domain/identifiers.ts";
import { event, ghost, LEASE_MS, type LedgerFixture, room, T0 } from "./ledger.ts";

export const KEY_WAIT_MS = 15 * 60_000;
export const NOTICE_INTERVAL_MS = 600_000;

/** An encrypted event whose key is not here. */
export function envelope(name: string, options: Partial<NewIntakeEnvelope> = {}): NewIntakeEnvelope {
  return {
    position: 0,
    event: event(name),
    room: room("r"),
    sender: "@alice:a.test" as UserId,
    originServerTs: T0,
    fingerprint: sha256(name),
    deadline: T0 + KEY_WAIT_MS,
    ...options,
  };
}

/** What a transaction brings, in its order. */
export function arrivals(
  ...arrived: readonly (NewDelegation | NewIntakeEnvelope)[]
): Pick<Admission, "about" | "derive" | "eventCount"> {
  const placed = arrived.map((one, position) => ({ ...one, position }));
  const isJob = (one: NewDelegation | NewIntakeEnvelope): one is NewDelegation => "ghost" in one;
  return {
    eventCount: arrived.length,
    about: {
      rooms: [...new Set(arrived.map((one) => one.room))],
      events: arrived.map((one) => one.event),
      related: [],
    },
    derive: () => ({
      delegations: placed.filter(isJob),
      envelopes: placed.filter((one): one is typeof one & NewIntakeEnvelope => !isJob(one)),
      notices: [],
    }),
  };
}

/** What a decrypted intake envelope turns out to ask. */
export function asking(
  { event: source, room: where }: Pick<ClaimedIntakeEnvelope, "event" | "room">,
  jobs: readonly NewDelegation[],
  capacity: Derivation["capacity"] = { room: 64, global: 4_096 },
): Derivation {
  return {
    about: { rooms: [where], events: [source], related: [] },
    derive: () => ({ delegations: jobs, envelopes: [], notices: [] }),
    capacity,
    noticeIntervalMs: NOTICE_INTERVAL_MS,
  };
}

/** Claims intake envelopes that are due. */
export function claimEnvelopes(
  ledger: Ledger,
  now: number = T0,
  limit: number = 100,
): Promise<ClaimedIntakeEnvelope[]> {
  return ledger.envelopes.claim({ limit, now, leaseUntil: now + LEASE_MS });
}

/** Claims everything due; the one of this event is handed over. */
export async function claimEnvelope(
  ledger: Ledger,
  name: string,
  now: number = T0,
): Promise<ClaimedIntakeEnvelope> {
  const claimed = await claimEnvelopes(ledger, now);
  const found = claimed.find((one) => one.event === event(name));
  if (found === undefined) throw new Error(`the intake envelope of ${event(name)} is not due`);
  return found;
}

/** A ghost is joined in a room, beside somebody to serve. */
export async function seat(fixture: LedgerFixture, where: RoomId = room("r"), who = ghost()): Promise<void> {
  await fixture.pool.query(
    "INSERT INTO bridge_ghost_rooms (room_id, ghost_mxid, membership) VALUES ($1, $2, 'join')",
    [where, who],
  );
}
