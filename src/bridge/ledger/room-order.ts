// SQL that several transitions share: how the head of a room's queue advances, and how places become void.
// Invariant: a room's row alone says whose turn it is (head_seq, head_ordinal), and when (head_at).

/** The first place behind the head that is not void. The function is called only in rooms that have void places. */
const NEXT =
  "CASE WHEN isempty(r.voids) THEN r.head_seq + 1 ELSE bridge_place_from(r.head_seq + 1, r.voids) END";

/**
 * Moves a room's head past the delegation in the CTE `moved`, if that delegation is the head, and frees `freed`
 * capacity slots. It is arithmetic on the room's row alone, so that it cannot miss a concurrent admission. A room
 * whose head is an intake envelope that awaits its key is not due.
 * `moved` must yield room_id, room_seq, room_ordinal, room_siblings; `now` is a parameter such as `$4`.
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

/** The lowest place in the room of `o` whose intake envelope still awaits its key, without those that `o` gives up. */
export const GATE = `(SELECT min(e.room_seq) FROM bridge_encrypted_intake e
     WHERE e.room_id = o.room_id AND e.state = 'awaiting_key' AND NOT range_agg(o.place) @> e.room_seq)`;

/**
 * Updates rooms whose intake envelopes have ended, or have given up their places. The CTE `settled` must yield, once for
 * each room: room_id; `places`, their places, and `void`, those without delegations, as multiranges; `opened`, the
 * capacity slots taken (below zero: freed); `gate`, the lowest place of an intake envelope that still awaits its key.
 * Only under the room's lock, which `gate` must be read under as well. `now` is a parameter; `added` are free places
 * that were taken besides, and `also` further assignments.
 */
export function settlePlaces(
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
