// svc.federation.abuse-report.v1: one organisation reports abuse to another, by references alone.
// Invariants: unknown fields are refused; a reference has the very form of an event ID, a policy digest or a key ID, so that
// a sentence cannot stand in its place; a problem names a field of the schema and never repeats what the report holds.
// Published as registry/abuse-report.schema.json and docs/reference/schemas/svc.federation.abuse-report.v1.schema.json.
import * as z from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { hexOfDigest, sha256Tagged } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { Sha256Digest } from "../../domain/identifier-fields.ts";
import { SERVER_NAME } from "../../domain/identifiers.ts";
import { jsonText } from "../../domain/json.ts";
import { counted } from "../../domain/printable.ts";
import { strictJsonIn } from "../../domain/strict-json.ts";
import { DsseEnvelope } from "../../records/format/dsse-envelope.ts";
import { Instant } from "../../records/format/fields.ts";
import type { TrustedParty } from "../../records/format/trust.ts";
import { addSignature, type Signer } from "../../records/sign/signer.ts";
import { verifySignatures } from "../../records/verify/verify-signatures.ts";
import { commitToBranch, untilCommitted } from "../change/commit-change.ts";
import { assessOrigin } from "../reconcile/accept-head.ts";
import type { Federation } from "../reconcile/context.ts";
import { CONTAINMENTS, READMISSIONS, restoredBy } from "../registry/committed-records.ts";
import { gitLine } from "../repository/git.ts";
import type { Repository, Revision } from "../repository/repository.ts";

const REPORT_BYTES_MAX = 256 * 1024;
const REFERENCES_MAX = 1_000;

const ServerName = z.string().regex(SERVER_NAME);

/** Of room version 3 and later a digest in base64, before that a short word and the server. */
const EventId = z.string().regex(/^\$(?:[A-Za-z0-9+/_-]{43}|[A-Za-z0-9]{1,64}:[0-9A-Za-z.:[\]-]{1,230})$/);
/** Of a homeserver (`ed25519:VERSION`) or of who signs Agent Cards (`kid:ID`). */
const KeyId = z.string().regex(/^(?:ed25519|kid):[A-Za-z0-9._-]{1,64}$/);
const Reference = z.union([EventId, Sha256Digest, KeyId]);

export const AbuseReport = z.strictObject({
  schema: z.literal("svc.federation.abuse-report.v1"),
  reporter: z.strictObject({ server_name: ServerName }),
  subject: z.strictObject({ server_name: ServerName }),
  category: z.enum([
    "spam",
    "harassment",
    "impersonation",
    "malware",
    "data_exfiltration",
    "compromised_server",
    "policy_violation",
    "other",
  ]),
  severity: z.enum(["low", "medium", "high", "critical"]),
  requested_action: z.enum(["none", "review", "contain"]),
  evidence_refs: z.array(Reference).min(1).max(REFERENCES_MAX),
});
export type AbuseReport = z.output<typeof AbuseReport>;

export const ABUSE_REPORT_SCHEMA = "registry/abuse-report.schema.json";

export function abuseReportSchema(): string {
  const title = "A report of abuse by a federated server";
  const json = z.toJSONSchema(AbuseReport, { io: "input", unrepresentable: "any" });
  return jsonText({ $id: "svc.federation.abuse-report.v1", title, ...json });
}

/** Reads a report from bytes that anybody may have made; every problem is found at once. Never throws. */
export function readReport(bytes: Uint8Array) {
  const value = strictJsonIn(bytes, REPORT_BYTES_MAX);
  const form = `the report: must be one JSON object, in UTF-8, of at most ${REPORT_BYTES_MAX} bytes`;
  if (value === undefined) return { problems: [form] };
  const parsed = AbuseReport.safeParse(value);
  if (!parsed.success) return { problems: parsed.error.issues.map(describeIssue) };
  const { reporter, subject } = parsed.data;
  if (reporter.server_name === subject.server_name)
    return { problems: ["subject.server_name: is the reporter's own"] };
  return { report: parsed.data, digest: sha256Tagged(canonicalize(parsed.data)) };
}

function describeIssue(issue: z.core.$ZodIssue): string {
  // Fields of the schema and indexes alone: an unknown field, which could be content, is an issue of the object around it.
  const place = issue.path.map(String).join(".") || "the report";
  if (issue.code === "unrecognized_keys")
    return `${place}: has ${counted(issue.keys.length, "unknown field")}; a report refers to events and quotes nothing`;
  if (issue.path[0] === "evidence_refs" && issue.path.length > 1)
    return `${place}: must be an event ID, a policy digest (sha256:…) or a key ID (ed25519:…, kid:…)`;
  if (issue.code === "invalid_value")
    return `${place}: must be one of ${issue.values.map(String).join(", ")}`;
  return `${place}: ${issue.code.replaceAll("_", " ")}`;
}

// A report leads to a containment by itself only in a DSSE envelope. Invariants: a signature counts by the key that the
// operator has pinned for the reporter, and by no other; every signature of the DSSE envelope must be good. To whom the
// report is sent and when is signed with it, around the report, whose schema has no field for either.

const PAYLOAD_TYPE = "application/vnd.drawbridge.sent-abuse-report.v1+json";
const ENVELOPE_BYTES_MAX = 512 * 1024;
const SentReport = z.strictObject({ to: ServerName, sent_at: Instant, report: z.unknown() });

export type Origin = ReturnType<typeof readSignedReport>["origin"];

/** Reads a report, in a DSSE envelope or bare, from bytes that anybody may have made. Never throws. */
export function readSignedReport(bytes: Uint8Array, trusted: readonly TrustedParty[]) {
  const envelope = DsseEnvelope.safeParse(strictJsonIn(bytes, ENVELOPE_BYTES_MAX)).data;
  if (envelope?.payloadType !== PAYLOAD_TYPE)
    return { read: readReport(bytes), origin: { signed: false, why: "it is not signed" } } as const;
  const payload = Buffer.from(envelope.payload, "base64");
  const { signers, problems } = verifySignatures(envelope, payload, trusted);
  const sent = SentReport.safeParse(strictJsonIn(payload, ENVELOPE_BYTES_MAX)).data;
  const read = readReport(Buffer.from(JSON.stringify(sent?.report ?? null)));
  const reporter = read.report?.reporter.server_name;
  const unsigned = (why: string) => ({ read, origin: { signed: false, why } }) as const;
  const [problem] = problems;
  const [signer] = signers;
  if (problem !== undefined)
    return unsigned(`its signature does not verify by a pinned key (${problem.reason})`);
  const isOthers = signers.some(({ organisation }) => organisation !== reporter);
  if (sent === undefined || signer === undefined || isOthers)
    return unsigned("it is signed by another organisation than the reporter");
  const { to, sent_at: sentAt } = sent;
  return { read, origin: { signed: true, keyId: signer.keyId, to, sentAt } } as const;
}

/** The DSSE envelope of a report to another organisation, as JSON. @throws DrawbridgeError what the signer throws */
export async function signReport(report: AbuseReport, to: string, atMs: number, signer: Signer) {
  const sent: z.input<typeof SentReport> = { to, sent_at: new Date(atMs).toISOString(), report };
  const payload = Buffer.from(JSON.stringify(sent)).toString("base64");
  const envelope = await addSignature({ payloadType: PAYLOAD_TYPE, payload, signatures: [] }, signer);
  return `${JSON.stringify(envelope)}\n`;
}

// A report is kept in the repository, once however often it comes: its file is named by its digest. A head that may not be
// taken up is never built on, because this machine's signature on top would let it in.

function pathOf(report: AbuseReport, digest: string): string {
  const server = report.subject.server_name.replaceAll(/[^A-Za-z0-9.-]/g, "_");
  return `records/abuse/${server}-${hexOfDigest(digest).slice(0, 32)}.json`;
}

/** Whether a report's subject was restored since it was sent, or filed for the first time. @param revision one that may be accepted */
export async function wasRestoredSince(
  report: AbuseReport,
  digest: string,
  sentAt: string,
  repository: Repository,
  revision: Revision,
): Promise<boolean> {
  const path = pathOf(report, digest);
  const filed = await gitLine(["log", "--format=%ct", revision, "--", path], repository.call());
  const filedAt = filed === "" ? [] : [Number(filed.split("\n").at(-1)) * 1_000];
  const since = Math.min(Date.parse(sentAt), ...filedAt);
  const texts = await repository.read(revision, [CONTAINMENTS, READMISSIONS]);
  // One by one: what came first is not told by the times of two clocks.
  return [...texts.values()].some((one) => restoredBy([one], since).has(report.subject.server_name));
}

/** `isNew`: not filed before. @throws DrawbridgeError `head_refused`, `config_invalid`, `repository_unusable` */
export async function fileReport(report: AbuseReport, digest: string, context: Federation) {
  const { repository } = context;
  const path = pathOf(report, digest);
  return untilCommitted(context, async () => {
    const head = await repository.requireHead();
    const refusal = await assessOrigin(head, context);
    if (refusal !== undefined) {
      const hint = `${refusal.hint} Then file it again; drawbridge federation contain does not wait for that.`;
      throw new DrawbridgeError("head_refused", `${refusal.detail}; nothing was filed`, { hint });
    }
    if ((await repository.list(head, [path])).length > 0) return { path, revision: head, isNew: false };
    const revision = await commitToBranch(context, {
      parent: head,
      changes: new Map([[path, jsonText(report)]]),
      message: `File an abuse report about ${report.subject.server_name}\n\n${report.category}, ${report.severity}, requested: ${report.requested_action}. Report ${digest}.\n`,
      reason: "drawbridge: report-abuse",
    });
    return revision && { path, revision, isNew: true };
  });
}
