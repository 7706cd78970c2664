// The place of each new delegation and intake envelope in its room's queue, or the reason of its refusal. Pure.
// Invariants: a refusal takes no place; places are given in the order of the events; an exchange in which nobody pauses ends
// after a few turns; the delegations of one event share its place and differ in their ordinals; of the events that use one
// message index, only the first becomes delegations.
import type { EventId, RoomId } from "../../domain/identifiers.ts";
import type { Capacity, Derived, NewAnswer, NewDelegation, NewIntakeEnvelope } from "./admission-types.ts";
import { type KnownPlaces, type OpenCounts, Slots } from "./capacity.ts";
import type { INTAKE_ENVELOPE_REASONS, TerminalReason } from "./states.ts";

/** Which event each message index of these and of earlier events belongs to, by the digest in base64. */
export type KnownIndices = ReadonlyMap<string, EventId>;

export function isFirstUse(
  indices: KnownIndices,
  { indexDigest, event }: Pick<NewAnswer, "indexDigest" | "event">,
): boolean {
  const user = indexDigest && indices.get(indexKey(indexDigest));
  return user === undefined || user === event;
}

export const indexKey = (digest: Buffer): string => digest.toString("base64");

export interface PlacedJob extends NewDelegation {
  seq: number | null;
  ordinal: number | null;
  siblings: number | null;
  readonly denied: TerminalReason | null;
}

/** SQL: the stage at which a row with the reason in the column `denied` ended. */
export const STAGE_OF_DENIED =
  "CASE WHEN denied = 'sender_policy_rejected' THEN 'policy' WHEN denied IS NOT NULL THEN 'intake' END";

export interface PlacedIntakeEnvelope extends NewIntakeEnvelope {
  readonly seq: number | null;
  readonly denied: (typeof INTAKE_ENVELOPE_REASONS.denied)[number] | null;
}

export interface Placed {
  readonly jobs: readonly PlacedJob[];
  readonly envelopes: readonly PlacedIntakeEnvelope[];
}

/** Answers that may follow each other in an exchange in which nobody pauses. */
const AGENT_TURNS_MAX = 3;

function refusalOf(job: NewDelegation, indices: KnownIndices): TerminalReason | undefined {
  if (!isFirstUse(indices, job)) return "event_replayed";
  if (job.refused !== undefined) return job.refused;
  return job.agentTurn > AGENT_TURNS_MAX ? "agent_turns_exceeded" : undefined;
}

function placeJob(job: NewDelegation, denied: TerminalReason | null, siblings: PlacedJob[], seq: number) {
  if (denied !== null) return { ...job, seq: null, ordinal: null, siblings: null, denied };
  const placed: PlacedJob = { ...job, seq, ordinal: siblings.length, siblings: null, denied };
  siblings.push(placed);
  for (const sibling of siblings) sibling.siblings = siblings.length;
  return placed;
}

export function place(
  { delegations, envelopes }: Pick<Derived, "delegations" | "envelopes">,
  known: KnownPlaces,
  indices: KnownIndices,
  open: OpenCounts,
  capacity: Capacity,
): Placed {
  const slots = new Slots(open, capacity);
  const next = new Map((known.rooms ?? []).map(([room, , , seq]) => [room, seq]));
  const takePlace = (room: RoomId) => {
    const seq = next.get(room) ?? 1;
    next.set(room, seq + 1);
    return seq;
  };
  const jobs: PlacedJob[] = [];
  const placedEnvelopes: PlacedIntakeEnvelope[] = [];
  const siblingsOf = new Map<EventId, PlacedJob[]>();
  const arrived = [...delegations, ...envelopes].sort((left, right) => left.position - right.position);
  for (const one of arrived) {
    if (!("ghost" in one)) {
      const denied = slots.takeEnvelope(one);
      placedEnvelopes.push({ ...one, seq: denied === null ? takePlace(one.room) : null, denied });
      continue;
    }
    const denied = refusalOf(one, indices) ?? slots.take(one);
    const siblings = siblingsOf.get(one.event) ?? [];
    siblingsOf.set(one.event, siblings);
    const seq = siblings[0]?.seq ?? (denied === null ? takePlace(one.room) : 0);
    jobs.push(placeJob(one, denied, siblings, seq));
  }
  return { jobs, envelopes: placedEnvelopes };
}

/**
 * The places and slots taken in each room, in ascending order of the rooms. `gate`: which of the places is the first one of
 * an intake envelope, counted from 1.
 */
export function roomTotals({ jobs, envelopes }: Placed) {
  const totals = new Map<RoomId, { places: Set<number>; slots: number; gate: number | undefined }>();
  const add = (room: RoomId, seq: number | null, isEnvelope: boolean) => {
    const total = totals.get(room) ?? { places: new Set(), slots: 0, gate: undefined };
    totals.set(room, total);
    if (seq === null) return;
    total.places.add(seq);
    if (isEnvelope) total.gate ??= seq;
    else total.slots += 1;
  };
  for (const { room, seq } of jobs) add(room, seq, false);
  for (const { room, seq } of envelopes) add(room, seq, true);
  return [...totals]
    .map(([room, { places, slots, gate }]) => ({
      room,
      places: places.size,
      slots,
      gate: gate === undefined ? null : 1 + gate - Math.min(...places),
    }))
    .sort((left, right) => (left.room < right.room ? -1 : 1));
}
