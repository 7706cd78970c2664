// What a line of each record stream may look like, and what of it goes into an evidence pack.
// Invariants: a line is taken only if it fits its schema exactly: no field is free text, and a field that is not
// known here refuses the whole line. Nothing is ever included of a line that does not fit.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { z } from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { Sha256Digest, sha256Tagged } from "../../domain/digest.ts";

/** A word of a closed set that another program keeps. */
const Word = z.string().regex(/^[A-Za-z0-9_.:-]{1,128}$/);
/** An identifier as protocols write them: no white space, no control characters. */
const Identifier = z.string().regex(/^[\x21-\x7e]{1,255}$/);
/** What Envoy says of an answer: words with underscores, sometimes with a policy or a cause in brackets. */
const Details = z.string().regex(/^[A-Za-z0-9_.:|,'{}[\]-]{1,256}$/);
const Time = z.iso.datetime();

/** A denial by the border module inside the homeserver. */
const ViolationLine = z.strictObject({
  schema: z.literal("svc_federation_policy_violation"),
  reason: z.enum(["server_not_allowed", "invite_rule_denied"]),
  server: Identifier.nullable(),
  room: Identifier.nullable(),
  event: Identifier.nullable(),
  policy_digest: Sha256Digest.nullable(),
  at: Time,
});

/** A request at the gateway, as its access log has it. */
const GatewayLine = z.strictObject({
  start_time: Time,
  azp: Identifier.nullable(),
  route: Identifier.nullable(),
  code: z.int().min(0).max(599),
  details: Details.nullable(),
  flags: Identifier.nullable(),
  duration_ms: z.number().min(0),
  bytes_in: z.number().min(0),
  bytes_out: z.number().min(0),
});

const Target = z.strictObject({
  agent: Word,
  ghost: Identifier,
  fingerprint: z.union([Sha256Digest, z.literal("none")]),
  agent_version: Identifier.nullable(),
});

const DelegationLine = z.strictObject({
  audit_id: z.string().regex(/^[0-9]{1,20}$/),
  schema: z.literal("svc.delegation.v1"),
  time: Time,
  outcome: Word,
  terminal_stage: Word,
  terminal_reason: Word,
  a2a_attempted: z.boolean(),
  target: Target,
  room_id: Identifier,
  event_id: Identifier,
  sender: Identifier,
  ingress: Word,
  admitted_at: Time,
  accepted_at: Time.nullable(),
  reply_event_id: Identifier.nullable(),
});

const AgentCardLine = z.strictObject({
  audit_id: z.string().regex(/^[0-9]{1,20}$/),
  schema: z.literal("svc.agent_card.v1"),
  time: Time,
  outcome: Word,
  reason: Word,
  target: Target,
  origin: Identifier.nullable(),
  key_id: Identifier.nullable(),
  card_digest: Sha256Digest.nullable(),
});

/** The bridge's audit: what it did for whom. */
const BridgeLine = z.discriminatedUnion("schema", [DelegationLine, AgentCardLine]);

export const STREAM_NAMES = ["border_violations", "gateway_decisions", "bridge_audit"] as const;
export type StreamName = (typeof STREAM_NAMES)[number];

/** What of a line is included, besides its time and its digest. */
export const StreamFacts = z.discriminatedUnion("stream", [
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
    schema: z.enum(["svc.delegation.v1", "svc.agent_card.v1"]),
    audit_id: z.string(),
    outcome: Word,
    reason: Word,
    agent: Word,
    a2a_attempted: z.boolean().nullable(),
    room: Identifier.nullable(),
    event: Identifier.nullable(),
    sender: Identifier.nullable(),
    key_id: Identifier.nullable(),
  }),
]);
export type StreamFacts = z.output<typeof StreamFacts>;

const Count = z.int().min(0);

export const StreamSummary = z.strictObject({
  stream: z.enum(STREAM_NAMES),
  /** `not_operated`: this deployment has no such part; `absent`: nothing was written yet, or it was moved away. */
  state: z.enum(["read", "not_operated", "absent", "unreadable"]),
  bytes: Count,
  /** SHA-256 of the bytes that were read. */
  digest: Sha256Digest.nullable(),
  lines: Count,
  /** Lines that are the partner's and in the window. */
  matching: Count,
  /** The newest of them, which stand in the pack. */
  included: Count,
  /** Lines outside the schema: counted, never included. */
  refused_lines: Count,
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

/** Whose lines are looked for. */
export interface StreamPartner {
  readonly serverName: string;
  readonly azp: string;
  /** Names of its agents that our bridge carries as ghosts. */
  readonly agents: ReadonlySet<string>;
}

export interface ReadLine {
  readonly at: string;
  readonly concerns: boolean;
  readonly facts: StreamFacts;
}

function serverOfUser(user: string): string {
  return user.slice(user.indexOf(":") + 1);
}

function readBridgeLine(value: unknown, partner: StreamPartner): ReadLine | undefined {
  const line = BridgeLine.safeParse(value).data;
  if (line === undefined) return undefined;
  const { schema, audit_id, outcome, target } = line;
  const common = { stream: "bridge_audit", schema, audit_id, outcome, agent: target.agent } as const;
  const isTheirs = partner.agents.has(target.agent);
  if (line.schema === "svc.agent_card.v1") {
    const none = { a2a_attempted: null, room: null, event: null, sender: null };
    const facts = { ...common, reason: line.reason, ...none, key_id: line.key_id };
    return { at: line.time, concerns: isTheirs, facts };
  }
  const facts = {
    ...common,
    reason: line.terminal_reason,
    a2a_attempted: line.a2a_attempted,
    room: line.room_id,
    event: line.event_id,
    sender: line.sender,
    key_id: null,
  };
  return { at: line.time, concerns: isTheirs || serverOfUser(line.sender) === partner.serverName, facts };
}

/** Reads one line of a stream; undefined when it does not fit. */
export function readStreamLine(
  stream: StreamName,
  value: unknown,
  partner: StreamPartner,
): ReadLine | undefined {
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

// Reads one record stream for a partner and a window of time.
// Invariants: memory stays bounded however long the file or a line is; a line that does not fit its schema is
// counted and never included; the digest covers exactly the bytes that were read.

const LINE_BYTES_MAX = 64 * 1024;
/** Of a partner that hammers at a door, the newest tell enough; the count tells the rest. */
const ITEMS_MAX = 5_000;
const NEWLINE = 0x0a;

export interface Window {
  /** ISO 8601, inclusive. */
  readonly since: string;
  readonly until: string;
}

interface Collected {
  readonly summary: StreamSummary;
  readonly items: readonly StreamEvidence[];
}

/** What stands in for a stream that this deployment does not have, or that has not been written yet. */
function nothing(stream: StreamName, state: "not_operated" | "absent" | "unreadable"): Collected {
  const counts = { lines: 0, matching: 0, included: 0, refused_lines: 0 };
  return { summary: { stream, state, bytes: 0, digest: null, ...counts }, items: [] };
}

/** Collects a stream from its file; `file` is undefined where the deployment does not have the stream. */
export async function collectStream(
  stream: StreamName,
  file: string | undefined,
  partner: StreamPartner,
  window: Window,
): Promise<Collected> {
  if (file === undefined) return nothing(stream, "not_operated");
  const reader = new StreamReader(stream, partner, window);
  try {
    for await (const chunk of createReadStream(file)) reader.take(chunk as Buffer);
  } catch (error) {
    const isAbsent = (error as NodeJS.ErrnoException).code === "ENOENT";
    return nothing(stream, isAbsent ? "absent" : "unreadable");
  }
  return reader.end();
}

class StreamReader {
  readonly #stream: StreamName;
  readonly #partner: StreamPartner;
  readonly #since: number;
  readonly #until: number;
  readonly #hash = createHash("sha256");
  readonly #items: StreamEvidence[] = [];
  #rest: Buffer[] = [];
  #restBytes = 0;
  #bytes = 0;
  #lines = 0;
  #matching = 0;
  #refused = 0;

  constructor(stream: StreamName, partner: StreamPartner, window: Window) {
    this.#stream = stream;
    this.#partner = partner;
    this.#since = Date.parse(window.since);
    this.#until = Date.parse(window.until);
  }

  take(chunk: Buffer): void {
    this.#hash.update(chunk);
    this.#bytes += chunk.length;
    let at = 0;
    for (let end = chunk.indexOf(NEWLINE); end >= 0; end = chunk.indexOf(NEWLINE, at)) {
      this.#keep(chunk.subarray(at, end));
      this.#line();
      at = end + 1;
    }
    this.#keep(chunk.subarray(at));
  }

  #keep(part: Buffer): void {
    this.#restBytes += part.length;
    // Beyond the bound only the length is remembered.
    if (this.#restBytes <= LINE_BYTES_MAX && part.length > 0) this.#rest.push(part);
  }

  #line(): void {
    const length = this.#restBytes;
    const bytes = Buffer.concat(this.#rest);
    this.#rest = [];
    this.#restBytes = 0;
    if (length === 0) return;
    this.#lines += 1;
    const read = length > LINE_BYTES_MAX ? undefined : this.#read(bytes);
    if (read === undefined) {
      this.#refused += 1;
      return;
    }
    const time = Date.parse(read.at);
    if (!read.concerns || time < this.#since || time > this.#until) return;
    this.#matching += 1;
    const body = { at: read.at, facts: read.facts, line_digest: sha256Tagged(bytes) };
    this.#items.push({ ...body, digest: sha256Tagged(canonicalize(body)) });
    if (this.#items.length > ITEMS_MAX) this.#items.shift();
  }

  #read(bytes: Buffer) {
    try {
      return readStreamLine(this.#stream, JSON.parse(bytes.toString("utf8")), this.#partner);
    } catch {
      return undefined;
    }
  }

  /** A last line without its end is still being written: it belongs to a later pack. */
  end(): Collected {
    return {
      summary: {
        stream: this.#stream,
        state: "read",
        bytes: this.#bytes,
        digest: `sha256:${this.#hash.digest("hex")}`,
        lines: this.#lines,
        matching: this.#matching,
        included: this.#items.length,
        refused_lines: this.#refused,
      },
      items: this.#items,
    };
  }
}
