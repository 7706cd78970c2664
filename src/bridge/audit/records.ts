// The audit records that the ledger builds in SQL, as schemas, which are published in docs/reference/schemas.
// Content-free: every field is an identifier, a member of a closed set, a digest or a time; no free-text field exists.
import * as z from "zod";
import { Sha256Digest, text } from "../../domain/identifier-fields.ts";
import { INTAKE_ENVELOPE_REASONS, STAGES, TERMINAL_REASONS, TERMINAL_STATES } from "../ledger/states.ts";

const Time = text(/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/);
const matrixId = (form: RegExp) => text(form).max(255);
const EventId = matrixId(/^\$\S+$/);
const RoomId = matrixId(/^!\S+$/);
const UserId = matrixId(/^@[^\s:]+:\S+$/);

const Target = z.strictObject({
  agent: text(/^[a-z0-9][a-z0-9._-]{0,63}$/),
  ghost: UserId,
  /** Digest of the card URL and the pinned identity; `none` when no such agent was configured. */
  fingerprint: z.union([Sha256Digest, z.literal("none")]),
  /** The version its card named. */
  agent_version: text(/^[0-9A-Za-z.+_-]{1,64}$/).nullable(),
});

const Event = {
  room_id: RoomId,
  event_id: EventId,
  sender: UserId,
  /** How the event came in: by transaction, or found by a catchup. */
  ingress: z.enum(["transaction", "recovered"]),
};

/** svc.delegation.v1: one record for each delegation, written with its terminal transition. */
export const DelegationAudit = z.strictObject({
  schema: z.literal("svc.delegation.v1"),
  time: Time,
  outcome: z.enum(TERMINAL_STATES),
  terminal_stage: z.enum(STAGES),
  terminal_reason: z.enum(TERMINAL_REASONS),
  /** Whether a request to the agent was about to be made, and so may have reached it. */
  a2a_attempted: z.boolean(),
  target: Target,
  ...Event,
  admitted_at: Time,
  accepted_at: Time.nullable(),
  reply_event_id: EventId.nullable(),
});

/** svc.agent_card.v1: one record for each change of the trust in an agent's card. */
export const AgentCardAudit = z.strictObject({
  schema: z.literal("svc.agent_card.v1"),
  time: Time,
  outcome: z.enum(["accepted", "rejected"]),
  reason: z.enum(["agent_card_verified", "agent_card_untrusted"]),
  target: Target,
  /** Host and port the card was fetched from. */
  origin: text(/^[0-9A-Za-z.:[\]-]{1,255}$/).nullable(),
  key_id: text(/^[\x21-\x7e]{1,128}$/).nullable(),
  card_digest: Sha256Digest.nullable(),
});

/** svc.encrypted_intake.v1: one for each encrypted event that expired unread. Only its ciphertext names a target. */
export const EncryptedIntakeAudit = z.strictObject({
  schema: z.literal("svc.encrypted_intake.v1"),
  time: Time,
  outcome: z.literal("expired"),
  terminal_reason: z.enum(INTAKE_ENVELOPE_REASONS.expired),
  ...Event,
  key_requests: z.int().min(0),
  admitted_at: Time,
});
