// Questions that were claimed as they were admitted, by transactions of which this process does not know whether they were
// committed. Invariant: what they claimed is given back under a higher fence, unless its agent may have been called.
import type { Pool } from "pg";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { ClaimSlot, NewDelegation } from "./admission-types.ts";
import { inRooms, statement, toTime } from "./postgres.ts";

// The statement finds no row where the admission was not committed, or its question is past this claim: the end of the
// lease tells a claim from that of the same admission made again.
const GIVE_BACK = statement<{ held: number; turns: number }>("give_back_in_doubt")`
  WITH held AS (
    UPDATE bridge_delegations SET state = 'queued', lease_holder = NULL, lease_until = NULL, fence = fence + 1
    WHERE matrix_event_id = $1 AND ghost_mxid = $2 AND lease_holder = $3 AND lease_until = $5 AND fence = 1
      AND state = 'dispatching' AND NOT a2a_attempted
    RETURNING room_id, room_seq, room_ordinal
  ), turn AS (
    UPDATE bridge_rooms r SET head_at = $4 FROM held h
    WHERE r.room_id = h.room_id AND r.head_seq = h.room_seq AND r.head_ordinal = h.room_ordinal
    RETURNING 1
  )
  SELECT (SELECT count(*) FROM held)::int AS held, (SELECT count(*) FROM turn)::int AS turns`;

export interface ClaimOfUnknownCommit {
  readonly question: Pick<NewDelegation, "event" | "ghost" | "room">;
  readonly slot: ClaimSlot;
}

/** The lock of the room waits for the end of the admission. @throws what the database throws */
async function giveBack(pool: Pool, { question, slot }: ClaimOfUnknownCommit, now: number): Promise<void> {
  await inRooms(pool, [question.room], async (client) => {
    const values = [question.event, question.ghost, slot.holder, toTime(now), toTime(slot.leaseUntil)];
    const { held, turns } = await GIVE_BACK.one(client, values);
    if (held !== turns) throw new DrawbridgeError("internal", "the question is not its room's head");
    return { result: undefined };
  });
}

export function createClaimsOfUnknownCommits(pool: Pool) {
  const doubts = new Set<ClaimOfUnknownCommit>();
  return {
    add: (doubt: ClaimOfUnknownCommit) => doubts.add(doubt),
    has: (doubt: ClaimOfUnknownCommit) => doubts.has(doubt),

    /** Never rejects: what the database does not answer is asked again the next time. */
    async giveBackAll(now: number): Promise<void> {
      for (const doubt of doubts) {
        try {
          await giveBack(pool, doubt, now);
        } catch (error) {
          if (!(error instanceof DrawbridgeError)) return;
        }
        doubts.delete(doubt);
      }
    },
  };
}
