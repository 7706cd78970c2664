// svc.federation.evidence.v1: what was observed of one partner, without anything that anybody said. Invariants: every
// member is an identifier, a word of a closed set, a digest, a number or a time, or one of the fixed sentences of `LIMITS`;
// each item carries the digest of its other members, and the pack that of all.
// Published as docs/reference/schemas/svc.federation.evidence.v1.schema.json.
import { resolve } from "node:path";
import * as z from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import type { Clock } from "../../domain/clock.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { Sha256Digest } from "../../domain/identifier-fields.ts";
import { EvidenceItem, isIntact } from "../../records/format/evidence-item.ts";
import { GitRevision, Identifier } from "../../records/format/fields.ts";
import { TOKEN_LIFE_S } from "../../rendered-files/issuer-clients.ts";
import type { FederationConfig } from "../config.ts";
import { PLANE_NAMES } from "../plane-order.ts";
import type { acceptedState } from "../reconcile/accept-head.ts";
import { CONTAINMENTS, ContainmentRecord, containmentRecordsOf } from "../registry/committed-records.ts";
import { closedPlanes, Partner, type PartnerEntry } from "../registry/partner.ts";
import { collectStream, STREAM_NAMES, StreamEvidence, StreamSummary, type Window } from "./record-streams.ts";

const Time = z.iso.datetime();

export const LIMITS = {
  replicated_history:
    "Removing a server from an ACL or a whitelist does not retract history that was replicated to it before.",
  user_attribution: "The X-User-Id header is attribution, not authentication.",
} as const;

const EvidencePackBody = z.strictObject({
  schema: z.literal("svc.federation.evidence.v1"),
  made_at: Time,
  window: z.strictObject({ since: Time, until: Time }),
  partner: z.strictObject({
    ...{ name: Identifier, server_name: Identifier, azp: Identifier, issuer: Identifier },
    key_ids: z.strictObject({ server: z.array(Identifier), card: z.array(Identifier) }),
    classification: Partner.shape.classification,
    contained: z.boolean(),
  }),
  revision: GitRevision,
  closed_planes: z.array(z.enum(PLANE_NAMES)),
  containment_records: z.array(
    z.strictObject({ path: Identifier, record: ContainmentRecord, digest: Sha256Digest }),
  ),
  ...{ inside: z.array(EvidenceItem), outside: z.array(EvidenceItem) },
  ...{ streams: z.array(StreamSummary), stream_items: z.array(StreamEvidence) },
  limits: z.strictObject({
    replicated_history: z.literal(LIMITS.replicated_history),
    user_attribution: z.literal(LIMITS.user_attribution),
    live_tokens: z.strictObject({
      longest_life_seconds: z.literal(TOKEN_LIFE_S),
      /** When the last token expires that was issued before its clients were observed to be refused; null when one was not. */
      dead_by: Time.nullable(),
    }),
  }),
});
export type EvidencePackBody = z.output<typeof EvidencePackBody>;
export const EvidencePack = EvidencePackBody.extend({ digest: Sha256Digest });
export type EvidencePack = z.output<typeof EvidencePack>;

/** @throws RangeError when something is outside the schema, so that content can never slip in */
export function sealPack(body: EvidencePackBody): EvidencePack {
  const checked = EvidencePackBody.safeParse(body);
  if (!checked.success) throw new RangeError("this pack is outside the evidence schema");
  return { ...checked.data, digest: sha256Tagged(canonicalize(checked.data)) };
}

export function packProblems(value: unknown): string[] {
  const parsed = EvidencePack.safeParse(value);
  if (!parsed.success) {
    const places = parsed.error.issues.map(({ path }) => path.map(String).join("."));
    return places.map((place) => `outside the schema: ${place || "the pack"}`);
  }
  const problems = (["inside", "outside", "stream_items"] as const).flatMap((place) =>
    parsed.data[place].flatMap((item, index) => (isIntact(item) ? [] : [`wrong digest: ${place}.${index}`])),
  );
  return isIntact(parsed.data) ? problems : [...problems, "wrong digest: the pack"];
}

export async function assemblePack(input: {
  readonly config: FederationConfig;
  readonly current: Pick<Awaited<ReturnType<typeof acceptedState>>, "repository" | "desired">;
  readonly partner: PartnerEntry;
  readonly window: Window;
  readonly inside: readonly EvidenceItem[];
  readonly outside: readonly EvidenceItem[];
  readonly clock: Clock;
}): Promise<EvidencePack> {
  const { config, current, partner: entry, window, inside, outside, clock } = input;
  const { partner } = entry;
  const { serverName, azp, issuer, keyIds, classification, contained } = partner;
  const identity = { name: entry.name, server_name: serverName, azp, issuer, key_ids: keyIds };
  const files = {
    border_violations: config.border.violationsFile,
    gateway_decisions: config.gateway?.accessLog,
    bridge_audit: config.card?.bridgeAuditFile,
  };
  const about = { serverName, azp, agents: new Set(Object.keys(partner.card.consumes)) };
  const streams = await Promise.all(
    STREAM_NAMES.map((stream) => {
      const file = files[stream];
      return collectStream(stream, file && resolve(config.directory, file), about, window);
    }),
  );
  const containments = await current.repository.read(current.desired.revision, [CONTAINMENTS]);
  const dead_by = deadBy([...inside, ...outside], azp);
  return sealPack({
    schema: "svc.federation.evidence.v1",
    made_at: new Date(clock.now()).toISOString(),
    window: { since: window.since, until: window.until },
    partner: { ...identity, classification, contained },
    revision: current.desired.revision,
    closed_planes: [...closedPlanes(partner)],
    containment_records: containmentRecordsOf(serverName, containments),
    ...{ inside: [...inside], outside: [...outside] },
    streams: streams.map(({ summary }) => summary),
    stream_items: streams.flatMap(({ items }) => items),
    limits: { ...LIMITS, live_tokens: { longest_life_seconds: TOKEN_LIFE_S, dead_by } },
  });
}

/**
 * No token is issued to a client after it was first observed to be refused, so none lives longer than a token's life from
 * then. Null unless that was observed of each client and the issuer says so itself: a probe file with an old secret is
 * refused although the client is enabled, and of an issuer that is not managed here no life of a token is known.
 */
export function deadBy(items: readonly EvidenceItem[], azp: string): string | null {
  const about = items.filter(({ probe }) => probe === "token_request" || probe === "issuer_client");
  const declared = about.flatMap(({ probe, subject }) => (probe === "issuer_client" ? (subject ?? []) : []));
  const refused = [...new Set([azp, ...declared])].map((client) => {
    const found = about.filter(({ subject }) => subject === client);
    const isOpen = found.some(({ verdict }) => verdict === "open");
    const said = found.filter(({ probe }) => probe === "issuer_client").map(({ verdict }) => verdict);
    if (isOpen || !said.includes("closed") || said.includes("unknown")) return Number.POSITIVE_INFINITY;
    return Math.min(...found.flatMap(({ verdict, at }) => (verdict === "closed" ? Date.parse(at) : [])));
  });
  const last = Math.max(...refused);
  return Number.isFinite(last) ? new Date(last + TOKEN_LIFE_S * 1_000).toISOString() : null;
}
