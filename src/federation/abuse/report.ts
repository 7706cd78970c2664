// svc.federation.abuse-report.v1: one organisation reports abuse to another, by references alone.
// Invariants: unknown fields are refused; a reference is an event ID, a policy digest or a key ID in the very
// form of one, so that a sentence cannot stand in its place; a problem names a field of the schema and never
// repeats what the report holds.
// Published as registry/abuse-report.schema.json and docs/reference/schemas/svc.federation.abuse-report.v1.schema.json.

import { z } from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { Sha256Digest, sha256Tagged } from "../../domain/digest.ts";
import { parseServerName } from "../../domain/identifiers.ts";
import { parseStrictJson } from "../../domain/strict-json.ts";

export const CATEGORIES = [
  "spam",
  "harassment",
  "impersonation",
  "malware",
  "data_exfiltration",
  "compromised_server",
  "policy_violation",
  "other",
] as const;

const REPORT_BYTES_MAX = 256 * 1024;
const REFERENCES_MAX = 1_000;

const SERVER_NAME = /^(?:\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z.-]{1,230})(?::[0-9]{1,5})?$/;
const ServerName = z
  .string()
  .regex(SERVER_NAME)
  .refine((value) => parseServerName(value) !== undefined);

/** Of room version 3 and later a digest in base64, before that a short word and the server. */
const EventId = z.string().regex(/^\$(?:[A-Za-z0-9+/_-]{43}|[A-Za-z0-9]{1,64}:[0-9A-Za-z.:[\]-]{1,230})$/);
/** Of a homeserver (`ed25519:VERSION`) or of who signs Agent Cards (`kid:ID`). */
const KeyId = z.string().regex(/^(?:ed25519|kid):[A-Za-z0-9._-]{1,64}$/);

export const AbuseReport = z.strictObject({
  schema: z.literal("svc.federation.abuse-report.v1"),
  reporter: z.strictObject({ server_name: ServerName }),
  subject: z.strictObject({ server_name: ServerName }),
  category: z.enum(CATEGORIES),
  severity: z.enum(["low", "medium", "high", "critical"]),
  /** `contain` maps to containment and an evidence pack. */
  requested_action: z.enum(["none", "review", "contain"]),
  evidence_refs: z
    .array(z.union([EventId, Sha256Digest, KeyId]))
    .min(1)
    .max(REFERENCES_MAX),
});
export type AbuseReport = z.output<typeof AbuseReport>;

/** The text of registry/abuse-report.schema.json (JSON Schema, draft 2020-12). */
export function abuseReportSchema(): string {
  const title = "A report of abuse by a federated server";
  const json = z.toJSONSchema(AbuseReport, { io: "input", unrepresentable: "any" });
  return `${JSON.stringify({ $id: "svc.federation.abuse-report.v1", title, ...json }, null, 2)}\n`;
}

export type ReadReport =
  | { readonly report: AbuseReport; readonly digest: string; readonly problems?: undefined }
  | { readonly report?: undefined; readonly digest?: undefined; readonly problems: readonly string[] };

/** Names of the schema's own fields: others could be content themselves. */
const FIELDS: ReadonlySet<string> = new Set([...Object.keys(AbuseReport.shape), "server_name"]);

function placeOf(path: readonly PropertyKey[]): string {
  const shown = path.map((step) =>
    typeof step === "number" || FIELDS.has(String(step)) ? String(step) : "?",
  );
  return shown.join(".") || "the report";
}

/** Reads a report from bytes that anybody may have made; every problem is found at once. Never throws. */
export function readReport(bytes: Uint8Array): ReadReport {
  let value: unknown;
  try {
    value = parseStrictJson(bytes, REPORT_BYTES_MAX);
  } catch {
    return {
      problems: [`the report: must be one JSON object, in UTF-8, of at most ${REPORT_BYTES_MAX} bytes`],
    };
  }
  const parsed = AbuseReport.safeParse(value);
  if (!parsed.success) return { problems: parsed.error.issues.map(describeIssue) };
  const { reporter, subject } = parsed.data;
  if (reporter.server_name === subject.server_name) {
    return { problems: ["subject.server_name: is the reporter's own"] };
  }
  return { report: parsed.data, digest: sha256Tagged(canonicalize(parsed.data)) };
}

function describeIssue(issue: z.core.$ZodIssue): string {
  const place = placeOf(issue.path);
  if (issue.code === "unrecognized_keys") {
    return `${place}: has ${issue.keys.length} unknown field${issue.keys.length === 1 ? "" : "s"}; a report refers to events and quotes nothing`;
  }
  if (issue.path[0] === "evidence_refs" && issue.path.length > 1) {
    return `${place}: must be an event ID, a policy digest (sha256:…) or a key ID (ed25519:…, kid:…)`;
  }
  if (issue.code === "invalid_value")
    return `${place}: must be one of ${issue.values.map(String).join(", ")}`;
  return `${place}: ${issue.code.replaceAll("_", " ")}`;
}
