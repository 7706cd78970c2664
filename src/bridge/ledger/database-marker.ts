// How far the database has come: which one it is, and a count that only grows. The homeserver keeps a copy, by which a
// database that was put back from a backup is recognised (docs/decisions/0030).
// Invariant: one that was accepted after that is another database from then on, and no bridge works on it meanwhile.
import type { Pool } from "pg";
import { DrawbridgeError } from "../../domain/errors.ts";
import { createReadPositions } from "./ghosts.ts";
import { createOperations } from "./operator-commands.ts";
import { statement } from "./postgres.ts";

export interface DatabaseMarker {
  /** Undefined until a bridge has worked on it. */
  readonly database: string | undefined;
  readonly count: number;
}

const READ = statement<DatabaseMarker>("marker_read")`
  SELECT database, count::float8 AS count FROM bridge_database_marker`;

const ADVANCE = statement<DatabaseMarker>("marker_advance")`
  UPDATE bridge_database_marker SET database = COALESCE(database, gen_random_uuid()), count = count + 1
  WHERE database IS NOT DISTINCT FROM $1::uuid AND count >= $2
  RETURNING database, count::float8 AS count`;

const LIVE = statement<{ live: number }>("marker_live")`
  SELECT count(*)::int AS live FROM bridge_live_processes()`;

const RENEW = statement("marker_renew")`UPDATE bridge_database_marker SET database = NULL, count = 0`;

export function createDatabaseMarker(pool: Pool) {
  return {
    read: () => READ.one(pool, []),

    /** Undefined, and nothing is counted, when the database is not `own` or has come less far. */
    advance: (own: DatabaseMarker) => ADVANCE.first(pool, [own.database, own.count]),
  };
}

/**
 * Has bridges work on a database that was put back: cancels what was open in it, because it may have been done since the
 * backup, forgets up to where rooms were read, and makes it another database. Each step may be repeated; the last one lets
 * bridges start. @throws DrawbridgeError `usage` while a bridge works on it; nothing was changed
 */
export async function acceptDatabase(pool: Pool, now: number, noticeIntervalMs: number) {
  const { live } = await LIVE.one(pool, []);
  if (live > 0) {
    throw new DrawbridgeError("usage", "a bridge works on this database", {
      hint: "This is for a database that was put back from a backup: stop every bridge, then run it again.",
    });
  }
  const operations = createOperations(pool, noticeIntervalMs);
  const delegations = await operations.delegations(now);
  for (const { id } of delegations) await operations.cancelDelegation(id, now);
  const envelopes = await operations.envelopes();
  for (const { event } of envelopes) await operations.cancelEnvelope(event, now);
  await createReadPositions(pool, "rooms_since").forget();
  await RENEW.run(pool, []);
  return { delegations: delegations.length, envelopes: envelopes.length };
}
