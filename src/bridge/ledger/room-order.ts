// The order of a room's queue: how its head advances, how places become void, and how events that a catchup found after
// later ones of their room had been admitted are put into the room's own order.
// Invariants: a room's row alone says whose turn it is (head_seq, head_ordinal), and when (head_at); what was dispatched
// stays ahead; a place is never given twice: those that are given up become void, and the next free ones are taken.
import type { EventId, RoomId } from "../../domain/identifiers.ts";
import { type Queryable, statement, toTime } from "./postgres.ts";

/** The first place behind the head that is not void. The function is called only in rooms that have void places. */
const NEXT =
  "CASE WHEN isempty(r.voids) THEN r.head_seq + 1 ELSE bridge_place_from(r.head_seq + 1, r.voids) END";

/**
 * Moves a room's head past the delegation in the CTE `moved` (room_id, room_seq, room_ordinal, room_siblings), if that is the
 * head. It is arithmetic on the room's row alone, so that it cannot miss a concurrent admission. `now` is a parameter (`$4`).
 */
export function advanceRoom(now: string, freed: 0 | 1): string {
  const atHead = "(r.head_seq = m.room_seq AND r.head_ordinal = m.room_ordinal)";
  const hasSibling = "(m.room_ordinal + 1 < m.room_siblings)";
  return `
    UPDATE bridge_rooms r SET
      open_count = r.open_count - ${freed},
      head_seq = CASE WHEN ${atHead} AND NOT ${hasSibling} THEN ${NEXT} ELSE r.head_seq END,
      head_ordinal = CASE WHEN NOT ${atHead} THEN r.head_ordinal
                          WHEN ${hasSibling} THEN m.room_ordinal + 1 ELSE 0 END,
      head_at = CASE WHEN NOT ${atHead} THEN r.head_at
                     WHEN ${hasSibling} THEN ${now}::timestamptz
                     WHEN ${NEXT} < r.next_seq AND ${NEXT} IS DISTINCT FROM r.gate_seq THEN ${now}::timestamptz END,
      voids = CASE WHEN isempty(r.voids) OR NOT ${atHead} OR ${hasSibling} THEN r.voids
                   ELSE r.voids * int8multirange(int8range(${NEXT}, NULL)) END
    FROM moved m WHERE r.room_id = m.room_id`;
}

/** A CTE with the rooms of another one, whose rows it locks in ascending order, as admissions lock them. */
export const lockedRooms = (of: string): string => `locked AS MATERIALIZED (
    SELECT room_id, keys_missing_at FROM bridge_rooms WHERE room_id IN (SELECT room_id FROM ${of}) ORDER BY room_id FOR UPDATE
  )`;

/** The CTE that {@link releasePlaces} takes, of intake envelopes that another one (room_id, place) ends without delegations. */
export const settledWithout = (ended: string): string => `settled AS MATERIALIZED (
    SELECT o.room_id, range_agg(o.place) AS places, range_agg(o.place) AS void, 0 AS opened,
      (SELECT min(e.room_seq) FROM bridge_encrypted_intake e
       WHERE e.room_id = o.room_id AND e.state = 'awaiting_key' AND NOT range_agg(o.place) @> e.room_seq) AS gate
    FROM ${ended} o GROUP BY o.room_id
  )`;

/**
 * Updates rooms whose intake envelopes have ended, or have given up their places, under the room's lock. The CTE `settled`
 * yields for each room: room_id; `places`, theirs, and `void`, those without delegations, as multiranges; `opened`, the slots
 * taken; `gate`, the lowest place of one that awaits its key. `added` are free places that were taken besides.
 */
export function releasePlaces(
  now: string,
  { added = "0", also = "" }: { readonly added?: string; readonly also?: string } = {},
): string {
  const head = "bridge_place_from(r.head_seq, r.voids + s.void)";
  return `
    UPDATE bridge_rooms r SET
      open_count = r.open_count + s.opened,
      gate_seq = s.gate,
      next_seq = r.next_seq + ${added},
      head_seq = ${head},
      head_at = CASE WHEN NOT s.places @> r.head_seq THEN r.head_at
                     WHEN ${head} < r.next_seq + ${added} AND ${head} IS DISTINCT FROM s.gate THEN ${now}::timestamptz END,
      voids = (r.voids + s.void) * int8multirange(int8range(${head}, NULL))${also === "" ? "" : `, ${also}`}
    FROM settled s WHERE r.room_id = s.room_id`;
}

/** The events of a room in its order, from the first one that was found late on. */
export type RoomOrder = ReadonlyMap<RoomId, readonly EventId[]>;

// Locks what waits for its turn, before the admission locks the room's row. A head that was begun keeps its place.
const FIRST_LATER = statement<{ place: string | undefined }>("first_later_place")`
  WITH waiting AS MATERIALIZED (
    SELECT d.room_seq, d.matrix_event_id,
      d.state = 'queued' AND d.lease_holder IS NULL AND (d.room_seq > r.head_seq OR r.head_ordinal = 0) AS movable
    FROM bridge_rooms r JOIN bridge_delegations d ON d.room_id = r.room_id AND d.room_seq >= r.head_seq
    WHERE r.room_id = $1 AND d.terminal_at IS NULL ORDER BY d.id FOR UPDATE OF d
  )
  SELECT min(room_seq) AS place FROM (
    SELECT room_seq FROM waiting GROUP BY room_seq HAVING bool_and(movable) AND bool_or(matrix_event_id = ANY ($2))
    UNION ALL
    SELECT room_seq FROM bridge_encrypted_intake
    WHERE room_id = $1 AND state = 'awaiting_key' AND matrix_event_id = ANY ($2)) later`;

// From $3 on, places are given up, unless the head has come further since they were read: no statement that moves it waits for
// this transaction. Events that are not in the order came after it was read, and go last. Delegations that were canceled move
// with the others of their event, because the head comes to each of them.
const REORDER = statement("reorder_room")`
  WITH room AS MATERIALIZED (
    SELECT room_id, next_seq, GREATEST($3, head_seq + (head_ordinal > 0)::int) AS first
    FROM bridge_rooms WHERE room_id = $1 FOR UPDATE
  ), envelopes AS (
    SELECT matrix_event_id AS event, room_seq AS place FROM bridge_encrypted_intake
    WHERE room_id = $1 AND room_seq IS NOT NULL AND state = 'awaiting_key'
  ), waiting AS (
    SELECT d.matrix_event_id AS event, d.room_seq AS place FROM bridge_delegations d, room
    WHERE d.room_id = $1 AND d.room_seq >= room.first AND d.terminal_at IS NULL
    UNION SELECT event, place FROM envelopes, room WHERE place >= room.first
  ), moved AS MATERIALIZED (
    SELECT event, place, room.next_seq - 1 + row_number() OVER (ORDER BY array_position($2, event), place) AS new_place
    FROM waiting, room
  ), moved_envelopes AS (
    UPDATE bridge_encrypted_intake e SET room_seq = m.new_place
    FROM moved m WHERE e.matrix_event_id = m.event AND e.room_seq = m.place AND e.state = 'awaiting_key'
  ), moved_delegations AS (
    UPDATE bridge_delegations d SET room_seq = m.new_place
    FROM moved m WHERE d.room_id = $1 AND d.room_seq = m.place
  ), settled AS MATERIALIZED (
    SELECT room_id, int8multirange(int8range(first, next_seq)) AS places, int8multirange(int8range(first, next_seq)) AS void,
      0 AS opened,
      (SELECT min(COALESCE(m.new_place, e.place)) FROM envelopes e LEFT JOIN moved m ON m.event = e.event) AS gate,
      (SELECT count(*) FROM moved) AS added
    FROM room
  )${releasePlaces("$4", { added: "s.added" })}`;

/** From where each room is to be put in order anew, once the found events were admitted. Only under the rooms' locks. */
export async function firstLaterPlaces(on: Queryable, order: RoomOrder) {
  const places = new Map<RoomId, string>();
  for (const [room, events] of order) {
    const { place } = await FIRST_LATER.one(on, [room, events]);
    if (place !== undefined) places.set(room, place);
  }
  return places;
}

/** @param places as {@link firstLaterPlaces} returned them before the admission */
export async function reorder(
  on: Queryable,
  order: RoomOrder,
  places: ReadonlyMap<RoomId, string>,
  now: number,
): Promise<void> {
  for (const [room, place] of places) await REORDER.rows(on, [room, order.get(room), place, toTime(now)]);
}
