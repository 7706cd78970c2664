// The notices that an admission, or a derivation, brings: those that were asked for, and one for a refusal.
// Invariant: a marker is claimed once; of many refusals with one marker only the first is looked at.
import type { GhostMxid } from "../../domain/identifiers.ts";
import type { NewNotice } from "./admission.ts";
import { noticeBound } from "./notice-bound.ts";
import type { PlacedIntakeEnvelope, PlacedJob } from "./placement.ts";
import { type Queryable, rows, type Statement, toTime } from "./statement.ts";
import type { NoticeReason } from "./states.ts";
import { noticeTransactionId } from "./transaction-ids.ts";

const WRITE_NOTICE: Statement = {
  name: "admit_notice",
  text: `
  INSERT INTO bridge_notices
    (marker, kind, room_id, ghost_mxid, source_event_id, thread_root, reason, transaction_id, created_at, due_at)
  SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $9
  WHERE NOT EXISTS (
    SELECT FROM bridge_notices n WHERE $10::timestamptz IS NOT NULL AND n.room_id = $3 AND n.kind = $2
      AND n.ghost_mxid = $4 AND n.created_at > $10)
  ON CONFLICT DO NOTHING`,
};

export interface RefusalNotice extends NewNotice {
  readonly reason: NoticeReason;
}

export function refusedJobs(jobs: readonly PlacedJob[]): RefusalNotice[] {
  return jobs.flatMap(({ job, denied }) =>
    denied === null
      ? []
      : {
          kind: denied === "event_replayed" ? "policy_denied" : "capacity_exceeded",
          room: job.room,
          ghost: job.ghost,
          source: job.event,
          threadRoot: job.threadRoot,
          reason: denied,
        },
  );
}

/** @param speakerIn the ghost that says it; an intake envelope is addressed to none. Without one, nobody hears of it. */
export function refusedEnvelopes(
  envelopes: readonly PlacedIntakeEnvelope[],
  speakerIn: (room: PlacedIntakeEnvelope["envelope"]["room"]) => GhostMxid | undefined,
): RefusalNotice[] {
  return envelopes.flatMap(({ envelope, denied }) => {
    const ghost = denied === null ? undefined : speakerIn(envelope.room);
    if (denied === null || ghost === undefined) return [];
    return {
      kind: "capacity_exceeded",
      room: envelope.room,
      ghost,
      source: envelope.event,
      threadRoot: undefined,
      reason: denied,
    };
  });
}

export async function writeNotices(
  on: Queryable,
  notices: readonly (NewNotice | RefusalNotice)[],
  now: number,
  intervalMs: number,
): Promise<void> {
  const time = toTime(now);
  const claimed = new Set<string>();
  for (const notice of notices) {
    const bound = noticeBound(notice, "intake", now, intervalMs);
    if (claimed.has(bound.marker)) continue;
    claimed.add(bound.marker);
    await rows(on, WRITE_NOTICE, [
      bound.marker,
      notice.kind,
      notice.room,
      notice.ghost,
      notice.source,
      notice.threadRoot ?? null,
      "reason" in notice ? notice.reason : null,
      noticeTransactionId(bound.marker),
      time,
      bound.since === undefined ? null : toTime(bound.since),
    ]);
  }
}
