// Fields that the predicates share.
import { z } from "zod";
import { Identifier, OrganisationName, RunId, Word } from "./fields.ts";
import { KINDS } from "./stages.ts";

/** Something that a removal could not bring about. It blocks completion until somebody answers for it. */
export const OutOfReachEntry = z.strictObject({
  /** What was not reached, such as a room ID or a server name; an item of evidence's subject, if it has one. */
  subject: Identifier,
  reason: Word,
  /** Role or staff number of who waives it; null while nobody has. */
  waivedBy: Identifier.nullable(),
  /** Why it may be waived, as a code or a reference to where the reason stands. */
  waiver: Word.nullable(),
});
export type OutOfReachEntry = z.output<typeof OutOfReachEntry>;

/** What every statement of one removal repeats. */
export const REMOVAL_FIELDS = {
  run: RunId,
  kind: z.enum(KINDS),
  /** The organisation that decided. */
  remover: OrganisationName,
  partner: OrganisationName,
} as const;
