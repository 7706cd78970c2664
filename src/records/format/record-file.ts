// The two kinds of file that hold statements, published in docs/reference/schemas: the whole record of a removal, and what
// one organisation hands to the other, of which nothing is believed before it was verified. Invariant: a record has one
// form, the canonical text (RFC 8785) and a line break, with its lists in a fixed order.
import * as z from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import type { Json } from "../../domain/json.ts";
import { DsseEnvelope } from "./dsse-envelope.ts";
import { EvidenceItem } from "./evidence-item.ts";
import { OrganisationName, RECORD_EVIDENCE_MAX, RECORD_STAGES_MAX, RunId } from "./fields.ts";

export const RECORD_SCHEMA = "svc.federation.offboarding_record.v1";

export const RecordFile = z.strictObject({
  schema: z.literal(RECORD_SCHEMA),
  completion: DsseEnvelope,
  /** Stage by stage, the remover's statement first. */
  stages: z.array(DsseEnvelope).max(RECORD_STAGES_MAX),
  evidence: z.array(EvidenceItem).max(RECORD_EVIDENCE_MAX),
});
export type RecordFile = z.output<typeof RecordFile>;

export function fileText(value: unknown): string {
  return `${canonicalize(value as Json)}\n`;
}

export const EXCHANGE_SCHEMA = "svc.federation.offboarding_exchange.v1";

export const ExchangeFile = z.strictObject({
  schema: z.literal(EXCHANGE_SCHEMA),
  run: RunId,
  from: OrganisationName,
  envelopes: z.array(DsseEnvelope).max(RECORD_STAGES_MAX),
  evidence: z.array(EvidenceItem).max(RECORD_EVIDENCE_MAX),
});
export type ExchangeFile = z.output<typeof ExchangeFile>;
