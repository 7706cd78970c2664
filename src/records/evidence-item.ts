// One observation about one plane and one organisation, as a record carries it.
// Invariants: no field can hold what people or agents wrote; the digest covers every other field in
// canonical form (RFC 8785), so that an item can be checked by itself.
import { z } from "zod";
import { canonicalize } from "../cards/canonicalize.ts";
import { sha256Tagged } from "../domain/digest.ts";
import { Digest, Identifier, Word } from "./fields.ts";
import { RECORD_PLANES } from "./stages.ts";

/** Who looked: the operator from inside, the partner from outside, a neutral witness, a retained server. */
export const VANTAGES = ["operator", "partner", "witness", "retained_server", "nobody"] as const;
export type Vantage = (typeof VANTAGES)[number];

export const RecordEvidence = z.strictObject({
  schema: z.literal("svc.federation.evidence_item.v1"),
  plane: z.enum(RECORD_PLANES),
  /** Server name of the organisation that was to be stopped. */
  partner: Identifier,
  probe: Word,
  vantage: z.enum(VANTAGES),
  subject: Identifier.nullable(),
  verdict: z.enum(["closed", "open", "unknown"]),
  layer: Word,
  status: z.int().min(100).max(599).nullable(),
  reason: Word.nullable(),
  references: z.array(Identifier).max(256),
  at: z.iso.datetime(),
  durationMs: z.number().min(0).nullable(),
  digest: Digest,
});
export type RecordEvidence = z.output<typeof RecordEvidence>;

/** Whether an item's digest is that of its other fields. */
export function hasItsDigest(item: RecordEvidence): boolean {
  const { digest, ...body } = item;
  return digest === sha256Tagged(canonicalize(body));
}
