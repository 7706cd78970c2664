// An abuse report in a DSSE envelope, signed by the organisation that reports. A report leads to a containment by itself
// only if it comes so.
// Invariants: a signature counts by the key that the operator has pinned for the reporter, and by no other; every
// signature of the envelope must be good; the report is read only after that.
import { parseStrictJson } from "../../domain/strict-json.ts";
import { DsseEnvelope } from "../../records/format/dsse-envelope.ts";
import type { TrustedParty } from "../../records/format/trust.ts";
import { dsseSignature, type Signer } from "../../records/sign/signer.ts";
import { verifySignatures } from "../../records/verify/verify-dsse-envelope.ts";
import { type ReadReport, readReport } from "./report.ts";

const PAYLOAD_TYPE = "application/vnd.svc.federation.abuse-report.v1+json";
const ENVELOPE_BYTES_MAX = 512 * 1024;

/** Whether the reporter itself has signed a report; if not, why that is not shown. */
export type Origin =
  | { readonly signed: true; readonly keyId: string }
  | { readonly signed: false; readonly why: string };

/**
 * Reads a report, in an envelope or bare, from bytes that anybody may have made. Never throws.
 * @param trusted the organisations whose keys are pinned
 */
export function readSignedReport(
  bytes: Uint8Array,
  trusted: readonly TrustedParty[],
): { readonly read: ReadReport; readonly origin: Origin } {
  const envelope = envelopeOf(bytes);
  if (envelope === undefined) {
    return { read: readReport(bytes), origin: { signed: false, why: "it is not signed" } };
  }
  const payload = Buffer.from(envelope.payload, "base64");
  return { read: readReport(payload), origin: originOf(envelope, payload, trusted) };
}

function originOf(envelope: DsseEnvelope, payload: Buffer, trusted: readonly TrustedParty[]): Origin {
  const { signers, problems } = verifySignatures(envelope, payload, trusted);
  const [problem] = problems;
  if (problem !== undefined) {
    return { signed: false, why: `its signature does not verify by a pinned key (${problem.reason})` };
  }
  const reporter = readReport(payload).report?.reporter.server_name;
  const [signer] = signers;
  if (signer === undefined || signers.some(({ organisation }) => organisation !== reporter)) {
    return { signed: false, why: "it is signed by another organisation than the reporter" };
  }
  return { signed: true, keyId: signer.keyId };
}

function envelopeOf(bytes: Uint8Array): DsseEnvelope | undefined {
  try {
    const { data } = DsseEnvelope.safeParse(parseStrictJson(bytes, ENVELOPE_BYTES_MAX));
    return data?.payloadType === PAYLOAD_TYPE ? data : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The envelope of a report, as JSON.
 * @param report the report's bytes as they are
 * @throws DrawbridgeError what the signer throws
 */
export async function signReport(report: Uint8Array, signer: Signer): Promise<string> {
  const envelope: DsseEnvelope = {
    payloadType: PAYLOAD_TYPE,
    payload: Buffer.from(report).toString("base64"),
    signatures: [await dsseSignature(PAYLOAD_TYPE, report, signer)],
  };
  return `${JSON.stringify(envelope)}\n`;
}
