// One observation about one plane and one partner: what was tried, from where, what answered.
// Invariants: no field can hold what people or agents wrote; the digest covers every other field in canonical form
// (RFC 8785); an item shows a purge only by what was really deleted, never by a count or by what is kept by contract.
import * as z from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { sha256Tagged } from "../../domain/digest.ts";
import { Sha256Digest } from "../../domain/identifier-fields.ts";
import type { JsonObject } from "../../domain/json.ts";
import { Identifier, Instant, Word } from "./fields.ts";
import { PLANE_NAMES } from "./removal-stages.ts";

/** Who observed: the operator from inside, the partner from outside, the neutral witness, a retained server. */
export const Vantage = z.enum(["operator", "partner", "witness", "retained_server", "nobody"]);
export type Vantage = z.output<typeof Vantage>;

export const EvidenceItemBody = z.strictObject({
  schema: z.literal("svc.federation.evidence_item.v1"),
  plane: z.enum(PLANE_NAMES),
  partner: Identifier,
  probe: Word,
  vantage: Vantage,
  /** What it was tried on: a room ID, an agent, a client ID, a server name; null when it says itself. */
  subject: Identifier.nullable(),
  /** `closed`: the partner was stopped; `open`: it passed; `unknown`: nothing can be said, and why is in `reason`. */
  verdict: z.enum(["closed", "open", "unknown"]),
  layer: Word,
  status: z.int().min(100).max(599).nullable(),
  reason: Word.nullable(),
  /** Identifiers that the observation rests on: event IDs, policy digests, key IDs, revisions. */
  references: z.array(Identifier).max(256),
  at: Instant,
  duration_ms: z.number().min(0).nullable(),
});
export type EvidenceItemBody = z.output<typeof EvidenceItemBody>;
export const EvidenceItem = EvidenceItemBody.extend({ digest: Sha256Digest });
export type EvidenceItem = z.output<typeof EvidenceItem>;

/** Seals an observation with its digest. @throws RangeError when a field holds what its schema does not allow */
export function evidenceItem(body: EvidenceItemBody): EvidenceItem {
  // Whoever is probed answers with any three digits; HTTP knows no status above 599 (RFC 9110, section 15).
  const status = body.status !== null && body.status > 599 ? null : body.status;
  // A clock may be set back while something is observed.
  const duration_ms = body.duration_ms === null ? null : Math.max(0, body.duration_ms);
  const checked = EvidenceItemBody.safeParse({ ...body, status, duration_ms });
  if (!checked.success) throw new RangeError("this observation is outside the evidence schema");
  return { ...checked.data, digest: sha256Tagged(canonicalize(checked.data)) };
}

export function isIntact({ digest, ...body }: JsonObject & { readonly digest: string }): boolean {
  return digest === sha256Tagged(canonicalize(body));
}

/** Seals what the operator observed; a field that is not given holds nothing. @throws RangeError as `evidenceItem` does */
export function operatorItem(
  atMs: number,
  body: Pick<EvidenceItemBody, "plane" | "partner" | "probe" | "verdict" | "layer"> &
    Partial<EvidenceItemBody>,
): EvidenceItem {
  return evidenceItem({
    ...{ schema: "svc.federation.evidence_item.v1", vantage: "operator", at: new Date(atMs).toISOString() },
    ...{ subject: null, status: null, reason: null, references: [], duration_ms: null },
    ...body,
  });
}

/** Prefix of the word by which an organisation says, in its data duties, who attests for it. */
export const OWNER_WORD = "owner:";
/** Prefix of the word by which an organisation says, in its first stage, why it removes the other. */
export const TRIGGER_WORD = "trigger:";
/** Prefixes of the words by which an organisation says, in its data duties, how long it keeps what it has. */
const RETENTION_WORD = "retention:";
const BACKUPS_WORD = "backups_expire_by:";
/** Prefix of the word that says why a stage was opened before both had signed the one before it. */
export const SKIPPED_WORD = "countersignature_skipped:";
export const KEPT_BY_CONTRACT = "kept_by_contract";
export const DELETIONS: readonly string[] = ["purge_media", "purge_room", "purge_history"];
const ACCOUNTS: ReadonlySet<string> = new Set(["rows_before", "rows_after", "rows_left", "history_kept"]);

export function showsPurge({ probe, verdict, vantage, reason }: EvidenceItem): boolean {
  const isDeleted = DELETIONS.includes(probe) && verdict === "closed" && reason !== KEPT_BY_CONTRACT;
  return isDeleted && vantage !== "nobody";
}

export const isOfPurge = ({ probe }: EvidenceItem) => DELETIONS.includes(probe) || ACCOUNTS.has(probe);

export function ownerIn(attested: readonly string[]): string | undefined {
  return attested.find((word) => word.startsWith(OWNER_WORD))?.slice(OWNER_WORD.length);
}

export function keeping(retention: { state: string; until: string | null }, backupsExpireBy: string) {
  const until = retention.until === null ? "" : `:${retention.until}`;
  return [`${RETENTION_WORD}${retention.state}${until}`, `${BACKUPS_WORD}${backupsExpireBy}`] as const;
}

export const isKeeping = (word: string) => word.startsWith(RETENTION_WORD) || word.startsWith(BACKUPS_WORD);

export function isOwnRoom({ probe, vantage, subject }: EvidenceItem): boolean {
  return vantage === "operator" && probe.startsWith("room_") && subject !== null;
}

const STARTED = "started_at=";

export function startedAtOf({ references }: Pick<EvidenceItem, "references">): string | null {
  return references.find((one) => one.startsWith(STARTED))?.slice(STARTED.length) ?? null;
}
