// How old an event may be that still asks something: one whose row retention may have deleted could be a repetition, and
// is refused as `event_too_old`. Invariant: with a clock that was wrong for a while, nothing younger than 23 hours is refused.
import { type Queryable, statement } from "./postgres.ts";

/** In SQL: milliseconds since the Unix epoch. */
export const FORGOTTEN_BEFORE = "(extract(epoch FROM before) * 1000)::float8";
const FORGOTTEN = statement<{ before: number }>("forgotten_before")`
  SELECT ${FORGOTTEN_BEFORE} AS before FROM bridge_forgotten`;

/** How far a homeserver's clock may be ahead of the bridge's. */
const CLOCK_SKEW_MS = 60 * 60_000;

/** For so long handled events are remembered at least, whatever a clock that was wrong for a while has made of the record. */
const REMEMBERED_MS_MIN = 24 * 60 * 60_000;

/** Of handled events that came before this time, the rows may have been deleted; milliseconds since the Unix epoch. */
export async function readForgotten(on: Queryable): Promise<number> {
  return (await FORGOTTEN.one(on, [])).before;
}

/**
 * What a homeserver says to have received before this time is too old; milliseconds since the Unix epoch.
 * @param forgottenBefore the rows of handled events that came before may have been deleted
 */
export function tooOldBefore(forgottenBefore: number, now: number): number {
  return Math.min(forgottenBefore, now - REMEMBERED_MS_MIN) + CLOCK_SKEW_MS;
}
