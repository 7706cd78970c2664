-- version 3, oldest compatible version 3
--
-- Encrypted events whose key was not here when they came in. Invariants that the tables themselves keep:
--   * one envelope for an event, for ever; it holds neither content nor ciphertext nor a session's name;
--   * a terminal envelope is due no more and has a reason from its state's closed set;
--   * a room's turn never comes while its head is an envelope that awaits its key.
--
-- Order in a room. An envelope takes a `room_seq` like any admitted event. While it awaits its key, nobody's
-- turn comes at its place: `gate_seq` is the lowest such place of a room. When it ends without delegations,
-- its place is void, and the head steps over it; void places that the head has not reached stand in `voids`.
-- So advancing the head stays arithmetic on the room's row. The two columns change with envelopes alone, and
-- envelopes are admitted, derived and ended under the lock of admissions.
--
-- Locks are taken in the order: envelopes, delegations, rooms, each by ascending key. A redaction alone, under
-- the lock of admissions, takes envelopes last: whoever holds one without that lock waits for nothing else.

ALTER TABLE bridge_rooms
  ADD COLUMN gate_seq bigint,
  ADD COLUMN voids int8multirange NOT NULL DEFAULT '{}',
  -- Set while room keys are missing and the room was told so: no second notice until an event is decrypted.
  ADD COLUMN keys_missing_at timestamptz,
  ADD CONSTRAINT gate_is_ahead CHECK (gate_seq >= head_seq AND gate_seq < next_seq),
  ADD CONSTRAINT head_is_not_void CHECK (NOT voids @> head_seq),
  DROP CONSTRAINT bridge_rooms_check1,
  ADD CONSTRAINT head_has_its_time CHECK (
    (head_at IS NULL) = (head_seq = next_seq OR head_seq IS NOT DISTINCT FROM gate_seq));

-- The first place from `seq` on that is not void. Neighbouring ranges are one, so one step is enough.
CREATE FUNCTION bridge_place_from(seq bigint, voids int8multirange) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN COALESCE((SELECT upper(void) FROM unnest(voids) void WHERE void @> seq), seq);

CREATE TABLE bridge_encrypted_intake (
  matrix_event_id text PRIMARY KEY,
  room_id text NOT NULL,
  sender_mxid text NOT NULL,
  origin_server_ts bigint NOT NULL,
  -- The transaction that brought it.
  transaction_id text NOT NULL,
  ingress text NOT NULL CHECK (ingress IN ('transaction', 'recovered')),
  -- Of the event as it came in; what is fetched again later must have the same.
  intake_fingerprint bytea NOT NULL CHECK (octet_length(intake_fingerprint) = 32),
  room_seq bigint,
  state text NOT NULL CHECK (state IN ('awaiting_key', 'derived', 'denied', 'expired')),
  -- Delegations that took its place in the room.
  jobs integer NOT NULL DEFAULT 0 CHECK (jobs >= 0),
  attempts integer NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  key_requests integer NOT NULL DEFAULT 0 CHECK (key_requests BETWEEN 0 AND attempts),
  -- When it may be tried again, or when the present holder's lease ends.
  due_at timestamptz,
  is_held boolean NOT NULL DEFAULT false,
  -- A key of its room came while somebody held it.
  woken_at timestamptz,
  fence bigint NOT NULL DEFAULT 0,
  deadline timestamptz NOT NULL,
  admitted_at timestamptz NOT NULL,
  terminal_at timestamptz,
  terminal_reason text,
  UNIQUE (room_id, room_seq),
  CHECK ((room_seq IS NULL) = (state = 'denied')),
  CHECK (jobs = 0 OR state = 'derived'),
  CONSTRAINT envelope_ends_once CHECK (
    CASE state
      WHEN 'awaiting_key' THEN due_at IS NOT NULL AND terminal_at IS NULL AND terminal_reason IS NULL
      ELSE due_at IS NULL AND NOT is_held AND terminal_at IS NOT NULL AND terminal_reason IS NOT NULL
    END),
  CONSTRAINT envelope_reason CHECK (
    CASE state
      WHEN 'awaiting_key' THEN terminal_reason IS NULL
      WHEN 'derived' THEN terminal_reason IN ('derived')
      WHEN 'denied' THEN terminal_reason IN ('room_capacity_exceeded', 'global_capacity_exceeded')
      WHEN 'expired' THEN terminal_reason IN (
        'key_wait_elapsed', 'key_requests_exhausted', 'source_redacted', 'event_unavailable', 'event_changed',
        'sender_mismatch', 'device_not_trusted', 'undecryptable')
    END)
);
CREATE INDEX bridge_encrypted_intake_due ON bridge_encrypted_intake (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX bridge_encrypted_intake_waiting ON bridge_encrypted_intake (room_id, room_seq)
  WHERE state = 'awaiting_key';

-- Which event each message index of a room key was used by, of events that became delegations: the same
-- ciphertext under another event ID is a replay.
CREATE TABLE bridge_megolm_indices (
  index_digest bytea PRIMARY KEY CHECK (octet_length(index_digest) = 32),
  matrix_event_id text NOT NULL
);

ALTER TABLE bridge_notices
  DROP CONSTRAINT bridge_notices_kind_check,
  ADD CONSTRAINT bridge_notices_kind_check CHECK (kind IN (
    'agent_directory', 'policy_denied', 'rate_limited', 'capacity_exceeded', 'delegation_stopped',
    'delegation_failed', 'encrypted_room_refused', 'keys_missing'));

-- svc.encrypted_intake.v1 of an expired envelope.
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
