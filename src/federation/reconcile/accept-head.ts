// Whether the branch's head may be accepted, and the state by which the planes are judged.
// Invariant: a head that is not wholly good is refused as a whole; what was accepted before stays in force, and the
// reason is recorded.
import { DrawbridgeError } from "../../domain/errors.ts";
import { RegistryError } from "../registry/problems.ts";
import { canReadSigners, isSignedByAllowed } from "../repository/commit.ts";
import type { Repository, Revision } from "../repository/repository.ts";
import type { PartnerCache } from "../state/partner-cache.ts";
import { type RefusalReason, readHead } from "../state/plane-records.ts";
import type { ReconcileContext } from "./context.ts";
import {
  type DesiredState,
  desiredState,
  firstRenderedDifference,
  type RevisionFiles,
  readRevision,
  registryOf,
} from "./desired-state.ts";

export interface Refusal {
  readonly reason: RefusalReason;
  /** For a person; content-free. */
  readonly detail: string;
  readonly hint: string;
}

export type Assessment =
  | { readonly good: true; readonly desired: DesiredState }
  | ({ readonly good: false } & Refusal);

export interface AssessOptions {
  readonly repository: Repository;
  readonly cache: PartnerCache;
  /** The last revision that was found good. */
  readonly accepted: Revision | undefined;
  readonly allowedSignersFile: string | undefined;
  readonly allowNonFastForward: boolean;
}

/** Whether somebody who may change the branch has put this revision there, on top of what was accepted. */
export async function assessOrigin(revision: Revision, options: AssessOptions): Promise<Refusal | undefined> {
  const { repository, accepted, allowedSignersFile, allowNonFastForward } = options;
  if (accepted !== undefined && !allowNonFastForward && !(await repository.isAncestor(accepted, revision))) {
    return {
      reason: "not_descendant",
      detail: `${revision} does not come after ${accepted}, which was accepted before`,
      hint: "Put the branch back on top of it; or, if the rewind is meant, run drawbridge reconcile --once --allow-non-fast-forward.",
    };
  }
  if (
    allowedSignersFile !== undefined &&
    !(await isSignedByAllowed(repository, revision, allowedSignersFile))
  ) {
    if (!canReadSigners(allowedSignersFile)) {
      return {
        reason: "signature_not_allowed",
        detail: `${allowedSignersFile} cannot be read, so that no signature can be checked`,
        hint: "Put the allowed signers file there, readable by this user, or correct `repository.allowedSignersFile`.",
      };
    }
    return {
      reason: "signature_not_allowed",
      detail: `${revision} is not signed by a key that the allowed signers file lists`,
      hint: "Look at who made it (git log --show-signature); sign a commit on top of it with an allowed key.",
    };
  }
  return undefined;
}

/**
 * Judges a revision as a whole.
 * @throws DrawbridgeError `repository_unusable` when it cannot be read
 */
export async function assess(revision: Revision, options: AssessOptions): Promise<Assessment> {
  const refusal = await assessOrigin(revision, options);
  if (refusal !== undefined) return { good: false, ...refusal };
  const files = await readRevision(options.repository, revision, options.cache);
  return assessFiles(revision, files, options.cache);
}

function assessFiles(revision: Revision, files: RevisionFiles, cache: PartnerCache): Assessment {
  try {
    const registry = registryOf(files, cache);
    const path = firstRenderedDifference(files, registry);
    if (path === undefined) return { good: true, desired: desiredState(revision, files, registry) };
    return {
      good: false,
      reason: "render_differs",
      detail: `${path} is not what the registry renders`,
      hint: "Run drawbridge federation render in a work tree and commit what it writes.",
    };
  } catch (error) {
    if (!(error instanceof DrawbridgeError) || error.code !== "config_invalid") throw error;
    const first = error instanceof RegistryError ? error.problems[0] : undefined;
    const where = first === undefined ? "" : `: ${first.file}:${first.line} [${first.rule}]`;
    const more =
      error instanceof RegistryError && error.problems.length > 1
        ? ` and ${error.problems.length - 1} more`
        : "";
    return {
      good: false,
      reason: "registry_invalid",
      detail: `the registry has problems${where}${more}`,
      hint: "Run drawbridge federation check in a work tree, correct what it names, and commit.",
    };
  }
}

/** What the branch's head is read and judged with. */
export type HeadContext = Pick<ReconcileContext, "repository" | "state" | "cache" | "allowedSignersFile">;

export interface AssessedBranch {
  readonly head: Revision;
  /** The last revision that was accepted; undefined when none ever was. */
  readonly accepted: Revision | undefined;
  readonly assessment: Assessment;
}

/**
 * Judges the branch's head against what was accepted before.
 * @throws DrawbridgeError `repository_unusable`, also when there is no branch
 */
export async function assessBranch(context: HeadContext): Promise<AssessedBranch> {
  const { repository, cache, state, allowedSignersFile } = context;
  const head = await repository.requireHead();
  const accepted = readHead(state).accepted?.revision;
  const options = { repository, cache, accepted, allowedSignersFile, allowNonFastForward: false };
  return { head, accepted, assessment: await assess(head, options) };
}

/** The state by which real parts are judged, and why that is not the head's. */
export interface AcceptedState extends CurrentState {
  readonly refusal: Refusal | undefined;
}

/**
 * The head's state if it may be accepted, else that of the last good revision: probes are judged by what the
 * reconciler applies, never by what it refuses.
 * @throws DrawbridgeError `head_refused` when nothing was ever accepted; `repository_unusable`
 */
export async function acceptedState(context: HeadContext): Promise<AcceptedState> {
  const { repository, cache } = context;
  const { accepted, assessment } = await assessBranch(context);
  if (assessment.good) return { repository, desired: assessment.desired, refusal: undefined };
  const { reason, detail, hint } = assessment;
  if (accepted === undefined) throw new DrawbridgeError("head_refused", detail, { hint });
  const files = await readRevision(repository, accepted, cache);
  const desired = desiredState(accepted, files, registryOf(files, cache));
  return { repository, desired, refusal: { reason, detail, hint } };
}

export interface CurrentState {
  readonly repository: Repository;
  readonly desired: DesiredState;
}

/** @throws DrawbridgeError `repository_unusable`; RegistryError */
export async function currentState({
  repository,
  cache,
}: Pick<ReconcileContext, "repository" | "cache">): Promise<CurrentState> {
  const revision = await repository.requireHead();
  const files = await readRevision(repository, revision, cache);
  return { repository, desired: desiredState(revision, files, registryOf(files, cache)) };
}
