// What one organisation hands to the other, by any channel: statements with its signature, and the evidence
// that they rest on. Nothing in it is believed before it was verified.
// Published as docs/reference/schemas/svc.federation.offboarding_exchange.v1.schema.json.
import { z } from "zod";
import { RECORD_EVIDENCE_MAX, RECORD_STAGES_MAX } from "./bounds.ts";
import { Envelope } from "./envelope.ts";
import { EvidenceItem } from "./evidence-item.ts";
import { OrganisationName, RunId } from "./fields.ts";

export const EXCHANGE_SCHEMA = "svc.federation.offboarding_exchange.v1";

export const ExchangeFile = z.strictObject({
  schema: z.literal(EXCHANGE_SCHEMA),
  run: RunId,
  /** Who hands it over. */
  from: OrganisationName,
  envelopes: z.array(Envelope).max(RECORD_STAGES_MAX),
  evidence: z.array(EvidenceItem).max(RECORD_EVIDENCE_MAX),
});
export type ExchangeFile = z.output<typeof ExchangeFile>;
