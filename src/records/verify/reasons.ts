// Why an envelope is not what it should be: a closed set, each told to the auditor in a sentence.

export const ENVELOPE_REASONS = {
  not_an_envelope: "the file is no DSSE envelope, or not in its one form",
  wrong_payload_type: "the envelope does not carry an in-toto statement",
  not_a_statement: "the payload is no statement of the expected kind",
  not_canonical: "the payload is not the canonical text of its statement",
  duplicate_signature: "one key has signed twice",
  unknown_key: "a signature names a key that is not among the trusted ones",
  signature_invalid: "a signature does not verify",
  signature_missing: "an organisation that has to sign has not",
} as const;
export type EnvelopeReason = keyof typeof ENVELOPE_REASONS;
