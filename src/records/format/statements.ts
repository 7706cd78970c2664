// The statements that two organisations sign about a removal (one about each stage at one of them, and the completion, bound
// by digest to everything that shows it), and the files that hold them; published in docs/reference/schemas. Each is an
// in-toto Statement, version 1: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md. Invariants: a subject
// has a SHA-256 and a name of its own; a statement and a file have one form, the canonical text (RFC 8785) with its lists in a
// fixed order, and one digest.
import * as z from "zod";
import { canonicalize } from "../../domain/canonical-json.ts";
import { hexOfDigest, sha256Tagged } from "../../domain/digest.ts";
import { Sha256Digest } from "../../domain/identifier-fields.ts";
import type { Json } from "../../domain/json.ts";
import { DsseEnvelope } from "./dsse-envelope.ts";
import { EvidenceItem } from "./evidence-item.ts";
import {
  Day,
  GitRevision,
  Identifier,
  Instant,
  KeyId,
  OrganisationName,
  PARTIES,
  RECORD_EVIDENCE_MAX,
  RECORD_STAGES_MAX,
  RunId,
  Scope,
  Word,
} from "./fields.ts";
import { KINDS, PLANE_NAMES, STAGE_NAMES, TRIGGERS } from "./removal-stages.ts";

export const STATEMENT_TYPE = "https://in-toto.io/Statement/v1";
export const STATEMENT_PAYLOAD_TYPE = "application/vnd.in-toto+json";

const Subject = z.strictObject({
  name: z.string().min(1).max(512),
  digest: z.strictObject({ sha256: z.string().regex(/^[0-9a-f]{64}$/) }),
});
type Subject = z.output<typeof Subject>;

export const statementOf = <Predicate extends z.ZodType>(predicateType: string, predicate: Predicate) =>
  z.strictObject({
    _type: z.literal(STATEMENT_TYPE),
    subject: z
      .array(Subject)
      .min(1)
      .refine((subjects) => new Set(subjects.map(({ name }) => name)).size === subjects.length, {
        error: "two subjects have one name",
      }),
    predicateType: z.literal(predicateType),
    predicate,
  });

export interface Statement<Predicate = Json> {
  readonly _type: typeof STATEMENT_TYPE;
  readonly subject: readonly Subject[];
  readonly predicateType: string;
  readonly predicate: Predicate;
}

export function statementBytes(statement: Statement<unknown>): Buffer {
  return Buffer.from(canonicalize(statement as unknown as Json), "utf8");
}

/** The DSSE envelope of a statement, without a signature yet. */
export function unsigned(statement: Statement<unknown>): DsseEnvelope {
  const payload = statementBytes(statement).toString("base64");
  return { payloadType: STATEMENT_PAYLOAD_TYPE, payload, signatures: [] };
}

const digests = new WeakMap<Statement<unknown>, string>();

export function statementDigest(statement: Statement<unknown>): string {
  const digest = digests.get(statement) ?? sha256Tagged(statementBytes(statement));
  digests.set(statement, digest);
  return digest;
}

export const OutOfReachEntry = z.strictObject({
  /** What was not reached, such as a room ID or a server name; an item of evidence's subject, if it has one. */
  subject: Identifier,
  reason: Word,
  /** Role or staff number of who waives it; null until it is waived. */
  waived_by: Identifier.nullable(),
  waiver: Word.nullable(),
});
export type OutOfReachEntry = z.output<typeof OutOfReachEntry>;

const REMOVAL_FIELDS = { run: RunId, kind: z.enum(KINDS), ...PARTIES } as const;
const Words = z.array(Word).max(256);
const PLACE = { organisation: OrganisationName, stage: z.enum(STAGE_NAMES) } as const;

export const STAGE_PREDICATE_TYPE = "urn:drawbridge:offboarding:stage:v1";

export const StagePredicate = z.strictObject({
  schema: z.literal("svc.federation.offboarding_stage.v1"),
  ...REMOVAL_FIELDS,
  ...PLACE,
  position: z.int().min(1).max(STAGE_NAMES.length),
  /** Of the organisation's control repository; null for duties, and where nothing applies. */
  revision: GitRevision.nullable(),
  render: Sha256Digest.nullable(),
  scope: Scope,
  /** Digests of the items that show it, ascending. What they show is evaluated, and stated by nobody. */
  evidence: z.array(Sha256Digest).min(1).max(RECORD_EVIDENCE_MAX),
  out_of_reach: z.array(OutOfReachEntry).max(10_000),
  attested: Words,
  opened_at: Instant,
  closed_at: Instant,
  previous: Sha256Digest.nullable(),
});
export type StagePredicate = z.output<typeof StagePredicate>;
export const StageStatement = statementOf(STAGE_PREDICATE_TYPE, StagePredicate);
export type StageStatement = z.output<typeof StageStatement>;

export const COMPLETION_PREDICATE_TYPE = "urn:drawbridge:offboarding:completion:v1";

const Attestation = z.strictObject({
  organisation: OrganisationName,
  /** A role or a staff number, never a personal contact. */
  owner: Word,
  /** The key that it signs the completion with. Both sign everything, so nothing else says whose key is whose. */
  key_id: KeyId,
  attested_at: Instant,
});

const PlaneRevision = z.strictObject({
  organisation: OrganisationName,
  plane: z.enum(PLANE_NAMES),
  revision: GitRevision,
  render: Sha256Digest,
});

const PassedTest = z.strictObject({
  ...{ organisation: OrganisationName, command: Word, passed: z.literal(true), at: Instant },
});

const Duties = z.strictObject({
  purge: z.strictObject({
    state: z.enum(["done", "waived"]),
    evidence: z.array(Sha256Digest).max(RECORD_EVIDENCE_MAX),
    waiver: Word.nullable(),
  }),
  retention: z.strictObject({
    /** `ended`: nothing is kept any more; `kept`: a duty to keep runs until that day. */
    state: z.enum(["ended", "kept"]),
    until: Day.nullable(),
  }),
  backup_expiry: z.strictObject({ state: z.literal("attested"), by: Day }),
  /** What the other organisation's server has already, it keeps. */
  replicated_history: z.literal("not_retracted"),
});

/** What remains although everything is closed: counts, never content. */
const Residual = z.strictObject({
  /** Events of the partner in each; null where it can be neither read nor counted. */
  rooms: z.array(z.strictObject({ room: Identifier, events: z.int().min(0).nullable() })).max(100_000),
  /** Room keys' devices of the partner that still hold keys; null where it cannot be counted. */
  device_keys: z.int().min(0).nullable(),
  /** The last moment at which a token issued before the stop is accepted. */
  tokens_live_until: Instant.nullable(),
  third_servers: z.array(z.strictObject({ server: OrganisationName, rooms: z.int().min(1) })).max(100_000),
});

export const CompletionPredicate = z.strictObject({
  schema: z.literal("svc.federation.offboarding_completion.v1"),
  ...REMOVAL_FIELDS,
  trigger: z.enum(TRIGGERS),
  attestations: z.array(Attestation).max(16),
  /** Part 2: the change, and how it would be rolled back. */
  references: z.strictObject({ change: Identifier, rollback: Identifier }),
  revisions: z.array(PlaneRevision).max(64),
  static_tests: z.array(PassedTest).max(256),
  stages: z.array(z.strictObject({ ...PLACE, statement: Sha256Digest })).max(RECORD_STAGES_MAX),
  /** Every item of every stage, ascending. */
  evidence: z.array(Sha256Digest).max(RECORD_EVIDENCE_MAX),
  duties: Duties,
  residual: Residual,
  out_of_reach: z.array(OutOfReachEntry).max(100_000),
  readmission: z.strictObject({ possible: z.boolean(), owner: Word.nullable(), conditions: Words }),
  completed_at: Instant,
});
export type CompletionPredicate = z.output<typeof CompletionPredicate>;
export const CompletionStatement = statementOf(COMPLETION_PREDICATE_TYPE, CompletionPredicate);
export type CompletionStatement = z.output<typeof CompletionStatement>;

/** Subjects are computed from what the predicate names, so that tools that know only in-toto see every digest. */
const subject = (name: string, digest: string) => ({ name, digest: { sha256: hexOfDigest(digest) } });

export function subjectsOf({ evidence, render = null, revisions = [], stages = [] }: Naming): Subject[] {
  return [
    ...evidence.map((digest) => subject(`evidence/${hexOfDigest(digest)}`, digest)),
    ...(render === null ? [] : [subject("render", render)]),
    ...revisions.map((one) => subject(`render/${one.organisation}/${one.plane}`, one.render)),
    ...stages.map((one) => subject(`stage/${one.organisation}/${one.stage}`, one.statement)),
  ];
}

/** Reads a predicate as a statement of its kind, in which all else follows from it. */
export function stateBy<T>(kind: z.ZodType<T>, predicate: StagePredicate | CompletionPredicate) {
  const predicateType = "stage" in predicate ? STAGE_PREDICATE_TYPE : COMPLETION_PREDICATE_TYPE;
  return kind.safeParse({ _type: STATEMENT_TYPE, subject: subjectsOf(predicate), predicateType, predicate });
}

/** What the predicate of a stage or of the completion names. */
type Naming = Pick<StagePredicate, "evidence"> &
  Partial<Pick<StagePredicate, "render"> & Pick<CompletionPredicate, "revisions" | "stages">>;

export const RecordFile = z.strictObject({
  schema: z.literal("svc.federation.offboarding_record.v1"),
  completion: DsseEnvelope,
  /** Stage by stage, the remover's statement first. */
  stages: z.array(DsseEnvelope).max(RECORD_STAGES_MAX),
  evidence: z.array(EvidenceItem).max(RECORD_EVIDENCE_MAX),
});
export type RecordFile = z.output<typeof RecordFile>;

export const fileText = (value: unknown): string => `${canonicalize(value as Json)}\n`;

export const ExchangeFile = z.strictObject({
  schema: z.literal("svc.federation.offboarding_exchange.v1"),
  run: RunId,
  from: OrganisationName,
  /** DSSE envelopes: six stages of each organisation, and the completion; each that comes is evaluated. */
  envelopes: z.array(DsseEnvelope).max(2 * STAGE_NAMES.length + 1),
  evidence: z.array(EvidenceItem).max(RECORD_EVIDENCE_MAX),
});
export type ExchangeFile = z.output<typeof ExchangeFile>;
