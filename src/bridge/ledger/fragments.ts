// Pieces of SQL that several transitions share. Each has one meaning, said here once.

/** The delegation that a lease entitles its holder to write. $1 id, $2 holder, $3 fence. */
export const HELD = "d.id = $1 AND d.lease_holder = $2 AND d.fence = $3";

/**
 * Moves a room's head past the delegation in the CTE `moved`, if the head is there, and frees `freed`
 * capacity slots. Arithmetic on the room's row alone, so that a concurrent admission is never missed.
 * `moved` must yield room_id, room_seq, room_ordinal, room_siblings; `now` is a parameter such as `$4`.
 */
export function advanceRoom(now: string, freed: 0 | 1): string {
  const atHead = "(r.head_seq = m.room_seq AND r.head_ordinal = m.room_ordinal)";
  const hasSibling = "(m.room_ordinal + 1 < m.room_siblings)";
  return `
    UPDATE bridge_rooms r SET
      open_count = r.open_count - ${freed},
      head_seq = CASE WHEN ${atHead} AND NOT ${hasSibling} THEN r.head_seq + 1 ELSE r.head_seq END,
      head_ordinal = CASE WHEN NOT ${atHead} THEN r.head_ordinal
                          WHEN ${hasSibling} THEN m.room_ordinal + 1 ELSE 0 END,
      head_at = CASE WHEN NOT ${atHead} THEN r.head_at
                     WHEN ${hasSibling} OR r.head_seq + 1 < r.next_seq THEN ${now}::timestamptz END
    FROM moved m WHERE r.room_id = m.room_id`;
}
