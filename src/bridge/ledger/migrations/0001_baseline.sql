-- The schema of the bridge's database. Times are passed in by the bridge; the database's clock is not used.
--
-- Invariants that the tables themselves keep:
--   * one delegation for each (matrix_event_id, ghost_mxid), and one intake envelope for each event;
--   * a terminal row holds no content, no lease and no due time, and has a reason from a closed set;
--   * an intake envelope holds neither content nor ciphertext nor the name of a session;
--   * every outgoing event has a transaction ID that is unique across the appservice;
--   * a room is never due while its head is an intake envelope that awaits its key.
--
-- Order in a room. Each admitted event takes the next place (`room_seq`) of its room. The delegations of one event
-- share its place and differ in `room_ordinal` (0 … room_siblings - 1). The room's row names the head: the one
-- delegation whose turn it is. Advancing it is arithmetic on that row alone, so that it cannot miss a row that a
-- concurrent transaction adds. It advances when its delegation was accepted, has ended, or held the room for too long.
--
-- An intake envelope takes a place like any admitted event. While it awaits its key, its place blocks the room:
-- `gate_seq` is the lowest such place. When it ends without delegations, or has held its room for too long, its place
-- becomes void and the head steps over it; void places that the head has not reached stand in `voids`. Intake envelopes
-- alone change these two columns, under the room's lock.
--
-- Locks are taken in the order: intake envelopes, delegations, rooms, each by ascending key. The one exception is a
-- redaction, which locks intake envelopes last. It holds the room's lock, and a transaction that locks an intake
-- envelope without that lock waits for nothing else, so that there is no deadlock.

---- Intake --------------------------------------------------------------------

-- Every event that was handled, whatever was decided about it: it is decided once.
CREATE TABLE bridge_handled_events (
  matrix_event_id text PRIMARY KEY,
  handled_at timestamptz NOT NULL,
  -- Of the exact body of the transaction that brought it; NULL: a catchup found it.
  body_sha256 bytea CHECK (octet_length(body_sha256) = 32)
);
CREATE INDEX bridge_handled_events_age ON bridge_handled_events (handled_at);

-- Handled events that are older than this may have been deleted: such an event asks nobody.
CREATE TABLE bridge_forgotten (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  before timestamptz NOT NULL
);
INSERT INTO bridge_forgotten VALUES (true, '-infinity');

-- Events that could not be parsed. Nothing of their content is kept except a digest.
CREATE TABLE bridge_malformed_events (
  event_sha256 bytea PRIMARY KEY CHECK (octet_length(event_sha256) = 32),
  transaction_id text NOT NULL,
  reason text NOT NULL,
  matrix_event_id text,
  room_id text,
  received_at timestamptz NOT NULL
);
CREATE INDEX bridge_malformed_events_age ON bridge_malformed_events (received_at);

CREATE TABLE bridge_rooms (
  room_id text PRIMARY KEY,
  encrypted boolean NOT NULL DEFAULT false,
  -- The next free place.
  next_seq bigint NOT NULL DEFAULT 1,
  head_seq bigint NOT NULL DEFAULT 1,
  head_ordinal integer NOT NULL DEFAULT 0,
  -- When the head may be claimed: now, after a back-off, or when its present lease ends. NULL: there is no head.
  head_at timestamptz,
  -- The lowest place of an intake envelope that awaits its key.
  gate_seq bigint,
  -- Void places that the head has not reached.
  voids int8multirange NOT NULL DEFAULT '{}',
  -- Delegations that have not ended: what the room's and the deployment's capacity count.
  open_count integer NOT NULL DEFAULT 0 CHECK (open_count >= 0),
  -- Set when the room got the notice that keys are missing. No second one is sent until an event is decrypted.
  keys_missing_at timestamptz,
  CHECK (head_seq <= next_seq),
  CONSTRAINT gate_is_ahead CHECK (gate_seq >= head_seq AND gate_seq < next_seq),
  CONSTRAINT head_is_not_void CHECK (NOT voids @> head_seq),
  CONSTRAINT head_has_its_time CHECK (
    (head_at IS NULL) = (head_seq = next_seq OR head_seq IS NOT DISTINCT FROM gate_seq))
);
CREATE INDEX bridge_rooms_head ON bridge_rooms (head_at) WHERE head_at IS NOT NULL;

-- The first place from `seq` on that is not void. A multirange merges adjacent ranges, so one step is enough.
CREATE FUNCTION bridge_place_from(seq bigint, voids int8multirange) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN COALESCE((SELECT upper(void) FROM unnest(voids) void WHERE void @> seq), seq);

-- An upper bound of open delegations in all rooms: those of the last count, and all that were admitted since. It is
-- counted again only when it might exceed a share, so that admissions and transitions do not contend for one row.
CREATE TABLE bridge_capacity (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  admitted bigint NOT NULL DEFAULT 0,
  counted_open bigint NOT NULL DEFAULT 0,
  counted_at_admitted bigint NOT NULL DEFAULT 0
);
INSERT INTO bridge_capacity DEFAULT VALUES;

-- Joined members of rooms that ghosts are in, without the ghosts.
CREATE TABLE bridge_room_members (
  room_id text NOT NULL,
  user_id text NOT NULL,
  PRIMARY KEY (room_id, user_id)
);

---- Ghosts and their devices --------------------------------------------------

CREATE TABLE bridge_ghosts (
  ghost_mxid text PRIMARY KEY,
  device_id text NOT NULL,
  -- Of the profile last set on the homeserver, and when it was set.
  profile_digest text,
  profile_set_at timestamptz,
  -- The card whose icon is the avatar, and the image; NULL: none was set.
  avatar_card_digest text,
  avatar_content_digest text,
  -- The image that was uploaded last and is not the avatar yet, and its address.
  avatar_upload_digest text,
  avatar_upload_url text,
  -- When an image was last uploaded for the ghost.
  avatar_uploaded_at timestamptz,
  created_at timestamptz NOT NULL,
  -- How far the ghost has read its to-device messages and its rooms, in catchups. A position is moved only when
  -- everything before it is durable. NULL: from the beginning.
  to_device_since text,
  rooms_since text,
  -- Why the device takes no part until an operator resets it. Kept here, because a lost store has no row.
  device_stopped_reason text CHECK (device_stopped_reason IN (
    'store_lost', 'store_foreign', 'store_behind', 'device_deleted')),
  device_stopped_at timestamptz,
  CHECK ((device_stopped_reason IS NULL) = (device_stopped_at IS NULL)),
  CHECK ((profile_digest IS NULL) = (profile_set_at IS NULL)),
  CHECK ((avatar_card_digest IS NULL) = (avatar_content_digest IS NULL)),
  CHECK ((avatar_upload_digest IS NULL) = (avatar_upload_url IS NULL))
);

CREATE TABLE bridge_ghost_rooms (
  room_id text NOT NULL,
  ghost_mxid text NOT NULL,
  membership text NOT NULL CHECK (membership IN ('invite', 'join', 'leave')),
  inviter text,
  -- When the last invitation was made (its origin_server_ts): an older leave that arrives late does not withdraw it.
  -- NULL: unknown.
  invited_at bigint,
  direct boolean NOT NULL DEFAULT false,
  -- `settle`: read the room's state.
  task text CHECK (task IN ('answer_invite', 'settle', 'leave')),
  due_at timestamptz,
  -- The process whose lease `due_at` ends; NULL: there is no lease.
  holder text,
  fence bigint NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  -- When the ghost left.
  inactive_since timestamptz,
  PRIMARY KEY (room_id, ghost_mxid),
  CHECK ((task IS NULL) = (due_at IS NULL)),
  CHECK ((inactive_since IS NOT NULL) = (membership = 'leave'))
);
CREATE INDEX bridge_ghost_rooms_due ON bridge_ghost_rooms (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX bridge_ghost_rooms_inactive ON bridge_ghost_rooms (inactive_since)
  WHERE inactive_since IS NOT NULL AND task IS NULL;

-- The stores of the ghosts' cryptographic machines. Invariants: a store's records are written under its fence; opening
-- a store raises the fence, which locks out the process that had it open; a writer locks the store's row FOR SHARE in
-- the statement that writes. A store without identity keys was never finished, and is begun again; once written, they
-- never change.
CREATE TABLE bridge_crypto_stores (
  ghost_mxid text PRIMARY KEY,
  device_id text NOT NULL,
  sealed_key bytea NOT NULL,
  fence bigint NOT NULL DEFAULT 1,
  -- Version, object stores and indices of the machine's databases.
  databases jsonb NOT NULL DEFAULT '[]',
  curve25519 text,
  ed25519 text,
  created_at timestamptz NOT NULL,
  -- Raised at each start and each upload of keys, and written to the homeserver as well. The homeserver's epoch is
  -- higher when this database was restored from a backup.
  epoch bigint NOT NULL DEFAULT 0,
  -- When the homeserver first had the device's keys.
  published_at timestamptz,
  CHECK ((curve25519 IS NULL) = (ed25519 IS NULL)),
  CHECK (published_at IS NULL OR curve25519 IS NOT NULL)
);

-- There is no foreign key: each write locks its store's row in the same statement, which is stricter and costs less.
CREATE TABLE bridge_crypto_records (
  ghost_mxid text NOT NULL,
  -- Object store of the machine's databases.
  object_store text COLLATE "C" NOT NULL,
  -- Bytes that sort as IndexedDB sorts keys.
  record_key bytea NOT NULL,
  value bytea NOT NULL,
  -- The record's key in the object store's index over several members.
  index_key bytea,
  -- Day of the last use, counted from the Unix epoch, of a record that is deleted when it was not used for long.
  used_day integer,
  PRIMARY KEY (ghost_mxid, object_store, record_key)
);
CREATE INDEX bridge_crypto_records_index ON bridge_crypto_records (ghost_mxid, object_store, index_key, record_key)
  WHERE index_key IS NOT NULL;
CREATE INDEX bridge_crypto_records_used ON bridge_crypto_records (used_day) WHERE used_day IS NOT NULL;
-- The values are encrypted, so compression would gain nothing.
ALTER TABLE bridge_crypto_records ALTER COLUMN value SET STORAGE EXTERNAL;

---- Delegations and intake envelopes ------------------------------------------

CREATE TABLE bridge_delegations (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  matrix_event_id text NOT NULL,
  ghost_mxid text NOT NULL,
  room_id text NOT NULL,
  room_seq bigint,
  room_ordinal integer,
  room_siblings integer,
  sender_mxid text NOT NULL,
  origin_server_ts bigint NOT NULL,
  thread_root text,
  ingress text NOT NULL DEFAULT 'transaction' CHECK (ingress IN ('transaction', 'recovered')),
  agent_id text NOT NULL,
  target_fingerprint text NOT NULL,
  agent_version text,
  -- The question's number in an exchange in which nobody paused: 1 for a person's question.
  agent_turn integer NOT NULL DEFAULT 1 CHECK (agent_turn >= 1),
  state text NOT NULL CHECK (state IN (
    'queued', 'dispatching', 'following', 'awaiting_input', 'reply_pending',
    'completed', 'failed', 'canceled', 'denied')),
  lease_holder text,
  lease_until timestamptz,
  fence bigint NOT NULL DEFAULT 0,
  -- When a delegation that its room is past may be claimed again: one that was accepted, or one that did not get on at
  -- the head for too long. The time of a head is bridge_rooms.head_at.
  due_at timestamptz,
  -- Tries since it last made progress.
  attempts integer NOT NULL DEFAULT 0,
  -- Streams that were opened for its task. After a few that broke, the task is polled.
  streams_opened integer NOT NULL DEFAULT 0,
  -- Polls in a row in which the agent broke the rules of A2A. After a few its task is given up.
  faults integer NOT NULL DEFAULT 0,
  -- When it was first claimed to hand over its prompt. The dispatch deadline, and the time for which it may hold its
  -- room, begin then.
  tried_at timestamptz,
  cancel_requested_at timestamptz,
  cancel_reason text CHECK (cancel_reason IN ('source_redacted', 'sender_canceled', 'operator_canceled')),
  -- Sealed: what is to be handed to the agent. The question, until the agent has accepted it; then, while the agent's
  -- task awaits input, the answer of the person who asked.
  prompt bytea,
  -- When the edit was made whose text that is (its origin_server_ts): an older one that comes late changes nothing.
  edited_ts bigint,
  -- The event of that answer. The message that hands it over is named after it.
  answer_event_id text,
  -- How many events of questions from the agent were recorded.
  asked integer NOT NULL DEFAULT 0,
  -- The ordinal of the first event of the last question.
  question_from integer NOT NULL DEFAULT 0,
  -- Names the agent's last question among the states of its task.
  question_key text,
  -- Sealed: the options of that question.
  options bytea,
  -- Until when the task awaits input. NULL: nobody may answer any more.
  input_until timestamptz,
  -- W3C Trace Context, of random bytes alone: sent with every request to the agent.
  traceparent text NOT NULL DEFAULT '00-' || replace(gen_random_uuid()::text, '-', '')
    || '-' || right(replace(gen_random_uuid()::text, '-', ''), 16) || '-01',
  a2a_task_id text,
  -- Kept for so long after the end as it may be continued.
  a2a_context_id text,
  a2a_attempted boolean NOT NULL DEFAULT false,
  -- A request may have reached the agent, and its outcome is unknown.
  a2a_unsettled boolean NOT NULL DEFAULT false,
  -- Until then the agent may still be storing the task of that request.
  a2a_storing_until timestamptz,
  -- The limiter tokens of what is handed over were spent.
  limiter_spent boolean NOT NULL DEFAULT false,
  retry_reason text,
  admitted_at timestamptz NOT NULL,
  accepted_at timestamptz,
  -- Since when it waits for what it waits for now. NULL: since its admission.
  waiting_since timestamptz,
  -- When its answer was recorded. The reply deadline begins then.
  reply_at timestamptz,
  reply_event_id text,
  -- It takes long, and has got its row in bridge_statuses.
  has_status boolean NOT NULL DEFAULT false,
  terminal_at timestamptz,
  terminal_stage text,
  terminal_reason text,
  UNIQUE (matrix_event_id, ghost_mxid),
  UNIQUE (room_id, room_seq, room_ordinal),
  CHECK ((room_seq IS NULL) = (room_ordinal IS NULL) AND (room_seq IS NULL) = (room_siblings IS NULL)),
  CHECK ((lease_holder IS NULL) = (lease_until IS NULL)),
  CHECK ((cancel_requested_at IS NULL) = (cancel_reason IS NULL)),
  CONSTRAINT terminal_is_final CHECK (
    CASE WHEN state IN ('completed', 'failed', 'canceled', 'denied')
      THEN terminal_at IS NOT NULL AND terminal_stage IS NOT NULL AND terminal_reason IS NOT NULL
        AND prompt IS NULL AND options IS NULL AND question_key IS NULL AND a2a_task_id IS NULL
        AND lease_holder IS NULL AND due_at IS NULL
      ELSE terminal_at IS NULL AND terminal_stage IS NULL AND terminal_reason IS NULL AND room_seq IS NOT NULL
    END)
);
CREATE INDEX bridge_delegations_due ON bridge_delegations (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX bridge_delegations_open ON bridge_delegations (room_id, room_seq, room_ordinal) WHERE terminal_at IS NULL;
-- What a question may be a reaction to.
CREATE INDEX bridge_delegations_answered ON bridge_delegations (room_id, COALESCE(terminal_at, 'infinity'))
  WHERE state = 'reply_pending' OR terminal_reason IN ('answered', 'agent_turns_exceeded');
CREATE INDEX bridge_delegations_asking ON bridge_delegations (room_id) WHERE state = 'awaiting_input';
-- What gets a status message when it takes long.
CREATE INDEX bridge_delegations_without_status ON bridge_delegations (admitted_at)
  WHERE NOT has_status AND state IN ('queued', 'dispatching', 'following');
CREATE INDEX bridge_delegations_answer ON bridge_delegations (answer_event_id) WHERE answer_event_id IS NOT NULL;
CREATE INDEX bridge_delegations_ended ON bridge_delegations (terminal_at) WHERE terminal_at IS NOT NULL;
CREATE INDEX bridge_delegations_contexts ON bridge_delegations ((CASE WHEN a2a_context_id IS NOT NULL THEN terminal_at END))
  WHERE CASE WHEN a2a_context_id IS NOT NULL THEN terminal_at END IS NOT NULL;
CREATE INDEX bridge_delegations_thread ON bridge_delegations (room_id, thread_root, ghost_mxid, sender_mxid, id)
  WHERE thread_root IS NOT NULL AND terminal_reason IS DISTINCT FROM 'sender_policy_rejected';
-- What is open in a thread, of an agent, and of the users of a server. Indexes of expressions, because an empty table gives
-- the planner no reason to choose the right one of several indexes of open delegations.
CREATE FUNCTION bridge_if_open(terminal_at timestamptz, value text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN terminal_at IS NULL THEN value END;
CREATE FUNCTION bridge_server_of(user_id text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN substr(user_id, strpos(user_id, ':') + 1);
CREATE INDEX bridge_delegations_open_in_thread ON bridge_delegations (bridge_if_open(terminal_at, thread_root))
  WHERE bridge_if_open(terminal_at, thread_root) IS NOT NULL;
CREATE INDEX bridge_delegations_open_of_agent ON bridge_delegations (bridge_if_open(terminal_at, agent_id))
  WHERE bridge_if_open(terminal_at, agent_id) IS NOT NULL;
CREATE INDEX bridge_delegations_open_of_server
  ON bridge_delegations (bridge_if_open(terminal_at, bridge_server_of(sender_mxid)))
  WHERE bridge_if_open(terminal_at, bridge_server_of(sender_mxid)) IS NOT NULL;

-- Intake envelopes: encrypted events whose keys were missing when they arrived.
CREATE TABLE bridge_encrypted_intake (
  matrix_event_id text PRIMARY KEY,
  room_id text NOT NULL,
  sender_mxid text NOT NULL,
  origin_server_ts bigint NOT NULL,
  -- The transaction that brought it.
  transaction_id text NOT NULL,
  ingress text NOT NULL CHECK (ingress IN ('transaction', 'recovered')),
  -- Of the event as it arrived. The event that is fetched again later must have the same fingerprint.
  intake_fingerprint bytea NOT NULL CHECK (octet_length(intake_fingerprint) = 32),
  -- The event whose text it replaces; NULL: it is no edit.
  edits_event_id text,
  -- The ghost whose direct room with the sender it came in; NULL: it was no direct room.
  direct_ghost text,
  -- The event that it replies to, else the root of its thread.
  refers_to text,
  -- NULL once its room has continued without it.
  room_seq bigint,
  state text NOT NULL CHECK (state IN ('awaiting_key', 'derived', 'denied', 'expired')),
  -- How many delegations took its place in the room.
  jobs integer NOT NULL DEFAULT 0 CHECK (jobs >= 0),
  attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  key_requests integer NOT NULL DEFAULT 0 CHECK (key_requests BETWEEN 0 AND attempts),
  -- When it may be claimed: after a back-off, or when its present lease ends.
  due_at timestamptz,
  -- As in bridge_ghost_rooms.
  holder text,
  -- When a key of its room arrived during the present lease.
  woken_at timestamptz,
  fence bigint NOT NULL DEFAULT 0,
  deadline timestamptz NOT NULL,
  admitted_at timestamptz NOT NULL,
  terminal_at timestamptz,
  terminal_reason text,
  UNIQUE (room_id, room_seq),
  CHECK (room_seq IS NULL OR state <> 'denied'),
  CHECK (jobs = 0 OR state = 'derived'),
  CONSTRAINT envelope_ends_once CHECK (
    CASE state
      WHEN 'awaiting_key' THEN due_at IS NOT NULL AND terminal_at IS NULL AND terminal_reason IS NULL
      ELSE due_at IS NULL AND holder IS NULL AND terminal_at IS NOT NULL AND terminal_reason IS NOT NULL
    END),
  CONSTRAINT envelope_reason CHECK (
    CASE state
      WHEN 'awaiting_key' THEN terminal_reason IS NULL
      WHEN 'derived' THEN terminal_reason IN ('derived')
      WHEN 'denied' THEN terminal_reason IN (
        'room_envelopes_exceeded', 'sender_envelopes_exceeded', 'server_envelopes_exceeded', 'global_envelopes_exceeded')
      WHEN 'expired' THEN terminal_reason IN (
        'key_wait_elapsed', 'key_requests_exhausted', 'key_withheld', 'source_redacted', 'event_unavailable', 'event_changed',
        'sender_mismatch', 'device_not_trusted', 'undecryptable', 'operator_canceled')
    END)
);
CREATE INDEX bridge_encrypted_intake_due ON bridge_encrypted_intake (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX bridge_encrypted_intake_sender ON bridge_encrypted_intake (sender_mxid) WHERE state = 'awaiting_key';
CREATE INDEX bridge_encrypted_intake_waiting ON bridge_encrypted_intake (room_id, room_seq)
  WHERE state = 'awaiting_key';
CREATE INDEX bridge_encrypted_intake_ended ON bridge_encrypted_intake (terminal_at) WHERE terminal_at IS NOT NULL;

-- Which event used each message index of a room key, of events that became delegations. The same ciphertext under
-- another event ID is a replay.
CREATE TABLE bridge_megolm_indices (
  index_digest bytea PRIMARY KEY CHECK (octet_length(index_digest) = 32),
  matrix_event_id text NOT NULL,
  used_at timestamptz NOT NULL
);
CREATE INDEX bridge_megolm_indices_age ON bridge_megolm_indices (used_at);

---- What the bridge sends -----------------------------------------------------

-- The events of delegations: answers, and questions from the agent. `content` is sealed.
CREATE TABLE bridge_sends (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  delegation_id bigint NOT NULL REFERENCES bridge_delegations,
  purpose text NOT NULL CHECK (purpose IN ('reply', 'progress', 'question')),
  ordinal integer NOT NULL,
  transaction_id text NOT NULL UNIQUE,
  event_type text NOT NULL,
  content bytea,
  state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'abandoned')),
  first_attempted_at timestamptz,
  event_id text,
  UNIQUE (delegation_id, purpose, ordinal),
  CHECK ((state = 'pending') = (content IS NOT NULL)),
  CHECK ((state = 'sent') = (event_id IS NOT NULL))
);
CREATE INDEX bridge_sends_event ON bridge_sends (event_id) WHERE event_id IS NOT NULL;

-- The status message of each delegation that takes long. Its row goes when the message says that it has ended.
CREATE TABLE bridge_statuses (
  delegation_id bigint PRIMARY KEY REFERENCES bridge_delegations ON DELETE CASCADE,
  -- Sealed: what the agent said last about its work.
  report bytea,
  -- The status message. Its later forms are edits of it.
  event_id text,
  -- Digest of what it says now, or `unknown`.
  shown text,
  pinned boolean NOT NULL DEFAULT false,
  due_at timestamptz NOT NULL,
  -- As in bridge_ghost_rooms.
  holder text,
  fence bigint NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  first_attempted_at timestamptz,
  CHECK ((event_id IS NULL) = (shown IS NULL))
);
CREATE INDEX bridge_statuses_due ON bridge_statuses (due_at);

-- Notices, without their text: it is made from `kind` and `reason` when the notice is sent.
CREATE TABLE bridge_notices (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- Names the cause of the notice. Of several causes with one marker only the first gets a notice.
  marker text NOT NULL UNIQUE,
  kind text NOT NULL CHECK (kind IN (
    'agent_directory', 'help', 'policy_denied', 'rate_limited', 'capacity_exceeded', 'delegation_stopped', 'delegation_canceled', 'cancel_refused',
    'answer_refused', 'delegation_failed', 'encrypted_room_refused', 'keys_missing')),
  room_id text NOT NULL,
  ghost_mxid text NOT NULL,
  source_event_id text,
  -- Who asked for the list of agents: it names those that this person may ask.
  asker_mxid text,
  thread_root text,
  reason text,
  transaction_id text NOT NULL UNIQUE,
  state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'dropped')),
  created_at timestamptz NOT NULL,
  due_at timestamptz,
  -- As in bridge_ghost_rooms.
  holder text,
  fence bigint NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  first_attempted_at timestamptz,
  event_id text,
  CHECK ((state = 'pending') = (due_at IS NOT NULL)),
  CHECK ((state = 'sent') = (event_id IS NOT NULL))
);
CREATE INDEX bridge_notices_due ON bridge_notices (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX bridge_notices_ended ON bridge_notices (created_at)
  WHERE state <> 'pending' AND kind <> 'encrypted_room_refused';
CREATE INDEX bridge_notices_room ON bridge_notices (room_id, kind, ghost_mxid, created_at);

---- Targets and limits --------------------------------------------------------

-- The last trust decision on each ghost's Agent Card.
CREATE TABLE bridge_targets (
  ghost_mxid text PRIMARY KEY,
  agent_id text NOT NULL,
  trust text NOT NULL CHECK (trust IN ('verified', 'quarantined')),
  target_fingerprint text NOT NULL,
  key_id text,
  card_digest text,
  agent_version text,
  checked_at timestamptz NOT NULL
);

-- The token buckets of agents, senders and their servers.
CREATE TABLE bridge_limiter (
  bucket text PRIMARY KEY,
  tokens double precision NOT NULL,
  refilled_at timestamptz NOT NULL
);
CREATE INDEX bridge_limiter_age ON bridge_limiter (refilled_at);

-- Begins the dispatches that are held under these leases: each spends one token of each of its buckets, unless it has before, and
-- its agent may be called from then on; or one of its buckets is empty, and it spends nothing. One row for each, in their order.
-- The last four arrays have an element for each bucket of each dispatch, which is named by its place among the first three.
CREATE FUNCTION bridge_begin_dispatches(
  ids bigint[], holders text[], fences bigint[],
  askers bigint[], buckets text[], per_minute float8[], bursts float8[], begun_at timestamptz
) RETURNS TABLE (outcome text, empty_bucket text) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  dispatch bigint;
  outcomes text[];
BEGIN
  -- Delegations and buckets are locked in ascending order, so that two processes never deadlock.
  FOR dispatch IN SELECT u.place FROM unnest(ids) WITH ORDINALITY AS u (id, place) ORDER BY u.id LOOP
    SELECT CASE WHEN d.cancel_requested_at IS NOT NULL THEN 'canceled' WHEN d.limiter_spent THEN 'begun' ELSE 'asking' END
      INTO outcome FROM bridge_delegations d
      WHERE d.id = ids[dispatch] AND d.lease_holder = holders[dispatch] AND d.fence = fences[dispatch] AND d.state = 'dispatching'
      FOR UPDATE;
    outcomes[dispatch] := COALESCE(outcome, 'lost');
  END LOOP;
  INSERT INTO bridge_limiter AS b (bucket, tokens, refilled_at)
    SELECT w.bucket, max(w.burst), begun_at FROM unnest(askers, buckets, bursts) AS w (asker, bucket, burst)
    WHERE outcomes[w.asker] = 'asking' GROUP BY w.bucket ORDER BY w.bucket
    ON CONFLICT (bucket) DO UPDATE SET
      tokens = LEAST(excluded.tokens, b.tokens + GREATEST(0, extract(epoch FROM begun_at - b.refilled_at)::float8) / 60
        * (SELECT max(w.rate) FROM unnest(buckets, per_minute) AS w (bucket, rate) WHERE w.bucket = b.bucket)),
      -- A time far ahead is of a clock that was wrong: until then the bucket would stay as it is.
      refilled_at = CASE WHEN b.refilled_at > begun_at + interval '1 hour' THEN begun_at ELSE GREATEST(b.refilled_at, begun_at) END;
  FOR dispatch IN 1 .. cardinality(ids) LOOP
    outcome := outcomes[dispatch];
    empty_bucket := NULL;
    IF outcome = 'asking' THEN
      empty_bucket := (SELECT b.bucket FROM unnest(askers, buckets) WITH ORDINALITY AS u (asker, bucket, place)
        JOIN bridge_limiter b ON b.bucket = u.bucket
        WHERE u.asker = dispatch AND b.tokens < 1 ORDER BY u.place LIMIT 1);
      outcome := CASE WHEN empty_bucket IS NULL THEN 'begun' ELSE 'refused' END;
    END IF;
    IF outcome = 'begun' THEN
      UPDATE bridge_limiter b SET tokens = b.tokens - 1
        FROM unnest(askers, buckets) AS u (asker, bucket)
        WHERE outcomes[u.asker] = 'asking' AND u.asker = dispatch AND b.bucket = u.bucket;
      UPDATE bridge_delegations d SET a2a_attempted = true, a2a_unsettled = true, limiter_spent = true
        WHERE d.id = ids[dispatch] AND d.lease_holder = holders[dispatch] AND d.fence = fences[dispatch];
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

---- Audit ---------------------------------------------------------------------

-- The durable audit. Every record is content-free: identifiers, members of closed sets and times alone.
CREATE TABLE bridge_audit (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  schema text NOT NULL CHECK (schema IN ('svc.delegation.v1', 'svc.agent_card.v1', 'svc.encrypted_intake.v1')),
  record jsonb NOT NULL,
  created_at timestamptz NOT NULL,
  exported_at timestamptz
);
CREATE INDEX bridge_audit_unexported ON bridge_audit (id) WHERE exported_at IS NULL;
CREATE INDEX bridge_audit_exported ON bridge_audit (exported_at) WHERE exported_at IS NOT NULL;

CREATE FUNCTION bridge_time(t timestamptz) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN to_char(t AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');

-- The record svc.delegation.v1 of a terminal delegation.
CREATE FUNCTION bridge_delegation_audit(d bridge_delegations) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_build_object(
  'schema', 'svc.delegation.v1',
  'time', bridge_time(d.terminal_at),
  'outcome', d.state,
  'terminal_stage', d.terminal_stage,
  'terminal_reason', d.terminal_reason,
  'a2a_attempted', d.a2a_attempted,
  'target', jsonb_build_object(
    'agent', d.agent_id, 'ghost', d.ghost_mxid,
    'fingerprint', d.target_fingerprint, 'agent_version', d.agent_version),
  'room_id', d.room_id,
  'event_id', d.matrix_event_id,
  'sender', d.sender_mxid,
  'ingress', d.ingress,
  'admitted_at', bridge_time(d.admitted_at),
  'accepted_at', bridge_time(d.accepted_at),
  'reply_event_id', d.reply_event_id);

-- The record svc.encrypted_intake.v1 of an expired intake envelope.
CREATE FUNCTION bridge_encrypted_intake_audit(e bridge_encrypted_intake) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_build_object(
  'schema', 'svc.encrypted_intake.v1',
  'time', bridge_time(e.terminal_at),
  'outcome', e.state,
  'terminal_reason', e.terminal_reason,
  'room_id', e.room_id,
  'event_id', e.matrix_event_id,
  'sender', e.sender_mxid,
  'ingress', e.ingress,
  'key_requests', e.key_requests,
  'admitted_at', bridge_time(e.admitted_at));

---- Processes -----------------------------------------------------------------

-- The numbers of bridge processes. A process holds the advisory lock of its number while it lives, a shared one once it drains.
CREATE SEQUENCE bridge_process AS integer;

CREATE FUNCTION bridge_live_processes(lock_mode text DEFAULT '%') RETURNS SETOF text LANGUAGE sql VOLATILE AS $$
  SELECT DISTINCT objid::text FROM pg_locks
  WHERE locktype = 'advisory' AND classid = 1685223266 AND objsubid = 2 AND granted AND mode LIKE lock_mode
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
$$;

-- Which process owns a ghost's machine, or a role. The owner may have ended: then any other may take it.
CREATE TABLE bridge_ownership (
  -- A ghost, or one of the roles `audit`, `avatars`, `catchup` and `retention`.
  name text PRIMARY KEY,
  process text NOT NULL
);

-- What transactions brought for devices of ghosts whose machines another process owns.
CREATE TABLE bridge_device_inbox (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  ghost_mxid text NOT NULL,
  -- As JSON. To-device messages in it are encrypted by their senders.
  changes text NOT NULL,
  received_at timestamptz NOT NULL
);
CREATE INDEX bridge_device_inbox_ghost ON bridge_device_inbox (ghost_mxid, id);
CREATE INDEX bridge_device_inbox_age ON bridge_device_inbox (received_at);

-- How far this database has come. The homeserver keeps a copy: a database that has come less far was put back from a
-- backup.
CREATE TABLE bridge_database_marker (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  -- Made when a bridge first works on it, and anew when a database that was put back is accepted.
  database uuid,
  count bigint NOT NULL DEFAULT 0
);
INSERT INTO bridge_database_marker DEFAULT VALUES;
