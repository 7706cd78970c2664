// The lines of each record stream, what of a line goes into an evidence pack, and how a stream is read. Invariants: a line is
// included only if it fits its schema exactly: no field is free text, and an unknown field refuses the whole line, which is
// counted; memory stays bounded however long the file or a line is; the digest covers exactly the bytes that were read.
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import * as z from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { digestOf, sha256Tagged } from "../../domain/digest.ts";
import { Sha256Digest } from "../../domain/identifier-fields.ts";
import { parseJson } from "../../domain/json.ts";
import { Identifier, Word } from "../../records/format/fields.ts";
import type { Partner } from "../registry/partner.ts";

/** What Envoy says of an answer: words with underscores, sometimes with a policy or a cause in brackets. */
const Details = z.string().regex(/^[A-Za-z0-9_.:|,'{}[\]-]{1,256}$/);
const Time = z.iso.datetime();

const Named = Identifier.nullable();

const ViolationLine = z.strictObject({
  schema: z.literal("svc_federation_policy_violation"),
  reason: z.enum(["server_not_allowed", "invite_rule_denied"]),
  ...{ server: Named, room: Named, event: Named },
  policy_digest: Sha256Digest.nullable(),
  at: Time,
});

const GatewayLine = z.strictObject({
  start_time: Time,
  ...{ azp: Named, route: Named },
  code: z.int().min(0).max(599),
  details: Details.nullable(),
  flags: Identifier.nullable(),
  ...{ duration_ms: z.number().min(0), bytes_in: z.number().min(0), bytes_out: z.number().min(0) },
});

const fingerprint = z.union([Sha256Digest, z.literal("none")]);
const Target = z.strictObject({ agent: Word, ghost: Identifier, fingerprint, agent_version: Named });

const AuditId = z.string().regex(/^[0-9]{1,20}$/);
const COMMON = { audit_id: AuditId, time: Time, outcome: Word } as const;
const OF_EVENT = { room_id: Identifier, event_id: Identifier, sender: Identifier, ingress: Word } as const;

const DelegationLine = z.strictObject({
  ...COMMON,
  ...OF_EVENT,
  schema: z.literal("svc.delegation.v1"),
  ...{ target: Target, terminal_stage: Word, terminal_reason: Word, a2a_attempted: z.boolean() },
  admitted_at: Time,
  accepted_at: Time.nullable(),
  reply_event_id: Identifier.nullable(),
});

const AgentCardLine = z.strictObject({
  ...COMMON,
  schema: z.literal("svc.agent_card.v1"),
  ...{ target: Target, reason: Word, origin: Named, key_id: Named },
  card_digest: Sha256Digest.nullable(),
});

const EncryptedIntakeLine = z.strictObject({
  ...COMMON,
  ...OF_EVENT,
  schema: z.literal("svc.encrypted_intake.v1"),
  ...{ terminal_reason: Word, key_requests: z.int().min(0), admitted_at: Time },
});

const BridgeLine = z.discriminatedUnion("schema", [DelegationLine, AgentCardLine, EncryptedIntakeLine]);

export const STREAM_NAMES = ["border_violations", "gateway_decisions", "bridge_audit"] as const;
export type StreamName = (typeof STREAM_NAMES)[number];

const StreamFacts = z.discriminatedUnion("stream", [
  z.strictObject({
    stream: z.literal("border_violations"),
    ...ViolationLine.pick({ reason: true, server: true, room: true, event: true, policy_digest: true }).shape,
  }),
  z.strictObject({
    stream: z.literal("gateway_decisions"),
    ...GatewayLine.pick({ azp: true, route: true, code: true, details: true }).shape,
  }),
  z.strictObject({
    stream: z.literal("bridge_audit"),
    schema: z.enum(["svc.delegation.v1", "svc.agent_card.v1", "svc.encrypted_intake.v1"]),
    audit_id: z.string(),
    ...{ outcome: Word, reason: Word },
    /** Null for an encrypted event that nobody could read: whom it asked is not known. */
    agent: Word.nullable(),
    a2a_attempted: z.boolean().nullable(),
    ...{ room: Named, event: Named, sender: Named, key_id: Named },
  }),
]);

const Count = z.int().min(0);

export const StreamSummary = z.strictObject({
  stream: z.enum(STREAM_NAMES),
  /** `not_operated`: this deployment has no such part; `absent`: nothing was written yet, or it was moved away. */
  state: z.enum(["read", "not_operated", "absent", "unreadable"]),
  bytes: Count,
  digest: Sha256Digest.nullable(),
  ...{ lines: Count, matching: Count, included: Count, refused_lines: Count },
});
export type StreamSummary = z.output<typeof StreamSummary>;

export const StreamEvidence = z.strictObject({
  at: Time,
  facts: StreamFacts,
  /** SHA-256 of the line as it stands in the file, without its line break. */
  line_digest: Sha256Digest,
  digest: Sha256Digest,
});
export type StreamEvidence = z.output<typeof StreamEvidence>;

export interface StreamPartner extends Pick<Partner, "serverName" | "azp"> {
  /** Names of its agents that our bridge carries as ghosts; only the bridge's lines name any. */
  readonly agents?: ReadonlySet<string>;
}

function readBridgeLine(value: unknown, partner: StreamPartner) {
  const line = BridgeLine.safeParse(value).data;
  if (line === undefined) return undefined;
  const { schema, audit_id, outcome } = line;
  const agent = "target" in line ? line.target.agent : null;
  const common = { stream: "bridge_audit", schema, audit_id, outcome, agent } as const;
  const isTheirs = agent !== null && partner.agents?.has(agent) === true;
  if (line.schema === "svc.agent_card.v1") {
    const none = { a2a_attempted: null, room: null, event: null, sender: null };
    const facts = { ...common, ...none, reason: line.reason, key_id: line.key_id };
    return { at: line.time, concerns: isTheirs, facts };
  }
  const { terminal_reason: reason, room_id: room, event_id: event, sender } = line;
  const a2a_attempted = "a2a_attempted" in line ? line.a2a_attempted : null;
  const facts = { ...common, reason, a2a_attempted, room, event, sender, key_id: null };
  const isAsked = sender.slice(sender.indexOf(":") + 1) === partner.serverName;
  return { at: line.time, concerns: isTheirs || isAsked, facts };
}

function readStreamLine(stream: StreamName, value: unknown, partner: StreamPartner) {
  if (stream === "bridge_audit") return readBridgeLine(value, partner);
  if (stream === "border_violations") {
    const line = ViolationLine.safeParse(value).data;
    if (line === undefined) return undefined;
    const { schema: _schema, at, ...facts } = line;
    return { at, concerns: line.server === partner.serverName, facts: { stream, ...facts } };
  }
  const line = GatewayLine.safeParse(value).data;
  if (line === undefined) return undefined;
  const { azp, route, code, details } = line;
  return { at: line.start_time, concerns: azp === partner.azp, facts: { stream, azp, route, code, details } };
}

const LINE_BYTES_MAX = 64 * 1024;
/** The newest lines of a partner that retries all the time are enough; the count covers the rest. */
const ITEMS_MAX = 5_000;
const NEWLINE = 0x0a;

export interface Window {
  /** ISO 8601, inclusive. */
  readonly since: string;
  readonly until: string;
}

/** Collects a stream from its file; `file` is undefined where the deployment does not have the stream. */
export async function collectStream(
  stream: StreamName,
  file: string | undefined,
  partner: StreamPartner,
  window: Window,
  isWanted: (facts: StreamEvidence["facts"]) => boolean = () => true,
): Promise<{ readonly summary: StreamSummary; readonly items: readonly StreamEvidence[] }> {
  const none = { bytes: 0, lines: 0, matching: 0, refused_lines: 0 };
  const empty = { ...none, stream, digest: null, included: 0 };
  const nothing = (state: StreamSummary["state"]) => ({ summary: { ...empty, state }, items: [] });
  if (file === undefined) return nothing("not_operated");
  const [since, until] = [Date.parse(window.since), Date.parse(window.until)];
  const hash = createHash("sha256");
  const counts = { ...none };
  const items: StreamEvidence[] = [];
  const onChunk = (chunk: Buffer) => {
    hash.update(chunk);
    counts.bytes += chunk.length;
  };
  try {
    for await (const bytes of linesOf(createReadStream(file), onChunk)) {
      counts.lines += 1;
      const read = bytes && readStreamLine(stream, parseJson(bytes.toString("utf8")), partner);
      if (bytes === undefined || read === undefined) {
        counts.refused_lines += 1;
        continue;
      }
      const time = Date.parse(read.at);
      if (!read.concerns || time < since || time > until || !isWanted(read.facts)) continue;
      counts.matching += 1;
      const body = { at: read.at, facts: read.facts, line_digest: sha256Tagged(bytes) };
      items.push({ ...body, digest: sha256Tagged(canonicalize(body)) });
      if (items.length > ITEMS_MAX) items.shift();
    }
  } catch (error) {
    return nothing((error as NodeJS.ErrnoException).code === "ENOENT" ? "absent" : "unreadable");
  }
  const read = { stream, state: "read", digest: digestOf(hash), included: items.length } as const;
  return { summary: { ...read, ...counts }, items };
}

/** Whole lines that are not empty, each undefined when it is too long. A last one without its end is still being written. */
async function* linesOf(chunks: AsyncIterable<Buffer>, onChunk: (chunk: Buffer) => void) {
  let parts: Buffer[] = [];
  let length = 0;
  const add = (part: Buffer) => {
    length += part.length;
    // Beyond the bound only the length is kept.
    if (length <= LINE_BYTES_MAX) parts.push(part);
  };
  for await (const chunk of chunks) {
    onChunk(chunk);
    let at = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, at)) {
      add(chunk.subarray(at, end));
      if (length > 0) yield length > LINE_BYTES_MAX ? undefined : Buffer.concat(parts);
      [parts, length, at] = [[], 0, end + 1];
    }
    add(chunk.subarray(at));
  }
}
