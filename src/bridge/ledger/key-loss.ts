// When a room is told that its keys are missing. A key-loss episode of a room begins with the first intake envelope that
// expires for want of a key and ends when an event of the room is decrypted. Invariant: one notice an episode, and
// none within the notice interval of the last.
import type { RoomId } from "../../domain/identifiers.ts";
import { type Queryable, rows, type Statement } from "./statement.ts";

// Rooms are locked in ascending order, as admissions lock them.
const KEYS_FOUND: Statement = {
  name: "keys_found",
  text: `
  WITH locked AS MATERIALIZED (
    SELECT room_id FROM bridge_rooms
    WHERE room_id = ANY ($1) AND keys_missing_at IS NOT NULL ORDER BY room_id FOR UPDATE
  )
  UPDATE bridge_rooms r SET keys_missing_at = NULL FROM locked l WHERE r.room_id = l.room_id`,
};

/** Events of these rooms were decrypted: their episodes, if they have one, are over. */
export async function keysFound(on: Queryable, roomIds: readonly RoomId[]): Promise<void> {
  await rows(on, KEYS_FOUND, [roomIds]);
}
