// svc.federation.evidence.v1: what was seen of one partner, without anything that anybody said.
// Invariants: every member is an identifier, a word of a closed set, a digest, a number or a time, or one of the
// fixed sentences of `LIMITS`; each item carries the digest of its other members, and the pack that of all.
// Published as docs/reference/schemas/svc.federation.evidence.v1.schema.json.

import { z } from "zod";
import { canonicalize } from "../../domain/canonicalize.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { EvidenceItem, isIntact } from "../../records/format/evidence-item.ts";
import { TOKEN_LIFE_S } from "../../rendered-files/token-life.ts";
import { ContainmentRecord } from "../containment/record.ts";
import { STREAM_NAMES, StreamFacts } from "./stream-lines.ts";

const Digest = z.string().regex(/^sha256:[0-9a-f]{64}$/);
const Identifier = z.string().regex(/^[\x21-\x7e]{1,512}$/);
const Count = z.int().min(0);
const Time = z.iso.datetime();

/** What no closing of planes brings about, as every pack says it. */
export const LIMITS = {
  replicated_history:
    "Removing a server from an ACL or a whitelist does not retract history that was replicated to it before.",
  user_attribution: "The X-User-Id header is attribution, not authentication.",
} as const;

const StreamSummary = z.strictObject({
  stream: z.enum(STREAM_NAMES),
  /** `not_operated`: this deployment has no such part; `absent`: nothing was written yet, or it was moved away. */
  state: z.enum(["read", "not_operated", "absent", "unreadable"]),
  bytes: Count,
  /** SHA-256 of the bytes that were read. */
  digest: Digest.nullable(),
  lines: Count,
  /** Lines that are the partner's and in the window. */
  matching: Count,
  /** The newest of them, which stand in the pack. */
  included: Count,
  /** Lines outside the schema: counted, never included. */
  refused_lines: Count,
});
export type StreamSummary = z.output<typeof StreamSummary>;

const StreamEvidence = z.strictObject({
  at: Time,
  facts: StreamFacts,
  /** SHA-256 of the line as it stands in the file, without its line break. */
  line_digest: Digest,
  digest: Digest,
});
export type StreamEvidence = z.output<typeof StreamEvidence>;

const EvidencePackBody = z.strictObject({
  schema: z.literal("svc.federation.evidence.v1"),
  made_at: Time,
  window: z.strictObject({ since: Time, until: Time }),
  /** Verify-only facts of the registry. */
  partner: z.strictObject({
    name: Identifier,
    server_name: Identifier,
    azp: Identifier,
    issuer: Identifier,
    key_ids: z.strictObject({ server: z.array(Identifier), card: z.array(Identifier) }),
    classification: z.enum(["public", "internal", "confidential", "restricted"]),
    contained: z.boolean(),
  }),
  /** The commit that the registry was read at. */
  revision: z.string().regex(/^(?:[0-9a-f]{40}|[0-9a-f]{64})$/),
  /** Planes that the registry closes. */
  closed_planes: z.array(z.enum(["transport", "rooms", "border", "card", "gateway"])),
  /** Containment records of this partner in the repository, each with the SHA-256 of its file. */
  containment_records: z.array(
    z.strictObject({ path: Identifier, record: ContainmentRecord, digest: Digest }),
  ),
  /** Seen by the operator, from inside. */
  inside: z.array(EvidenceItem),
  /** Seen as the partner and by third servers, from outside; empty when nobody looked. */
  outside: z.array(EvidenceItem),
  streams: z.array(StreamSummary),
  stream_items: z.array(StreamEvidence),
  limits: z.strictObject({
    replicated_history: z.literal(LIMITS.replicated_history),
    user_attribution: z.literal(LIMITS.user_attribution),
    live_tokens: z.strictObject({
      longest_life_seconds: z.literal(TOKEN_LIFE_S),
      /** No token that was issued before the partner was seen refused one lives longer; null: it was not seen refused. */
      dead_by: Time.nullable(),
    }),
  }),
});
export type EvidencePackBody = z.output<typeof EvidencePackBody>;

export const EvidencePack = EvidencePackBody.extend({ digest: Digest });
export type EvidencePack = z.output<typeof EvidencePack>;

/** @throws RangeError when something is outside the schema, so that content can never slip in */
export function sealPack(body: EvidencePackBody): EvidencePack {
  const checked = EvidencePackBody.safeParse(body);
  if (!checked.success) throw new RangeError("this pack is outside the evidence schema");
  return { ...checked.data, digest: sha256Tagged(canonicalize(checked.data)) };
}

/** What is wrong with a pack; empty when every digest is that of what it stands for. */
export function packProblems(value: unknown): string[] {
  const parsed = EvidencePack.safeParse(value);
  if (!parsed.success) {
    return parsed.error.issues.map(
      ({ path }) => `outside the schema: ${path.map(String).join(".") || "the pack"}`,
    );
  }
  const { digest, ...body } = parsed.data;
  const problems: string[] = [];
  for (const place of ["inside", "outside"] as const) {
    body[place].forEach((item, index) => {
      if (!isIntact(item)) problems.push(`wrong digest: ${place}.${index}`);
    });
  }
  body.stream_items.forEach(({ digest: own, ...item }, index) => {
    if (own !== sha256Tagged(canonicalize(item))) problems.push(`wrong digest: stream_items.${index}`);
  });
  if (digest !== sha256Tagged(canonicalize(body))) problems.push("wrong digest: the pack");
  return problems;
}
