// Is this DSSE envelope signed by those who must have signed it, and does it say what it should say? Invariants: one key
// counts for one organisation once; a signature by an unknown key makes the whole invalid rather than being skipped; the
// payload is read only after every signature was verified.
import type * as z from "zod";
import { strictJsonIn } from "../../domain/strict-json.ts";
import { DsseEnvelope, type DsseSignature, preAuthenticationEncoding } from "../format/dsse-envelope.ts";
import { isInOneForm } from "../format/ecdsa-p256.ts";
import { STATEMENT_BYTES_MAX } from "../format/fields.ts";
import { STATEMENT_PAYLOAD_TYPE, type Statement, statementBytes } from "../format/statements.ts";
import type { TrustedParty } from "../format/trust.ts";
import { type Problem, printable } from "./reasons.ts";

/** A record is verified once per process: compiling its schemas would cost more than it saves. */
export const PARSE_ONCE = { jitless: true } as const;

type Trusted = readonly TrustedParty[];
type DsseProblem = Pick<Problem, "reason" | "detail">;

/** Verifies a DSSE envelope, of which nothing is presumed but that it was parsed as strict JSON. */
export function verifyDsseEnvelope<S extends Statement<unknown>>(
  value: unknown,
  schema: z.ZodType<S>,
  trusted: Trusted,
  rule: (statement: S) => SignatureRule,
) {
  const parsed = DsseEnvelope.safeParse(value, PARSE_ONCE);
  if (!parsed.success) return invalid("not_an_envelope", fieldOf(parsed.error));
  const envelope = parsed.data;
  if (envelope.payloadType !== STATEMENT_PAYLOAD_TYPE) return invalid("wrong_payload_type");
  const payload = Buffer.from(envelope.payload, "base64");
  const { signers, problems } = verifySignatures(envelope, payload, trusted);
  if (problems.length > 0) return { valid: false, problems } as const;

  const { data: statement, error } = schema.safeParse(strictJsonIn(payload, STATEMENT_BYTES_MAX), PARSE_ONCE);
  if (error) {
    const isOfAnotherType = error.issues.some(({ path }) => path.length === 1 && path[0] === "predicateType");
    return isOfAnotherType ? invalid("other_predicate_type") : invalid("not_a_statement", fieldOf(error));
  }
  if (!statementBytes(statement).equals(payload)) return invalid("not_canonical");
  const owed = signatureProblems(signers, rule(statement));
  if (owed.length > 0) return { valid: false, problems: owed } as const;
  return { valid: true, statement, signers } as const;
}

function invalid(reason: DsseProblem["reason"], detail?: string) {
  return { valid: false, problems: [{ reason, ...(detail !== undefined && { detail }) }] } as const;
}

/** Verifies every signature of a DSSE envelope, whatever its payload is and whether or not it must be there. */
export function verifySignatures(envelope: DsseEnvelope, payload: Uint8Array, trusted: Trusted) {
  const signed = preAuthenticationEncoding(envelope.payloadType, payload);
  const signers: Signature[] = [];
  const problems: DsseProblem[] = [];
  const keyIds = new Set<string>();
  let last = "";
  for (const signature of envelope.signatures) {
    const { keyid } = signature;
    if (keyIds.has(keyid)) {
      problems.push({ reason: "duplicate_signature", detail: keyid });
      continue;
    }
    keyIds.add(keyid);
    if (keyid < last) problems.push({ reason: "signatures_out_of_order", detail: keyid });
    last = keyid;
    const found = verifySignature(signed, signature, trusted);
    if (typeof found === "string") problems.push({ reason: found, detail: keyid });
    else signers.push(found);
  }
  return { signers, problems };
}

export type Signature = Exclude<ReturnType<typeof verifySignature>, string>;

function verifySignature(signed: Uint8Array, { keyid, sig }: DsseSignature, trusted: Trusted) {
  const owners = trusted.flatMap(({ organisation, keys }) =>
    keys.filter(({ keyId }) => keyId === keyid).map((key) => ({ organisation, key })),
  );
  const [owner] = owners;
  // A key that two parties claim identifies neither of them.
  if (owner === undefined || owners.length > 1) return "unknown_key";
  const bytes = Buffer.from(sig, "base64");
  if (!isInOneForm(bytes)) return "signature_malformed";
  if (!owner.key.verifies(signed, bytes)) return "signature_invalid";
  return { organisation: owner.organisation, keyId: keyid };
}

/** The first field that a schema refuses, safe to print. */
export function fieldOf(error: z.ZodError): string {
  const [issue] = error.issues;
  if (issue === undefined) return "";
  const names = issue.code === "unrecognized_keys" ? [...issue.path, issue.keys[0] ?? ""] : issue.path;
  return printable(names.map(String).join("."));
}

type SignatureRule = Readonly<Record<"must" | "may", readonly string[]>>;
type Parties = Readonly<Record<"remover" | "partner", string>>;

/** The rule for each statement of a record. */
export function bothSign({ remover, partner }: Parties): SignatureRule {
  return { must: [remover, partner], may: [remover, partner] };
}

/** The rule for what one organisation passes on: the other one may have signed it before. */
export function senderSigns(sender: string, { remover, partner }: Parties): SignatureRule {
  return { must: [sender], may: [remover, partner] };
}

function signatureProblems(signers: readonly Signature[], { must, may }: SignatureRule): DsseProblem[] {
  const organisations = signers.map(({ organisation }) => organisation);
  const isExtra = ({ organisation }: Signature, index: number) =>
    !may.includes(organisation) || organisations.indexOf(organisation) !== index;
  const missing = must.filter((name) => !organisations.includes(name));
  return [
    ...missing.map((detail) => ({ reason: "signature_missing", detail }) as const),
    ...signers.filter(isExtra).map(({ keyId }) => ({ reason: "signature_extra", detail: keyId }) as const),
  ];
}
