// Admits a single question and claims it in the same statement, where it comes to the head of its room. It saves the
// round trip and the commit of a claim before its agent is called.
// Invariant: only under the room's lock; a question that stands behind another one is admitted as any other is.
import type { Admission, ClaimSlot } from "./admission-types.ts";
import type { ContentKeys } from "./content-keys.ts";
import { CLAIMED_COLUMNS, type ClaimedDelegation, type DelegationRow, toClaimed } from "./leases.ts";
import type { PlacedJob } from "./place-or-refuse.ts";
import { entities, type Queryable, statement, toTime } from "./postgres.ts";

const ADMIT_AND_CLAIM = statement("admit_and_claim")`
  WITH capacity AS (
    UPDATE bridge_capacity SET admitted = admitted + 1
  ), room AS (
    INSERT INTO bridge_rooms AS r (room_id, next_seq, head_at, open_count) VALUES ($1, 2, $4, 1)
    ON CONFLICT (room_id) DO UPDATE SET
      next_seq = r.next_seq + 1,
      open_count = r.open_count + 1,
      head_at = CASE WHEN r.head_seq < r.next_seq THEN r.head_at ELSE excluded.head_at END
    RETURNING (r.head_seq, r.head_ordinal) = ($5::bigint, 0) AS is_head
  ), admitted AS (
    INSERT INTO bridge_delegations AS d
      (room_id, room_seq, room_ordinal, room_siblings, matrix_event_id, ghost_mxid, agent_id, target_fingerprint,
       sender_mxid, origin_server_ts, thread_root, ingress, prompt, agent_turn, a2a_context_id, admitted_at,
       state, fence, lease_holder, lease_until, tried_at)
    SELECT $1, $5, 0, 1, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $2::timestamptz,
      CASE WHEN is_head THEN 'dispatching' ELSE 'queued' END, is_head::int, CASE WHEN is_head THEN $3::text END,
      CASE WHEN is_head THEN $4::timestamptz END, CASE WHEN is_head THEN $2::timestamptz END
    FROM room
    RETURNING ${CLAIMED_COLUMNS}, 'queued' AS "resumedFrom"
  )
  SELECT * FROM admitted WHERE fence > 0`;

/**
 * @param question the only delegation of its event, with its place and its sealed prompt
 * @returns the question, if it was claimed
 */
export async function admitAndClaim(
  on: Queryable,
  keys: ContentKeys,
  { ingress, receivedAt }: Pick<Admission, "ingress" | "receivedAt">,
  question: Pick<PlacedJob, "job" | "seq"> & { readonly sealedPrompt: Buffer },
  { holder, leaseUntil }: ClaimSlot,
): Promise<ClaimedDelegation | undefined> {
  const { job, seq, sealedPrompt } = question;
  const [claimed] = await entities<DelegationRow>(on, ADMIT_AND_CLAIM, [
    ...[job.room, toTime(receivedAt), holder, toTime(leaseUntil), seq],
    ...[job.event, job.ghost, job.agent, job.targetFingerprint, job.sender, job.originServerTs],
    ...[job.threadRoot ?? null, ingress, sealedPrompt, job.agentTurn, job.contextId ?? null],
  ]);
  return claimed && toClaimed(claimed, holder, keys);
}
