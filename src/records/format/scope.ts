// What the evidence of a stage has to cover, as it was when the work on it began. Bound into each signed stage, so that
// a verifier can see offline whether a room, an agent or a client was left out.
import { z } from "zod";
import { Sha256Digest } from "../../domain/digest.ts";
import { Identifier, Instant, RECORD_EVIDENCE_MAX, Word } from "./fields.ts";

/** The programs of an organisation that its planes are enforced by. */
export const PARTS = ["homeserver", "bridge", "gateway"] as const;
export type Part = (typeof PARTS)[number];

const Names = z.array(Identifier).max(10_000);

export const Scope = z.strictObject({
  /** The programs that the organisation manages. About any other, nothing is said. */
  parts: z.array(z.enum(PARTS)).min(1).max(PARTS.length),
  /** Client ID (`azp`) of the counterparty. */
  client: Word,
  /** Clients with which the counterparty had applied, and which the organisation still declares. */
  applicants: Names,
  /** The organisation's own agents that the counterparty may invoke. */
  agents: Names,
  /** The counterparty's agents that the organisation's bridge carries. */
  pins: Names,
  /** Rooms that both organisations are in, or that the counterparty may enter; null outside stage `room`. */
  rooms: z.array(Identifier).max(RECORD_EVIDENCE_MAX).nullable(),
  /** Digest of the border policy that was in force; null when that one kept the counterparty out already. */
  policy: Sha256Digest.nullable(),
  /** When the homeserver that ran was started; null when that is not known, and outside stage `policy_border`. */
  started_at: Instant.nullable(),
});
export type Scope = Readonly<z.output<typeof Scope>>;
