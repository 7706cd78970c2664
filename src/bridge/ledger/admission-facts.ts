// The facts that a derivation needs about rooms, and about the events that others refer to; used message indices.
import type { EventId, GhostMxid, RoomId, ServerName, UserId } from "../../domain/identifiers.ts";
import type { About, KnownFacts, NewAnswer, OpenQuestion, WaitingQuestion } from "./admission-types.ts";
import { openOptions } from "./agent-questions.ts";
import { indexKey, isFirstUse, type KnownIndices, type KnownPlaces } from "./capacity.ts";
import type { ContentKeys } from "./content-keys.ts";
import { columnsOf, type Queryable, statement, toTime } from "./postgres.ts";
import { FORGOTTEN_BEFORE, tooOldBefore } from "./too-old-events.ts";

const KNOWN = statement<KnownRow>("known_facts")`
  SELECT
    (SELECT counted_open + admitted - counted_at_admitted FROM bridge_capacity)::int AS open_global_max,
    (SELECT ${FORGOTTEN_BEFORE} FROM bridge_forgotten) AS forgotten_before,
    (SELECT json_agg(json_build_array(room_id, encrypted, open_count, next_seq))
       FROM bridge_rooms WHERE room_id = ANY ($1)) AS rooms,
    (SELECT json_agg(json_build_array(g.room_id, g.ghost_mxid, g.membership, CASE WHEN g.direct THEN (
         SELECT CASE count(*) WHEN 0 THEN g.inviter WHEN 1 THEN min(user_id) END
         FROM (SELECT user_id FROM bridge_room_members m WHERE m.room_id = g.room_id LIMIT 2) two) END))
       FROM bridge_ghost_rooms g WHERE g.room_id = ANY ($1)) AS ghosts`;

/** Who may not ask brings no ghost into a thread, where it would get what others say. An index has this predicate. */
const WAS_ALLOWED = "d.terminal_reason IS DISTINCT FROM 'sender_policy_rejected'";

const QUESTION = `FROM bridge_sends s
           WHERE s.delegation_id = d.id AND s.purpose = 'question' AND s.event_id IS NOT NULL`;

// However much was asked in a thread, one row is read of each ghost in it: the latest that the sender asked, or one of
// somebody else.
const KNOWN_RELATED = statement<Partial<KnownRow>>("known_related_facts")`
  WITH RECURSIVE asked AS (
    SELECT room, root, sender, '' AS ghost FROM jsonb_to_recordset($5::jsonb) t (room text, root text, sender text)
    UNION ALL SELECT room, root, sender, (
      SELECT min(d.ghost_mxid) FROM bridge_delegations d
      WHERE d.room_id = a.room AND d.thread_root = a.root AND d.ghost_mxid > a.ghost AND ${WAS_ALLOWED})
      FROM asked a WHERE a.ghost IS NOT NULL
  )
  SELECT
    (SELECT json_agg(DISTINCT jsonb_build_array(m.room_id, partner.server))
       FROM jsonb_to_recordset($4::jsonb) partner (server text, prefix text) JOIN bridge_room_members m
         ON starts_with(m.user_id, '@' || partner.prefix) AND right(m.user_id, length(partner.server) + 1) = ':' || partner.server
       WHERE m.room_id = ANY ($1)) AS partners,
    (SELECT json_agg(json_strip_nulls(json_build_object('event', about.event, 'room', d.room_id, 'purpose', about.purpose,
         'delegation', d.id::text, 'source', d.matrix_event_id, 'threadRoot', d.thread_root, 'ghost', d.ghost_mxid,
         'sender', d.sender_mxid, 'targetFingerprint', d.target_fingerprint, 'contextId', d.a2a_context_id,
         'endedAt', (extract(epoch FROM d.terminal_at) * 1000)::float8, 'endedBy', CASE
           WHEN d.state <> 'awaiting_input' THEN d.terminal_reason
           WHEN d.cancel_requested_at IS NOT NULL THEN d.cancel_reason
           WHEN d.input_until IS NULL THEN 'input_wait_elapsed' END))
         ORDER BY d.id) FROM (
       SELECT delegation_id AS id, event_id AS event, purpose FROM bridge_sends WHERE event_id = ANY ($2)
       UNION ALL SELECT id, matrix_event_id, NULL FROM bridge_delegations d WHERE matrix_event_id = ANY ($2) AND ${WAS_ALLOWED}
       UNION ALL SELECT id, thread_root, NULL FROM bridge_delegations WHERE bridge_if_open(terminal_at, thread_root) = ANY ($2)
       UNION ALL SELECT COALESCE(
         (SELECT max(d.id) FROM bridge_delegations d WHERE d.room_id = a.room AND d.thread_root = a.root
            AND d.ghost_mxid = a.ghost AND d.sender_mxid = a.sender AND ${WAS_ALLOWED}),
         (SELECT d.id FROM bridge_delegations d WHERE d.room_id = a.room AND d.thread_root = a.root
            AND d.ghost_mxid = a.ghost AND ${WAS_ALLOWED}
            ORDER BY d.sender_mxid DESC, d.id DESC LIMIT 1)), root, NULL FROM asked a
     ) about JOIN bridge_delegations d ON d.id = about.id) AS subjects,
    (SELECT json_agg(json_strip_nulls(json_build_object('event', matrix_event_id, 'room', room_id, 'sender', sender_mxid,
         'refersTo', refers_to, 'place', room_seq)))
       FROM (SELECT * FROM bridge_encrypted_intake WHERE matrix_event_id = ANY ($2)
         UNION SELECT * FROM bridge_encrypted_intake
         WHERE room_id = ANY ($1) AND state = 'awaiting_key' AND room_seq IS NOT NULL AND refers_to = ANY ($2) OFFSET 0) named
       WHERE state = 'awaiting_key' AND edits_event_id IS NULL) AS waiting,
    (SELECT json_agg(json_strip_nulls(json_build_object('room', d.room_id, 'event', d.matrix_event_id,
         'threadRoot', d.thread_root, 'sender', d.sender_mxid, 'agentTurn', d.agent_turn, 'isPending', d.terminal_at IS NULL, 'said', ARRAY (
           SELECT s.event_id FROM bridge_sends s WHERE s.delegation_id = d.id AND s.event_id IS NOT NULL
           UNION ALL SELECT n.event_id FROM bridge_notices n
             WHERE n.room_id = d.room_id AND n.kind = 'policy_denied' AND n.ghost_mxid = d.ghost_mxid
               AND n.source_event_id = d.matrix_event_id AND n.event_id IS NOT NULL))))
       FROM bridge_delegations d
       WHERE cardinality($2::text[]) > 0 AND d.room_id = ANY ($1)
         AND (d.state = 'reply_pending' OR d.terminal_reason IN ('answered', 'agent_turns_exceeded'))
         AND COALESCE(d.terminal_at, 'infinity') > $3) AS answers,
    (SELECT json_agg(json_strip_nulls(json_build_object('delegation', d.id::text, 'room', d.room_id,
         'source', d.matrix_event_id, 'threadRoot', d.thread_root, 'ghost', d.ghost_mxid, 'sender', d.sender_mxid,
         'options', encode(d.options, 'base64'), 'since', (extract(epoch FROM d.waiting_since) * 1000)::float8,
         'tried', (SELECT (extract(epoch FROM s.first_attempted_at) * 1000)::float8 ${QUESTION} AND s.ordinal = d.question_from),
         'said', ARRAY (SELECT s.event_id ${QUESTION} AND s.ordinal >= d.question_from),
         'earlier', ARRAY (SELECT s.event_id ${QUESTION} AND s.ordinal < d.question_from))) ORDER BY d.id)
       FROM bridge_delegations d
       WHERE cardinality($2::text[]) > 0 AND d.room_id = ANY ($1) AND d.state = 'awaiting_input'
         AND d.prompt IS NULL AND d.cancel_requested_at IS NULL AND d.input_until IS NOT NULL) AS questions`;

/** So long after an answer, whoever goes on has had the time to read it. */
const REACTION_MS = 30_000;

/** What is known of the events that others refer to, and of partners, is absent where nothing refers to anything. */
export interface KnownRow extends KnownPlaces {
  readonly open_global_max: number;
  readonly forgotten_before: number;
  readonly ghosts?: readonly (readonly [RoomId, GhostMxid, "invite" | "join" | "leave", UserId | null])[];
  readonly partners?: readonly (readonly [RoomId, ServerName])[];
  readonly answers?: KnownFacts["recentAnswers"];
  readonly subjects?: KnownFacts["subjects"];
  readonly waiting?: readonly (WaitingQuestion & { readonly place?: number })[];
  readonly questions?: readonly (Omit<OpenQuestion, "options"> & { readonly options?: string })[];
}

/** @param now milliseconds since the Unix epoch: what was said long before is no recent answer */
export async function readKnown(
  on: Queryable,
  { rooms, related, threads = [], partnerGhosts = [] }: About,
  now: number,
): Promise<KnownRow> {
  const isAlone = related.length + threads.length + partnerGhosts.length === 0;
  const more = [toTime(now - REACTION_MS), JSON.stringify(partnerGhosts), JSON.stringify(threads)];
  const [known, about] = await Promise.all([
    KNOWN.one(on, [rooms]),
    isAlone ? undefined : KNOWN_RELATED.one(on, [rooms, related, ...more]),
  ]);
  return { ...known, ...about };
}

/** @param now milliseconds since the Unix epoch */
export function toFacts(row: KnownRow, keys: ContentKeys, now: number): KnownFacts {
  const ghosts = row.ghosts ?? [];
  const ghostsIn = new Map<RoomId, Set<GhostMxid>>();
  const directWith = new Map<RoomId, { ghost: GhostMxid; person: UserId }>();
  for (const [room, all] of Map.groupBy(ghosts, ([one]) => one)) {
    const present = all.filter(([, , membership]) => membership !== "leave");
    ghostsIn.set(room, new Set(present.map(([, ghost]) => ghost)));
    // Any server may invite a further ghost, which may never join.
    const joined = present.filter(([, , membership]) => membership === "join");
    const [only, ...others] = joined.length > 0 ? joined : present;
    const [, ghost, , person] = others.length > 0 ? [] : (only ?? []);
    if (ghost !== undefined && person != null) directWith.set(room, { ghost, person });
  }
  const partnersIn = new Map<RoomId, Set<ServerName>>();
  for (const [room, server] of row.partners ?? []) {
    partnersIn.set(room, (partnersIn.get(room) ?? new Set()).add(server));
  }
  // The first ghost that is joined; one that is invited may never join.
  const speakers = ghosts
    .filter(([, , membership]) => membership === "join")
    .toSorted(([, left], [, right]) => (left < right ? 1 : -1));
  return {
    forgottenBefore: tooOldBefore(row.forgotten_before, now),
    encryptedRooms: new Set((row.rooms ?? []).filter(([, encrypted]) => encrypted).map(([room]) => room)),
    ghostsIn,
    speakers: new Map(speakers.map(([room, ghost]) => [room, ghost])),
    partnersIn,
    directWith,
    subjects: row.subjects ?? [],
    waiting: row.waiting ?? [],
    recentAnswers: row.answers ?? [],
    openQuestions: (row.questions ?? []).map(({ options: sealed, ...question }) => {
      const { source: event, ghost } = question;
      const options =
        sealed === undefined ? [] : openOptions(keys, { event, ghost }, Buffer.from(sealed, "base64"));
      return { ...question, options };
    }),
  };
}

const INDICES = statement<{ digest: Buffer; event: EventId }>("known_indices")`
  SELECT index_digest AS digest, matrix_event_id AS event FROM bridge_megolm_indices WHERE index_digest = ANY ($1::bytea[])`;

type IndexUse = Pick<NewAnswer, "indexDigest" | "event">;

/** The event that each of these message indices belongs to: the one that used it before, or the first of these in `order`. */
export async function indexOwners(
  on: Queryable,
  uses: readonly IndexUse[],
  order: readonly EventId[],
): Promise<KnownIndices> {
  const digests = uses.flatMap(({ indexDigest }) => indexDigest ?? []);
  if (digests.length === 0) return new Map();
  const found = await INDICES.rows(on, [digests]);
  const owners = new Map(found.map(({ digest, event }) => [indexKey(digest), event]));
  const placeOf = new Map(order.map((event, place) => [event, place]));
  const inOrder = uses.toSorted((a, b) => (placeOf.get(a.event) ?? 0) - (placeOf.get(b.event) ?? 0));
  for (const { indexDigest, event } of inOrder) {
    const key = indexDigest && indexKey(indexDigest);
    if (key !== undefined && !owners.has(key)) owners.set(key, event);
  }
  return owners;
}

const RECORD_INDICES = statement("record_indices")`
  INSERT INTO bridge_megolm_indices (index_digest, matrix_event_id, used_at)
  SELECT digest, event, $3 FROM unnest($1::bytea[], $2::text[]) AS u (digest, event)
  ON CONFLICT DO NOTHING`;

/** Records the message indices that events of their own used, refused ones included: an index belongs to its first event. */
export async function recordIndices(
  on: Queryable,
  uses: readonly IndexUse[],
  owners: KnownIndices,
  now: number,
): Promise<void> {
  const used = uses.filter((use) => use.indexDigest !== undefined && isFirstUse(owners, use));
  if (used.length === 0) return;
  await RECORD_INDICES.run(on, [...columnsOf(used, "indexDigest", "event"), toTime(now)]);
}
