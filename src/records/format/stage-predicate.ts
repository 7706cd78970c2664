// What an organisation states about one stage of a removal, on its own deployment.
// Published as docs/reference/schemas/svc.federation.offboarding_stage.v1.schema.json.
import { z } from "zod";
import { Digest, GitRevision, Instant, OrganisationName, Word } from "./fields.ts";
import { OutOfReachEntry, REMOVAL_FIELDS } from "./predicate-fields.ts";
import { STAGE_NAMES } from "./stages.ts";
import { statementOf } from "./statement.ts";

export const STAGE_PREDICATE_TYPE = "urn:drawbridge:offboarding:stage:v1";

export const ExitCondition = z.strictObject({
  condition: Word,
  /** `not_applicable`: this organisation has no such thing, which the evidence shows. */
  verdict: z.enum(["met", "not_applicable"]),
  /** Digests of the items that show it. */
  evidence: z.array(Digest).min(1).max(10_000),
});
export type ExitCondition = z.output<typeof ExitCondition>;

export const StagePredicate = z.strictObject({
  schema: z.literal("svc.federation.offboarding_stage.v1"),
  ...REMOVAL_FIELDS,
  /** Whose part it is: the remover or the partner. */
  organisation: OrganisationName,
  stage: z.enum(STAGE_NAMES),
  position: z.int().min(1).max(STAGE_NAMES.length),
  /** Of the organisation's control repository; null for duties, and where nothing applies. */
  revision: GitRevision.nullable(),
  /** Digest over the plane's rendered files at that revision. */
  render: Digest.nullable(),
  exit: z.array(ExitCondition).min(1).max(64),
  outOfReach: z.array(OutOfReachEntry).max(10_000),
  /** What is only attested, such as `backups_expire`. */
  attested: z.array(Word).max(256),
  openedAt: Instant,
  closedAt: Instant,
  /** Digest of the same organisation's statement about the stage before; null for the first. */
  previous: Digest.nullable(),
});
export type StagePredicate = z.output<typeof StagePredicate>;

export const StageStatement = statementOf(STAGE_PREDICATE_TYPE, StagePredicate);
export type StageStatement = z.output<typeof StageStatement>;
