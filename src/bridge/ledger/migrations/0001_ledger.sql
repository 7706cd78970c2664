-- version 1, oldest compatible version 1
--
-- The ledger of the bridge. Invariants that the tables themselves keep:
--   * one delegation for a (matrix_event_id, ghost_mxid) pair, for ever;
--   * a terminal row holds no content, no lease and no place in a queue;
--   * every outgoing event has a transaction ID that is unique across the appservice;
--   * state, stage and reason come from closed sets.
--
-- Order in a room. Each admitted event takes the next `room_seq` of its room; the delegations of one
-- event share it and are told apart by `room_ordinal` (0 … room_siblings - 1). The room's row points at
-- the head: the one delegation whose turn it is. Advancing the head is arithmetic on that row alone, so
-- it needs no look at other rows and cannot miss one that another transaction is just adding.
--
-- Locks are taken in the order: delegations, then rooms, each by ascending key.

CREATE TABLE bridge_transactions (
  transaction_id text NOT NULL,
  body_sha256 bytea NOT NULL CHECK (octet_length(body_sha256) = 32),
  received_at timestamptz NOT NULL,
  events integer NOT NULL,
  admitted integer NOT NULL,
  denied integer NOT NULL,
  malformed integer NOT NULL,
  PRIMARY KEY (transaction_id, body_sha256)
);
CREATE INDEX bridge_transactions_age ON bridge_transactions (received_at);

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
  next_seq bigint NOT NULL DEFAULT 1,
  head_seq bigint NOT NULL DEFAULT 1,
  head_ordinal integer NOT NULL DEFAULT 0,
  -- When the head may be claimed: now, after a back-off, or when the present holder's lease ends.
  head_at timestamptz,
  -- Delegations admitted and not terminal: what room and global capacity count.
  open_count integer NOT NULL DEFAULT 0 CHECK (open_count >= 0),
  encrypted boolean NOT NULL DEFAULT false,
  CHECK (head_seq <= next_seq),
  CHECK ((head_at IS NULL) = (head_seq = next_seq))
);
CREATE INDEX bridge_rooms_head ON bridge_rooms (head_at) WHERE head_at IS NOT NULL;

-- How many delegations are open in all, known from above: those counted last, and all admitted since. An
-- admission counts anew only when this bound would refuse it, so that neither admitting nor finishing has
-- to touch one common row that the other waits for.
CREATE TABLE bridge_capacity (
  singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
  admitted bigint NOT NULL DEFAULT 0,
  counted_open bigint NOT NULL DEFAULT 0,
  counted_at_admitted bigint NOT NULL DEFAULT 0
);
INSERT INTO bridge_capacity DEFAULT VALUES;

CREATE TABLE bridge_room_members (
  room_id text NOT NULL,
  user_id text NOT NULL,
  PRIMARY KEY (room_id, user_id)
);

CREATE TABLE bridge_ghosts (
  ghost_mxid text PRIMARY KEY,
  device_id text NOT NULL,
  profile_digest text,
  created_at timestamptz NOT NULL
);

CREATE TABLE bridge_ghost_rooms (
  room_id text NOT NULL,
  ghost_mxid text NOT NULL,
  membership text NOT NULL CHECK (membership IN ('invite', 'join', 'leave')),
  inviter text,
  direct boolean NOT NULL DEFAULT false,
  task text CHECK (task IN ('answer_invite', 'settle', 'leave')),
  due_at timestamptz,
  fence bigint NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  PRIMARY KEY (room_id, ghost_mxid),
  CHECK ((task IS NULL) = (due_at IS NULL))
);
CREATE INDEX bridge_ghost_rooms_due ON bridge_ghost_rooms (due_at) WHERE due_at IS NOT NULL;

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
  state text NOT NULL CHECK (state IN (
    'queued', 'dispatching', 'following', 'awaiting_input', 'reply_pending',
    'completed', 'failed', 'canceled', 'denied', 'expired')),
  lease_holder text,
  lease_until timestamptz,
  fence bigint NOT NULL DEFAULT 0,
  -- When an accepted delegation may be claimed again; a head's time stands in bridge_rooms.
  due_at timestamptz,
  attempts integer NOT NULL DEFAULT 0,
  cancel_requested_at timestamptz,
  prompt bytea,
  a2a_task_id text,
  a2a_context_id text,
  a2a_attempted boolean NOT NULL DEFAULT false,
  -- A request may have reached the agent, and what became of it is not known.
  a2a_unsettled boolean NOT NULL DEFAULT false,
  retry_reason text,
  admitted_at timestamptz NOT NULL,
  accepted_at timestamptz,
  reply_event_id text,
  terminal_at timestamptz,
  terminal_stage text,
  terminal_reason text,
  UNIQUE (matrix_event_id, ghost_mxid),
  UNIQUE (room_id, room_seq, room_ordinal),
  CHECK ((room_seq IS NULL) = (room_ordinal IS NULL) AND (room_seq IS NULL) = (room_siblings IS NULL)),
  CHECK ((lease_holder IS NULL) = (lease_until IS NULL)),
  CONSTRAINT terminal_is_final CHECK (
    CASE WHEN state IN ('completed', 'failed', 'canceled', 'denied', 'expired')
      THEN terminal_at IS NOT NULL AND terminal_stage IS NOT NULL AND terminal_reason IS NOT NULL
        AND prompt IS NULL AND lease_holder IS NULL AND due_at IS NULL
      ELSE terminal_at IS NULL AND terminal_stage IS NULL AND terminal_reason IS NULL AND room_seq IS NOT NULL
    END)
);
CREATE INDEX bridge_delegations_due ON bridge_delegations (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX bridge_delegations_thread ON bridge_delegations (room_id, thread_root) WHERE thread_root IS NOT NULL;

CREATE TABLE bridge_sends (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  delegation_id bigint NOT NULL REFERENCES bridge_delegations,
  purpose text NOT NULL CHECK (purpose IN ('reply', 'progress', 'question', 'pin')),
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

CREATE TABLE bridge_notices (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- What the notice is about; claimed once, before anything is spent on it.
  marker text NOT NULL UNIQUE,
  kind text NOT NULL CHECK (kind IN (
    'agent_directory', 'policy_denied', 'rate_limited', 'capacity_exceeded', 'delegation_stopped',
    'delegation_failed', 'encrypted_room_refused')),
  room_id text NOT NULL,
  ghost_mxid text NOT NULL,
  source_event_id text,
  thread_root text,
  reason text,
  transaction_id text NOT NULL UNIQUE,
  state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'dropped')),
  created_at timestamptz NOT NULL,
  due_at timestamptz,
  fence bigint NOT NULL DEFAULT 0,
  attempts integer NOT NULL DEFAULT 0,
  first_attempted_at timestamptz,
  event_id text,
  CHECK ((state = 'pending') = (due_at IS NOT NULL)),
  CHECK ((state = 'sent') = (event_id IS NOT NULL))
);
CREATE INDEX bridge_notices_due ON bridge_notices (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX bridge_notices_room ON bridge_notices (room_id, kind, ghost_mxid, created_at);

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

CREATE TABLE bridge_limiter (
  bucket text PRIMARY KEY,
  tokens double precision NOT NULL,
  refilled_at timestamptz NOT NULL
);

-- The durable audit. Every record is content-free: built from identifiers, closed sets and times alone.
CREATE TABLE bridge_audit (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  schema text NOT NULL CHECK (schema IN ('svc.delegation.v1', 'svc.agent_card.v1', 'svc.encrypted_intake.v1')),
  record jsonb NOT NULL,
  created_at timestamptz NOT NULL,
  exported_at timestamptz
);
CREATE INDEX bridge_audit_unexported ON bridge_audit (id) WHERE exported_at IS NULL;

CREATE FUNCTION bridge_time(t timestamptz) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN to_char(t AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');

-- svc.delegation.v1 of a terminal row.
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
