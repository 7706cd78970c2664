// The fields that records are made of. Invariants: none can hold what people or agents wrote; a time and a
// digest have one form, so that they can be compared as text.
import { z } from "zod";
import { parseServerName } from "../../domain/identifiers.ts";

/** A word of a closed set, a role, a staff number: no white space, and no `@` of an address. */
export const Word = z.string().regex(/^[A-Za-z0-9._:-]{1,128}$/, {
  error: "must be 1 to 128 letters, digits and . _ : -",
});

/** An identifier as protocols write them. */
export const Identifier = z.string().regex(/^[\x21-\x7e]{1,512}$/, {
  error: "must be 1 to 512 visible characters",
});

export const Digest = z.string().regex(/^sha256:[0-9a-f]{64}$/, { error: "must be sha256:<64 hex digits>" });

/** Lower-case hexadecimal SHA-256 of a public key's DER form. */
export const KeyId = z.string().regex(/^[0-9a-f]{64}$/, { error: "must be 64 hex digits" });

/** One removal, random. */
export const RunId = z.string().regex(/^[0-9a-f]{32}$/, { error: "must be 32 hex digits" });

/** An organisation is known by its homeserver's name. */
export const OrganisationName = z
  .string()
  .refine((text) => parseServerName(text) !== undefined, { error: "must be a server name" });

export const GitRevision = z.string().regex(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/, {
  error: "must be a whole git revision",
});

/** UTC with milliseconds, as `Date.prototype.toISOString` writes it. Ordered as text. */
export const Instant = z.iso.datetime({ precision: 3 });

export const Day = z.iso.date();
