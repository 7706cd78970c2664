// What a line of each record stream may look like, and what of it goes into an evidence pack.
// Invariants: a line is taken only if it fits its schema exactly: no field is free text, and a field that is not
// known here refuses the whole line. Nothing is ever included of a line that does not fit.
import { z } from "zod";

/** A word of a closed set that another program keeps. */
const Word = z.string().regex(/^[A-Za-z0-9_.:-]{1,128}$/);
/** An identifier as protocols write them: no white space, no control characters. */
const Identifier = z.string().regex(/^[\x21-\x7e]{1,255}$/);
/** What Envoy says of an answer: words with underscores, sometimes with a policy or a cause in brackets. */
const Details = z.string().regex(/^[A-Za-z0-9_.:|,'{}[\]-]{1,256}$/);
const Time = z.iso.datetime();
const Digest = z.string().regex(/^sha256:[0-9a-f]{64}$/);

/** A denial by the border module inside the homeserver. */
const ViolationLine = z.strictObject({
  schema: z.literal("svc_federation_policy_violation"),
  reason: z.enum(["server_not_allowed", "invite_rule_denied"]),
  server: Identifier.nullable(),
  room: Identifier.nullable(),
  event: Identifier.nullable(),
  policy_digest: Digest.nullable(),
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
  fingerprint: z.union([Digest, z.literal("none")]),
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
  card_digest: Digest.nullable(),
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
