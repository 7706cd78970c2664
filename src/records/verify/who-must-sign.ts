// Who must have signed a DSSE envelope, and who may have: in a record both organisations; in what passes between them the
// one that it comes from. Pure. Invariant: nobody counts twice, and a signature of anybody else is a problem.
import type { Problem } from "./reasons.ts";

/** A signature that verified. */
export interface Signature {
  readonly organisation: string;
  readonly keyId: string;
}

/** Of a record both must have signed; of what one passes on that one, and the other one may have signed it before. */
export interface SignatureRule {
  readonly must: readonly string[];
  readonly may: readonly string[];
}

export function signatureProblems(
  signers: readonly Signature[],
  { must, may }: SignatureRule,
): Pick<Problem, "reason" | "detail">[] {
  const missing = must
    .filter((name) => !signers.some(({ organisation }) => organisation === name))
    .map((name) => ({ reason: "signature_missing", detail: name }) as const);
  const extra = signers
    .filter(
      ({ organisation }, index) =>
        !may.includes(organisation) ||
        signers.findIndex((other) => other.organisation === organisation) !== index,
    )
    .map(({ keyId }) => ({ reason: "signature_extra", detail: keyId }) as const);
  return [...missing, ...extra];
}
