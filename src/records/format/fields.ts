// The fields that records are made of, and how many of them a file may hold. Invariants: no field can hold what people
// or agents wrote; a time and a digest have one form, so that they can be compared as text; what one organisation
// writes within the bounds, the other's verifier reads.
import * as z from "zod";
import { Sha256Digest } from "../../domain/identifier-fields.ts";
import { parseServerName } from "../../domain/identifiers.ts";

const matching = (pattern: RegExp, error: string) => z.string().regex(pattern, { error });

/** A word of a closed set, a role, a staff number: no white space, and no `@` of an address. */
export const Word = matching(/^[A-Za-z0-9._:-]{1,128}$/, "must be 1 to 128 letters, digits and . _ : -");

export const Identifier = matching(/^[\x21-\x7e]{1,512}$/, "must be 1 to 512 visible characters");

/** Lower-case hexadecimal SHA-256 of a public key's DER form. */
export const KeyId = matching(/^[0-9a-f]{64}$/, "must be 64 hex digits");
export const RunId = matching(/^[0-9a-f]{32}$/, "must be 32 hex digits");

export const OrganisationName = z
  .string()
  .refine((text) => parseServerName(text) !== undefined, { error: "must be a server name" });

export const PARTIES = { remover: OrganisationName, partner: OrganisationName } as const;

export const GitRevision = matching(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/, "must be a whole git revision");

/** UTC with milliseconds, as `Date.prototype.toISOString` writes it. Ordered as text. */
export const Instant = z.iso.datetime({ precision: 3 });
export const Day = z.iso.date();

/** How far the clocks of two organisations may be apart. */
export const CLOCK_SKEW_MS = 300_000;

/** Statements of stages: a removal has twelve; more are read so that a forged one is reported by its reason. */
export const RECORD_STAGES_MAX = 64;
export const RECORD_EVIDENCE_MAX = 200_000;
/** A record of ten thousand rooms has some 20 MB. */
export const RECORD_BYTES_MAX = 256 * 1024 * 1024;
/** One statement: a completion names a few hundred thousand items at most. */
export const STATEMENT_BYTES_MAX = 64 * 1024 * 1024;

// What the evidence of a stage has to cover, as it was when the work on it began. Bound into each signed stage, so
// that a verifier can see offline whether a room, an agent or a client was left out.

export const PARTS = ["homeserver", "bridge", "gateway"] as const;
export type Part = (typeof PARTS)[number];

const Names = z.array(Identifier).max(10_000);

export const Scope = z.strictObject({
  /** The programs that the organisation manages. About any other, nothing is said. */
  parts: z.array(z.enum(PARTS)).min(1).max(PARTS.length),
  client: Word,
  /** Clients with which the counterparty had applied, and which the organisation still declares. */
  applicants: Names,
  agents: Names,
  pins: Names,
  /** Rooms that both organisations are in, or that the counterparty may enter; null outside stage `room`. */
  rooms: z.array(Identifier).max(RECORD_EVIDENCE_MAX).nullable(),
  /** Digest of the border policy that was in force; null when that one kept the counterparty out already. */
  policy: Sha256Digest.nullable(),
  /** When the homeserver that ran was started; null when that is not known, and outside stage `policy_border`. */
  started_at: Instant.nullable(),
});
export type Scope = Readonly<z.output<typeof Scope>>;
