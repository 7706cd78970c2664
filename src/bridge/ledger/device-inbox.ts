// What transactions brought for the devices of ghosts whose machines another process owns, until that has it durable.
// What is not taken in time is no loss: the homeserver still has it, and a catchup reads it.
import type { Pool } from "pg";
import type { GhostMxid } from "../../domain/identifiers.ts";
import { columnsOf, type Queryable, statement, toTime } from "./postgres.ts";

/** What came for one ghost's device, as JSON. */
export interface DeviceMail {
  readonly ghost: GhostMxid;
  readonly changes: string;
}

const WRITE = statement("write_device_inbox")`
  INSERT INTO bridge_device_inbox (ghost_mxid, changes, received_at)
  SELECT ghost, changes, $3 FROM unnest($1::text[], $2::text[]) AS u (ghost, changes)`;

const READ = statement<DeviceMail & { readonly id: string }>("read_device_inbox")`
  SELECT id, ghost_mxid AS ghost, changes FROM bridge_device_inbox WHERE ghost_mxid = ANY ($1) ORDER BY id LIMIT $2`;

const DELETE = statement("delete_device_inbox")`
  DELETE FROM bridge_device_inbox WHERE id = ANY ($1::bigint[])`;

export async function writeDeviceInbox(
  on: Queryable,
  mail: readonly DeviceMail[],
  now: number,
): Promise<void> {
  if (mail.length === 0) return;
  await WRITE.rows(on, [...columnsOf(mail, "ghost", "changes"), toTime(now)]);
}

export function createDeviceInbox(pool: Pool) {
  return {
    read: (ghosts: readonly GhostMxid[], limit: number) => READ.entities(pool, [ghosts, limit]),

    delete: (ids: readonly string[]) => DELETE.run(pool, [ids]),
  };
}
