// The closed sets of the tables: states and reasons of delegations, intake envelopes, outgoing events, notices, targets
// and devices. The tables repeat these sets as CHECK constraints; a test compares the two.

export const OPEN_STATES = ["queued", "dispatching", "following", "awaiting_input", "reply_pending"] as const;
export const TERMINAL_STATES = ["completed", "failed", "canceled", "denied"] as const;

export type OpenState = (typeof OPEN_STATES)[number];
export type TerminalState = (typeof TERMINAL_STATES)[number];
export type DelegationState = OpenState | TerminalState;

/** Where a delegation ended (`terminal_stage` of svc.delegation.v1). */
export const STAGES = ["intake", "policy", "agent_card", "limiter", "dispatch", "follow", "reply"] as const;
export type TerminalStage = (typeof STAGES)[number];

/** Why a delegation ended (`terminal_reason` of svc.delegation.v1). A closed set; never free text. */
export const TERMINAL_REASONS = [
  "answered",
  "room_capacity_exceeded",
  "server_capacity_exceeded",
  "agent_capacity_exceeded",
  "global_capacity_exceeded",
  "sender_policy_rejected",
  "agent_removed",
  "agent_card_untrusted",
  "rate_limited",
  "sender_rate_limited",
  "server_rate_limited",
  "token_refused",
  "agent_refused",
  "agent_unavailable",
  "agent_failed",
  "agent_rejected",
  "agent_protocol_error",
  "answer_too_large",
  "attachment_refused",
  "attachment_too_large",
  "attachment_unreadable",
  "attachment_unavailable",
  "auth_required",
  "input_wait_elapsed",
  "questions_exceeded",
  "outcome_unknown",
  "dispatch_deadline_exceeded",
  "answer_deadline_exceeded",
  "source_redacted",
  "sender_canceled",
  "room_unreachable",
  "reply_refused",
  "reply_deadline_exceeded",
  "operator_canceled",
  "event_replayed",
  "event_too_old",
  "agent_turns_exceeded",
] as const;
export type TerminalReason = (typeof TERMINAL_REASONS)[number];

export const CANCEL_REASONS = ["source_redacted", "sender_canceled", "operator_canceled"] as const;
export type CancelReason = (typeof CANCEL_REASONS)[number];

/** The states of an intake envelope (an encrypted event whose key was missing). All but the first are terminal. */
export const INTAKE_ENVELOPE_STATES = ["awaiting_key", "derived", "denied", "expired"] as const;
export type IntakeEnvelopeState = (typeof INTAKE_ENVELOPE_STATES)[number];

/** Why an intake envelope ended, by its terminal state (`terminal_reason` of svc.encrypted_intake.v1). */
export const INTAKE_ENVELOPE_REASONS = {
  derived: ["derived"],
  denied: [
    "room_envelopes_exceeded",
    "sender_envelopes_exceeded",
    "server_envelopes_exceeded",
    "global_envelopes_exceeded",
  ],
  expired: [
    "key_wait_elapsed",
    "key_requests_exhausted",
    "key_withheld",
    "source_redacted",
    "event_unavailable",
    "event_changed",
    "sender_mismatch",
    "device_not_trusted",
    "undecryptable",
    "operator_canceled",
  ],
} as const satisfies Readonly<Record<Exclude<IntakeEnvelopeState, "awaiting_key">, readonly string[]>>;
export type ExpiryReason = (typeof INTAKE_ENVELOPE_REASONS.expired)[number];

/** The purpose of an outgoing event; with its delegation or marker it makes the transaction ID unique. */
export const SEND_PURPOSES = ["reply", "notice", "progress", "question"] as const;
export type SendPurpose = (typeof SEND_PURPOSES)[number];

/** The notices that the bridge can send to a room, besides answers. All are content-free. */
export const NOTICE_KINDS = [
  "agent_directory",
  "help",
  "policy_denied",
  "rate_limited",
  "capacity_exceeded",
  "delegation_stopped",
  "delegation_canceled",
  "cancel_refused",
  "answer_refused",
  "delegation_failed",
  "encrypted_room_refused",
  "keys_missing",
] as const;
export type NoticeKind = (typeof NOTICE_KINDS)[number];

export const CANCEL_REFUSALS = ["not_the_asker", "already_ended", "nothing_to_cancel"] as const;
export type CancelRefusal = (typeof CANCEL_REFUSALS)[number];

export const NOTICE_REASONS = [
  ...TERMINAL_REASONS,
  ...INTAKE_ENVELOPE_REASONS.denied,
  "sender_device_untrusted",
  ...CANCEL_REFUSALS,
] as const;
export type NoticeReason = (typeof NOTICE_REASONS)[number];

export const TARGET_TRUST = ["verified", "quarantined"] as const;
export type TargetTrust = (typeof TARGET_TRUST)[number];

/** Why a ghost's device stopped. It takes no part until an operator resets it. */
export const DEVICE_STOP_REASONS = [
  /** The homeserver has keys of this device, or the ledger says that it had; there is no store. */
  "store_lost",
  /** The store belongs to another device, or no configured key opens it. */
  "store_foreign",
  /** The homeserver knows a later state of this device than the store holds: a backup was restored. */
  "store_behind",
  /** The device was deleted on the homeserver. */
  "device_deleted",
] as const;
export type DeviceStopReason = (typeof DEVICE_STOP_REASONS)[number];
