// The states of a delegation, an intake envelope, an outgoing event and a target: the one place that names them.
// The table definitions in migrations/ repeat these sets as CHECK constraints; a test compares the two.

/** Waiting for its turn, or in the hands of a worker. Every non-terminal state holds a capacity slot. */
export const OPEN_STATES = ["queued", "dispatching", "following", "awaiting_input", "reply_pending"] as const;
export const TERMINAL_STATES = ["completed", "failed", "canceled", "denied", "expired"] as const;

export type OpenState = (typeof OPEN_STATES)[number];
export type TerminalState = (typeof TERMINAL_STATES)[number];
export type DelegationState = OpenState | TerminalState;

/** Where a delegation ended (`terminal_stage` of svc.delegation.v1). */
export const TERMINAL_STAGES = [
  "intake",
  "policy",
  "agent_card",
  "limiter",
  "dispatch",
  "follow",
  "reply",
] as const;
export type TerminalStage = (typeof TERMINAL_STAGES)[number];

/** Why a delegation ended (`terminal_reason` of svc.delegation.v1). A closed set; never free text. */
export const TERMINAL_REASONS = [
  "answered",
  "room_capacity_exceeded",
  "global_capacity_exceeded",
  "sender_policy_rejected",
  "agent_removed",
  "agent_card_untrusted",
  "rate_limited",
  "token_refused",
  "agent_refused",
  "agent_unavailable",
  "agent_failed",
  "agent_rejected",
  "agent_protocol_error",
  "answer_too_large",
  "auth_required",
  "input_required",
  "outcome_unknown",
  "dispatch_deadline_exceeded",
  "answer_deadline_exceeded",
  "source_redacted",
  "room_unreachable",
  "reply_refused",
  "event_replayed",
] as const;
export type TerminalReason = (typeof TERMINAL_REASONS)[number];

/** The states of an encrypted event whose key was not here when it came in. All but the first are terminal. */
export const INTAKE_ENVELOPE_STATES = ["awaiting_key", "derived", "denied", "expired"] as const;
export type IntakeEnvelopeState = (typeof INTAKE_ENVELOPE_STATES)[number];

/** Why an intake envelope ended, by the state it ended in (`terminal_reason` of svc.encrypted_intake.v1). */
export const INTAKE_ENVELOPE_REASONS = {
  derived: ["derived"],
  denied: ["room_capacity_exceeded", "global_capacity_exceeded"],
  expired: [
    "key_wait_elapsed",
    "key_requests_exhausted",
    "source_redacted",
    "event_unavailable",
    "event_changed",
    "sender_mismatch",
    "device_not_trusted",
    "undecryptable",
  ],
} as const satisfies Readonly<Record<Exclude<IntakeEnvelopeState, "awaiting_key">, readonly string[]>>;
export type ExpiryReason = (typeof INTAKE_ENVELOPE_REASONS.expired)[number];

/** What an outgoing event is for; with its delegation or marker it makes the transaction ID unique. */
export const SEND_PURPOSES = ["reply", "notice", "progress", "question", "pin"] as const;
export type SendPurpose = (typeof SEND_PURPOSES)[number];

/** The notices the bridge can write in a room, besides answers. All are content-free. */
export const NOTICE_KINDS = [
  "agent_directory",
  "policy_denied",
  "rate_limited",
  "capacity_exceeded",
  "delegation_stopped",
  "delegation_failed",
  "encrypted_room_refused",
  "keys_missing",
] as const;
export type NoticeKind = (typeof NOTICE_KINDS)[number];

/** Why a notice is said: what a delegation can end with, and what keeps an encrypted event from becoming one. */
export const NOTICE_REASONS = [...TERMINAL_REASONS, "sender_device_untrusted"] as const;
export type NoticeReason = (typeof NOTICE_REASONS)[number];

export const TARGET_TRUST = ["verified", "quarantined"] as const;
export type TargetTrust = (typeof TARGET_TRUST)[number];
