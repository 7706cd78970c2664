// What both organisations state at the end of a removal: the six parts that make it complete, bound by digest
// to everything that shows them.
// Published as docs/reference/schemas/svc.federation.offboarding_completion.v1.schema.json.
import { z } from "zod";
import { RECORD_EVIDENCE_MAX, RECORD_STAGES_MAX } from "./bounds.ts";
import { Day, Digest, GitRevision, Identifier, Instant, KeyId, OrganisationName, Word } from "./fields.ts";
import { OutOfReachEntry, REMOVAL_FIELDS } from "./predicate-fields.ts";
import { RECORD_PLANES, STAGE_NAMES, TRIGGERS } from "./stages.ts";
import { statementOf } from "./statement.ts";

export const COMPLETION_PREDICATE_TYPE = "urn:drawbridge:offboarding:completion:v1";

/** Part 1: who answers for it. */
const Attestation = z.strictObject({
  organisation: OrganisationName,
  /** A role or a staff number, never a personal contact. */
  owner: Word,
  /**
   * The key that this organisation signs the completion with. Both sign everything, so nothing else says
   * whose key is whose.
   */
  keyId: KeyId,
  attestedAt: Instant,
});

/** Part 3: the reviewed state of one plane. */
const PlaneRevision = z.strictObject({
  organisation: OrganisationName,
  plane: z.enum(RECORD_PLANES),
  revision: GitRevision,
  render: Digest,
});
export type PlaneRevision = z.output<typeof PlaneRevision>;

const StaticTest = z.strictObject({
  organisation: OrganisationName,
  /** Such as `check:federation`. */
  command: Word,
  passed: z.literal(true),
  at: Instant,
});

const BoundStage = z.strictObject({
  organisation: OrganisationName,
  stage: z.enum(STAGE_NAMES),
  statement: Digest,
});
export type BoundStage = z.output<typeof BoundStage>;

/** Part 5: what is owed about data that is already there. */
const Duties = z.strictObject({
  purge: z.strictObject({
    state: z.enum(["done", "waived"]),
    evidence: z.array(Digest).max(10_000),
    /** Why nothing is purged; null when it is done. */
    waiver: Word.nullable(),
  }),
  retention: z.strictObject({
    /** `ended`: nothing is kept any more; `kept`: a duty to keep runs until that day. */
    state: z.enum(["ended", "kept"]),
    until: Day.nullable(),
  }),
  backupExpiry: z.strictObject({ state: z.literal("attested"), by: Day }),
  /** What the other organisation's server has already, it keeps. */
  replicatedHistory: z.literal("not_retracted"),
});

/** What remains although everything is closed: counts, never content. */
const Residual = z.strictObject({
  rooms: z.array(z.strictObject({ room: Identifier, events: z.int().min(0) })).max(100_000),
  /** Room keys' devices of the partner that still hold keys; null where it cannot be counted. */
  deviceKeys: z.int().min(0).nullable(),
  /** The last moment at which a token issued before the stop is accepted. */
  tokensLiveUntil: Instant.nullable(),
  /** Servers that still share rooms with the partner and with us. */
  thirdServers: z.array(z.strictObject({ server: OrganisationName, rooms: z.int().min(1) })).max(100_000),
});

/** Part 6: whether and how the partnership may resume. */
const Readmission = z.strictObject({
  possible: z.boolean(),
  owner: Word.nullable(),
  conditions: z.array(Word).max(256),
});

export const CompletionPredicate = z.strictObject({
  schema: z.literal("svc.federation.offboarding_completion.v1"),
  ...REMOVAL_FIELDS,
  trigger: z.enum(TRIGGERS),
  attestations: z.array(Attestation).max(16),
  /** Part 2: the change, and how it would be rolled back. */
  references: z.strictObject({ change: Identifier, rollback: Identifier }),
  revisions: z.array(PlaneRevision).max(64),
  staticTests: z.array(StaticTest).max(256),
  stages: z.array(BoundStage).max(RECORD_STAGES_MAX),
  /** Every item of every stage, ascending. */
  evidence: z.array(Digest).max(RECORD_EVIDENCE_MAX),
  duties: Duties,
  residual: Residual,
  outOfReach: z.array(OutOfReachEntry).max(100_000),
  readmission: Readmission,
  completedAt: Instant,
});
export type CompletionPredicate = z.output<typeof CompletionPredicate>;

export const CompletionStatement = statementOf(COMPLETION_PREDICATE_TYPE, CompletionPredicate);
export type CompletionStatement = z.output<typeof CompletionStatement>;
