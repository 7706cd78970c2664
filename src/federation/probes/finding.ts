// What one attempt found, before it is sealed as evidence: the layer that answered and what that means.
// Invariants: nothing of an answer's body goes on from here, only words of closed sets; an attempt that was
// not made, or not answered, is `unknown` and never `closed`.
import type { z } from "zod";
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { visibleId } from "../../domain/identifiers.ts";
import { type EvidenceItem, evidenceItem, type Vantage } from "../../records/format/evidence-item.ts";
import type { PlaneName } from "../plane-order.ts";

/** Who answered, as evidence items name it. */
export type AnsweringLayer =
  | "issuer"
  | "gateway"
  | "agent"
  /** The homeserver's own list of servers that it talks to (plane 1). */
  | "transport"
  | "border"
  | "room_acl"
  /** A ban of the user, which any server in the room enforces. */
  | "room_ban"
  /** The partner's server, or the target's, has no member in the room any more. */
  | "room_membership"
  /** The room's own join rules or power levels: the server itself was heard. */
  | "room_rules"
  /** A homeserver, without saying by which of its layers. */
  | "homeserver"
  | "witness_homeserver"
  /** Nobody: nothing arrived within the time, though what was sent after it did. */
  | "not_seen"
  | "network"
  | "none";

export interface ProbeResult {
  readonly verdict: "closed" | "open" | "unknown";
  readonly layer: AnsweringLayer;
  readonly status: number | null;
  readonly reason: string | null;
  /** Event IDs, digests, key IDs. */
  readonly references?: readonly string[];
}

/** What a probe is about. */
export interface ProbeSubject {
  readonly plane: PlaneName;
  readonly partner: string;
  readonly probe: OutsideProbe;
  readonly vantage: z.output<typeof Vantage>;
  readonly subject: string | null;
}

/** Every probe from outside, with the planes that it must pass: one of them closed, and it is to be refused. */
export const OUTSIDE_PROBES = {
  token_request: ["gateway"],
  invoke: ["gateway"],
  card_fetch: ["card"],
  federation_send: ["transport"],
  invite: ["transport", "border"],
  make_join: ["transport", "border", "rooms"],
  make_join_at_witness: ["rooms"],
  remote_join: ["transport", "border", "rooms"],
  remote_join_via_witness: ["rooms"],
  message_to_target: ["transport", "border", "rooms"],
  message_to_target_via_witness: ["transport", "border", "rooms"],
  state_to_target: ["transport", "border", "rooms"],
  state_to_target_via_witness: ["transport", "border", "rooms"],
  message_to_partner: ["transport", "rooms"],
  message_to_partner_via_witness: ["transport", "rooms"],
  event_at_target: ["transport", "rooms"],
  event_at_witness: ["rooms"],
  backfill_at_target: ["transport", "rooms"],
  backfill_at_witness: ["rooms"],
} as const satisfies Readonly<Record<string, readonly PlaneName[]>>;
export type OutsideProbe = keyof typeof OUTSIDE_PROBES;

// Reasons begin so when a probe was left out: probe.yaml lacks what it needs, or it would say nothing here.
const NOT_CONFIGURED = "not_configured:";
const NOT_APPLICABLE = "not_applicable:";

/** A probe that was left out, and what it would have needed. */
export function notConfigured(what: string): ProbeResult {
  return { verdict: "unknown", layer: "none", status: null, reason: `${NOT_CONFIGURED}${what}` };
}

/** A probe that would say nothing as things stand, and why. */
export function notApplicable(why: string): ProbeResult {
  return { verdict: "unknown", layer: "none", status: null, reason: `${NOT_APPLICABLE}${why}` };
}

/** Reasons for which a card stays public although the partner may not use it: it is public for everybody or not. */
const FOR_OTHERS: ReadonlySet<string | null> = new Set(["published_always", "consumed_by_others"]);

/** Whether an item says open only because the registry keeps the card public for others. */
export function isPublicForOthers({ verdict, reason }: EvidenceItem): boolean {
  return verdict === "open" && FOR_OTHERS.has(reason);
}

/** Reads an exception of the network: nobody answered, so nothing can be said. */
export function unreachable(error: unknown): ProbeResult {
  const name = error instanceof Error ? error.name : "";
  const reason = name === "TimeoutError" || name === "AbortError" ? "timed_out" : "unreachable";
  return { verdict: "unknown", layer: "network", status: null, reason };
}

const IDENTIFIER = /^[\x21-\x7e]{1,512}$/;

/** Makes the attempt, times it, and seals what it found. What the attempt throws becomes `unknown`. */
export async function observe(
  subject: ProbeSubject,
  clock: Clock,
  attempt: () => Promise<ProbeResult> | ProbeResult,
): Promise<EvidenceItem> {
  const startedAt = clock.now();
  let finding: ProbeResult;
  try {
    finding = await attempt();
  } catch (error) {
    // A secret that cannot be read is the configuration's fault, and says nothing about anybody.
    if (error instanceof DrawbridgeError) throw error;
    finding = unreachable(error);
  }
  const wasTried = finding.layer !== "none";
  return evidenceItem({
    schema: "svc.federation.evidence_item.v1",
    ...subject,
    subject: subject.subject === null ? null : visibleId(subject.subject),
    verdict: finding.verdict,
    layer: finding.layer,
    status: finding.status,
    reason: finding.reason,
    references: (finding.references ?? []).map(visibleId).filter((reference) => IDENTIFIER.test(reference)),
    at: new Date(startedAt).toISOString(),
    duration_ms: wasTried ? Math.max(0, clock.now() - startedAt) : null,
  });
}
