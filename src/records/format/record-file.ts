// A removal's whole record in one file: the completion, the stages, and the evidence they rest on.
// Invariant: a file has one form, the canonical text (RFC 8785) and a line break, with its lists in a fixed
// order; so two people who hold the same record hold the same bytes, and no byte can be changed unseen.
// Published as docs/reference/schemas/svc.federation.offboarding_record.v1.schema.json.
import { z } from "zod";
import { canonicalize } from "../../domain/canonicalize.ts";
import type { Json } from "../../domain/json.ts";
import { RECORD_EVIDENCE_MAX, RECORD_STAGES_MAX } from "./bounds.ts";
import { Envelope } from "./envelope.ts";
import { EvidenceItem } from "./evidence-item.ts";

export const RECORD_SCHEMA = "svc.federation.offboarding_record.v1";

export const RecordFile = z.strictObject({
  schema: z.literal(RECORD_SCHEMA),
  completion: Envelope,
  /** Stage by stage, the remover's statement first. */
  stages: z.array(Envelope).max(RECORD_STAGES_MAX),
  /** Ascending by digest. */
  evidence: z.array(EvidenceItem).max(RECORD_EVIDENCE_MAX),
});
export type RecordFile = z.output<typeof RecordFile>;

/** The one text of a file that has canonical form. */
export function fileText(value: unknown): string {
  return `${canonicalize(value as Json)}\n`;
}
