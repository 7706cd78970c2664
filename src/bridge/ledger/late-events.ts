// Events that a catchup found after later events of their room had been admitted.
// Invariants: what waits in a room is put into the room's own order, and what was dispatched before stays ahead of it;
// a place is never given twice: those that are given up become void, and the next free ones are taken. Only under the
// room's lock.
import type { EventId, RoomId } from "../../domain/identifiers.ts";
import { oneRow, type Queryable, rows, statement, toTime } from "./postgres.ts";
import { settlePlaces } from "./room-order.ts";

/** The events of a room in its order, from the first one that was found late on. */
export type RoomOrder = ReadonlyMap<RoomId, readonly EventId[]>;

// Locks what waits for its turn, before the admission locks the room's row. A head that was begun keeps its place.
const FIRST_LATER = statement("first_later_place")`
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

// $3: the first place that is given up. Events that are not in the order came after it was read, and go last.
const REORDER = statement("reorder_room")`
  WITH room AS (
    SELECT room_id, next_seq FROM bridge_rooms WHERE room_id = $1
  ), envelopes AS (
    SELECT matrix_event_id AS event, room_seq AS place FROM bridge_encrypted_intake
    WHERE room_id = $1 AND room_seq IS NOT NULL AND state = 'awaiting_key'
  ), waiting AS (
    SELECT matrix_event_id AS event, room_seq AS place FROM bridge_delegations
    WHERE room_id = $1 AND room_seq >= $3 AND terminal_at IS NULL
    UNION SELECT event, place FROM envelopes WHERE place >= $3
  ), moved AS MATERIALIZED (
    SELECT event, place, room.next_seq - 1 + row_number() OVER (ORDER BY array_position($2, event), place) AS new_place
    FROM waiting, room
  ), moved_envelopes AS (
    UPDATE bridge_encrypted_intake e SET room_seq = m.new_place
    FROM moved m WHERE e.matrix_event_id = m.event AND e.room_seq = m.place AND e.state = 'awaiting_key'
  ), moved_delegations AS (
    UPDATE bridge_delegations d SET room_seq = m.new_place
    FROM moved m WHERE d.room_id = $1 AND d.room_seq = m.place AND d.terminal_at IS NULL
  ), settled AS MATERIALIZED (
    SELECT room_id, int8multirange(int8range($3, next_seq)) AS places, int8multirange(int8range($3, next_seq)) AS void,
      0 AS opened,
      (SELECT min(COALESCE(m.new_place, e.place)) FROM envelopes e LEFT JOIN moved m ON m.event = e.event) AS gate,
      (SELECT count(*) FROM moved) AS added
    FROM room
  )${settlePlaces("$4", { added: "s.added" })}`;

/** The places from which each room is to be put in order anew, once the found events were admitted. */
export async function firstLaterPlaces(
  on: Queryable,
  order: RoomOrder,
): Promise<ReadonlyMap<RoomId, string>> {
  const places = new Map<RoomId, string>();
  for (const [room, events] of order) {
    const { place } = await oneRow<{ place: string | null }>(on, FIRST_LATER, [room, events]);
    if (place !== null) places.set(room, place);
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
  for (const [room, place] of places) await rows(on, REORDER, [room, order.get(room), place, toTime(now)]);
}
