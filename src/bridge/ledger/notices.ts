// Notices: what the bridge sends to a room besides answers. No text is stored, only the kind and its facts.
// Invariants: a notice is inserted in the transaction that causes it; its marker is unique for ever, so that of many
// causes with one marker only the first is written; a worker's writes are fenced.
import type { Pool } from "pg";
import type { EventId, GhostMxid, RoomId, TransactionId, UserId } from "../../domain/identifiers.ts";
import type { NewNotice } from "./admission-types.ts";
import { claimInShares, type Share } from "./claim-shares.ts";
import { type ClaimRequest, canServe, claimValues, type Queryable, statement, toTime } from "./postgres.ts";
import type { CancelReason, NoticeKind, NoticeReason, TerminalStage } from "./states.ts";
import { noticeTransactionId } from "./transaction-ids.ts";

/** What is said of a cancellation to the person who asked. Whoever removes their question is not told that it is gone. */
export const CANCEL_NOTICES = {
  source_redacted: undefined,
  sender_canceled: "delegation_canceled",
  operator_canceled: "delegation_stopped",
} as const satisfies Readonly<Record<CancelReason, NoticeKind | undefined>>;

const DIRECTORY_INTERVAL_MS = 10_000;

/** Kinds that a person waits for, or that are sent only once. */
const WITHOUT_INTERVAL: ReadonlySet<NoticeKind> = new Set([
  "encrypted_room_refused",
  "delegation_failed",
  "delegation_canceled",
  "answer_refused",
]);

function minimumIntervalMs(kind: NoticeKind, stage: TerminalStage | undefined, configuredMs: number) {
  // A card that is not trusted stops whatever is asked.
  const isAlone = kind === "delegation_stopped" && stage !== "agent_card";
  if (isAlone || WITHOUT_INTERVAL.has(kind)) return undefined;
  const isList = kind === "agent_directory" || kind === "help";
  return Math.max(1, isList ? Math.min(configuredMs, DIRECTORY_INTERVAL_MS) : configuredMs);
}

export const encryptedRoomMarker = (room: RoomId): string => `encrypted_room_refused ${room}`;

/**
 * Simultaneous causes share an interval's number in their marker. The notice is suppressed when one of its kind by that ghost
 * in that room is newer than `since`, which excludes notices around the interval's edge.
 */
export function noticeBound(
  { kind, room, ghost, source }: Pick<NewNotice, "kind" | "room" | "ghost"> & { source: EventId | undefined },
  stage: TerminalStage | undefined,
  now: number,
  configuredMs: number,
) {
  const bounded = (marker: string, since: Date | null = null) => ({
    marker,
    transactionId: noticeTransactionId(marker),
    since,
  });
  if (kind === "encrypted_room_refused") return bounded(encryptedRoomMarker(room));
  const interval = minimumIntervalMs(kind, stage, configuredMs);
  if (interval === undefined) return bounded(`${kind} ${room} ${ghost} ${source ?? ""}`);
  // Missing keys concern the room, whichever ghost sends the notice.
  const scope = kind === "keys_missing" ? room : `${room} ${ghost}`;
  return bounded(`${kind} ${scope} ${Math.floor(now / interval)}`, toTime(now - interval));
}

const WRITE_NOTICE = statement("admit_notice")`
  INSERT INTO bridge_notices
    (marker, kind, room_id, ghost_mxid, source_event_id, thread_root, reason, transaction_id, created_at, due_at,
     asker_mxid)
  SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $11
  WHERE NOT EXISTS (
    SELECT FROM bridge_notices n WHERE $10::timestamptz IS NOT NULL AND n.room_id = $3 AND n.kind = $2
      AND n.ghost_mxid = $4 AND n.created_at > $10)
  ON CONFLICT DO NOTHING`;

/** Refusals that do not end when there is room again. */
const POLICY_REASONS: ReadonlySet<NoticeReason> = new Set([
  "event_replayed",
  "event_too_old",
  "agent_turns_exceeded",
  "sender_policy_rejected",
]);

/** Without a ghost to say it there is no notice. */
export function refusals(
  placed: readonly {
    readonly room: RoomId;
    readonly event: EventId;
    readonly ghost: GhostMxid | undefined;
    readonly threadRoot?: EventId | undefined;
    readonly denied: NoticeReason | null;
  }[],
): NewNotice[] {
  return placed.flatMap(({ room, ghost, event: source, threadRoot, denied: reason }) => {
    if (reason === null || ghost === undefined) return [];
    const refused = POLICY_REASONS.has(reason) ? "policy_denied" : "capacity_exceeded";
    const kind = reason === "sender_canceled" ? CANCEL_NOTICES[reason] : refused;
    return { kind, room, ghost, source, threadRoot, reason };
  });
}

export async function writeNotices(
  on: Queryable,
  notices: readonly NewNotice[],
  now: number,
  intervalMs: number,
): Promise<void> {
  const time = toTime(now);
  const claimed = new Set<string>();
  for (const notice of notices) {
    const { kind, room, ghost, source, threadRoot, reason, asker } = notice;
    const { marker, transactionId, since } = noticeBound(notice, "intake", now, intervalMs);
    if (claimed.has(marker)) continue;
    claimed.add(marker);
    const facts = [marker, kind, room, ghost, source, threadRoot, reason, transactionId, time, since, asker];
    await WRITE_NOTICE.run(on, facts);
  }
}

export interface ClaimedNotice {
  readonly noticeId: string;
  readonly fence: string;
  readonly kind: NoticeKind;
  readonly roomId: RoomId;
  readonly ghost: GhostMxid;
  readonly sourceEventId: EventId | undefined;
  readonly asker: UserId | undefined;
  readonly threadRoot: EventId | undefined;
  readonly reason: NoticeReason | undefined;
  readonly transactionId: TransactionId;
  readonly createdAt: number;
  readonly firstAttemptedAt: number | undefined;
  readonly attempts: number;
}

const CLAIM = statement<ClaimedNotice>("claim_notices")`
  WITH due AS MATERIALIZED (
    SELECT id FROM bridge_notices
    WHERE due_at <= $2 AND ${canServe("$5", "ghost_mxid", "room_id")} AND room_id <> ALL ($6::text[])
    ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
  )
  UPDATE bridge_notices n SET due_at = $3, holder = $4, fence = n.fence + 1
  FROM due WHERE n.id = due.id
  RETURNING n.id AS "noticeId", n.fence, n.kind, n.room_id AS "roomId", n.ghost_mxid AS ghost,
    n.source_event_id AS "sourceEventId", n.asker_mxid AS asker, n.thread_root AS "threadRoot", n.reason,
    n.transaction_id AS "transactionId", n.created_at AS "createdAt", n.first_attempted_at AS "firstAttemptedAt", n.attempts`;

const SETTLE = "WHERE id = $1 AND fence = $2 AND state = 'pending'";

const ATTEMPTED = statement("notice_attempted")`
  UPDATE bridge_notices SET first_attempted_at = COALESCE(first_attempted_at, $3) ${SETTLE} RETURNING id`;
const SENT = statement("notice_sent")`
  UPDATE bridge_notices SET state = 'sent', event_id = $3, due_at = NULL ${SETTLE}`;
const DEFERRED = statement("notice_deferred")`
  UPDATE bridge_notices SET due_at = $3, holder = NULL, attempts = attempts + 1 ${SETTLE}`;
const DROPPED = statement("notice_dropped")`
  UPDATE bridge_notices SET state = 'dropped', due_at = NULL ${SETTLE}`;

export function createNotices(pool: Pool) {
  const update = (write: typeof SENT, { noticeId, fence }: ClaimedNotice, ...values: (EventId | Date)[]) =>
    write.run(pool, [noticeId, fence, ...values]);
  return {
    claim: (request: ClaimRequest & { readonly share?: Share<RoomId> }) =>
      claimInShares(
        request,
        (limit, full: readonly RoomId[]) => CLAIM.rows(pool, [...claimValues({ ...request, limit }), full]),
        ({ roomId }) => roomId,
      ),

    /** @throws DrawbridgeError `lease_lost` when another worker has claimed it: this one must not send it */
    async recordAttempt({ noticeId, fence }: ClaimedNotice, now: number): Promise<undefined> {
      await ATTEMPTED.held(pool, [noticeId, fence, toTime(now)], `notice ${noticeId}`);
    },

    recordSent: (notice: ClaimedNotice, eventId: EventId) => update(SENT, notice, eventId),
    defer: (notice: ClaimedNotice, wakeAt: number) => update(DEFERRED, notice, toTime(wakeAt)),
    drop: (notice: ClaimedNotice) => update(DROPPED, notice),
  };
}
