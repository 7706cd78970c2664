// Whether the branch's head may be accepted, and the state by which the planes are judged.
// Invariant: a head that is not wholly good is refused as a whole; what was accepted before stays in force, and the
// reason is recorded.
import { DrawbridgeError, undefinedFor } from "../../domain/errors.ts";
import { printableLine } from "../../domain/printable.ts";
import { CONTAINMENTS, READMISSIONS, restoredBy } from "../registry/committed-records.ts";
import { RegistryError } from "../registry/problems.ts";
import {
  endedContainments,
  lostRetirement,
  type Retirement,
  readmitted,
  retirementsIn,
  withoutReadmission,
} from "../registry/retired-identities-checks.ts";
import { canReadSigners, refusedCommits, unsignedAmong } from "../repository/commit-signatures.ts";
import { GitBounds } from "../repository/git.ts";
import type { Revision } from "../repository/repository.ts";
import { type Refusal, readHead } from "../state/plane-records.ts";
import type { Federation } from "./context.ts";
import {
  type DesiredState,
  desiredState,
  type RevisionFiles,
  readRevision,
  registryOf,
  renderedChanges,
  stateAt,
} from "./desired-state.ts";

export type Assessment =
  | { readonly good: true; readonly desired: DesiredState }
  | { readonly good: false; readonly refusal: Refusal };

/** Also says whether a head is accepted that does not come after the one accepted last. */
export type HeadContext = Federation & { readonly allowNonFastForward?: boolean };

/** Why a revision is refused for where it comes from: its place in the branch, or a commit's signature or date. */
export async function assessOrigin(revision: Revision, context: HeadContext): Promise<Refusal | undefined> {
  return refusalOfOrigin(revision, context).catch((error: unknown) => tooLarge(revision, error).refusal);
}

async function refusalOfOrigin(revision: Revision, context: HeadContext): Promise<Refusal | undefined> {
  const { repository, state, clock, signing, allowNonFastForward = false } = context;
  const accepted = readHead(state).accepted?.revision;
  if (accepted !== undefined && !allowNonFastForward && !(await repository.isAncestor(accepted, revision))) {
    return {
      reason: "not_descendant",
      detail: `${revision} does not come after ${accepted}, which was accepted before`,
      hint: "Put the branch back on top of it; or, if the rewind is meant, run drawbridge reconcile --once --allow-non-fast-forward.",
    };
  }
  if (signing === undefined) return undefined;
  if (!canReadSigners(signing)) {
    return {
      reason: "signature_not_allowed",
      detail: `${signing.allowedSignersFile} cannot be read, so that no signature can be checked`,
      hint: "Put the allowed signers file there, readable by this user, or correct `repository.allowedSignersFile`.",
    };
  }
  const [bad, ...more] = await refusedCommits(repository, revision, signing, accepted, clock.now());
  if (bad === undefined) return undefined;
  const others = more.length === 0 ? "" : `; at least ${more.length} more that it brings are refused as well`;
  return {
    reason: bad.why === "unsigned" ? "signature_not_allowed" : "date_not_possible",
    detail: `${bad.revision} ${WHY_REFUSED[bad.why]}${others}`,
    hint:
      accepted === undefined
        ? "Look at who made it (git log --show-signature). Commits that are older than the signing of commits are trusted by `repository.trustedBase`."
        : `Look at who made it (git log --show-signature). If it is meant, sign it anew (git rebase --no-ff --gpg-sign ${accepted}, then git push --force); if not, leave it out by a signed merge on ${accepted} (git merge -s ours --gpg-sign).`,
  };
}

const WHY_REFUSED = {
  unsigned: "is not signed by a key that the allowed signers file lists",
  backdated: "is dated before a commit that it is based on",
  postdated: "is dated in the future",
} as const;

/** Judges a revision, undefined where there is no branch. @throws DrawbridgeError `repository_unusable` */
export async function assess(revision: Revision | undefined, context: HeadContext): Promise<Assessment> {
  const { path, branch } = context.repository;
  if (revision === undefined) return refused("branch_missing", `${path} has no branch ${branch}`);
  const refusal = await assessOrigin(revision, context);
  if (refusal !== undefined) return { good: false, refusal };
  try {
    const files = await readRevision(context.repository, revision, context.cache);
    return await assessInPlace(revision, files, context);
  } catch (error) {
    return tooLarge(revision, error);
  }
}

/** Judges other files in a revision's place, whoever has put that there. @throws DrawbridgeError `repository_unusable` */
export async function assessInPlace(revision: Revision, files: RevisionFiles, context: HeadContext) {
  return assessFiles(revision, files, context, await retiredBefore(revision, context));
}

/** What was retired by the revision accepted last, and by each one since that would have been accepted by a pass. */
async function retiredBefore(revision: Revision, context: HeadContext): Promise<readonly Retirement[]> {
  const { repository, state, cache, clock, signing, allowNonFastForward = false } = context;
  const accepted = readHead(state).accepted?.revision;
  if (accepted === revision) return [];
  const before: Retirement[] = [];
  try {
    if (accepted !== undefined) {
      const registry = registryOf(await readRevision(repository, accepted, cache), cache);
      before.push(...retirementsIn(registry));
    }
  } catch (error) {
    // A meant rewind may be to a repository that does not have the earlier revision.
    if (!allowNonFastForward || !(error instanceof DrawbridgeError)) throw error;
  }
  const since = accepted ?? signing?.trustedBase;
  const onBranch = await repository.changesSince(since, revision);
  // Whether the branch stood at a commit that a merge brings is known only from what was accepted.
  const changes = new Map(onBranch);
  if (accepted === undefined && signing !== undefined) {
    const merged = await repository.changesSince(since, revision, "merged");
    const others = [...merged.keys()].filter((commit) => !onBranch.has(commit));
    // Nothing is read that a stranger wrote: it may be of any size, and no file.
    const unsigned = new Set(await unsignedAmong(repository, others, signing));
    for (const [commit, written] of merged) if (!unsigned.has(commit)) changes.set(commit, written);
  }
  const texts = await repository.blobs([...changes.values()].flat().map(({ blobId }) => blobId));
  for (const [commit, written] of changes) {
    const retired = written.filter(({ blobId }) => texts.get(blobId)?.includes("retired"));
    const retiring = new Set(retired.map(({ path }) => path));
    if (commit === revision || retiring.size === 0) continue;
    const files = await readRevision(repository, commit, cache);
    const assessment = await assessFiles(commit, files, context, []);
    if (!assessment.good) continue;
    if (!onBranch.has(commit) && signing !== undefined) {
      const refused = await refusedCommits(repository, commit, signing, undefined, clock.now());
      if (refused.length > 0) continue;
    }
    const all = retirementsIn(assessment.desired.registry);
    before.push(...all.filter(({ file }) => retiring.has(file)));
  }
  return before;
}

async function assessFiles(
  revision: Revision,
  files: RevisionFiles,
  context: Federation,
  before: readonly Retirement[],
): Promise<Assessment> {
  const { repository, cache } = context;
  try {
    const registry = registryOf(files, cache);
    const [lost] = lostRetirement(before, registry);
    if (lost !== undefined)
      return refused("retirement_withdrawn", `${lost} no longer retires everything that it did before`);
    const ended = endedContainments(before, registry);
    const restored = ended.length === 0 ? new Set() : await restoredSinceAccepted(revision, context);
    for (const { file, serverName, hasEntry } of ended) {
      if (hasEntry && restored.has(serverName)) continue;
      const what = hasEntry ? "no restore of it is recorded" : "it has no entry any more";
      return refused("containment_withdrawn", `${file} contained a partner, and ${what}`);
    }
    const records =
      readmitted(registry).length === 0 ? [] : (await repository.read(revision, [READMISSIONS])).values();
    const [unrecorded] = withoutReadmission(registry, records);
    if (unrecorded !== undefined) {
      const opens = `${unrecorded} opens a plane to a partner that was removed`;
      return refused("readmission_missing", `${opens}, and no re-admission with its new client is recorded`);
    }
    const [path] = [...renderedChanges(revision, files, registry).keys()].sort();
    if (path === undefined) return { good: true, desired: desiredState(revision, files, registry) };
    return refused("render_differs", `${printableLine(path)} is not what the registry renders`);
  } catch (error) {
    if (!(error instanceof DrawbridgeError) || error.code !== "config_invalid") throw error;
    const [first, ...others] = error instanceof RegistryError ? error.problems : [];
    const where = first === undefined ? "" : `: ${printableLine(first.file)}:${first.line} [${first.rule}]`;
    const more = others.length === 0 ? "" : ` and ${others.length} more`;
    return refused("registry_invalid", `the registry has problems${where}${more}`);
  }
}

/** The server names whose containment the last of the records ends that the revision accepted last does not hold. */
async function restoredSinceAccepted(revision: Revision, { repository, state }: Federation) {
  const accepted = readHead(state).accepted?.revision;
  const recordsAt = (at: Revision) => repository.read(at, [CONTAINMENTS, READMISSIONS]);
  const known = accepted === undefined ? new Map() : await recordsAt(accepted);
  const since = [...(await recordsAt(revision))].filter(([path, text]) => known.get(path) !== text);
  return restoredBy(since.map(([, text]) => text));
}

const HINTS = {
  branch_missing: "Push the branch, or correct `repository.branch`.",
  too_large:
    "See how many commits it brings, and what it holds below registry, rendered and kubernetes; leave it out by a merge (git merge -s ours).",
  retirement_withdrawn:
    "Put its `retired` list back, or the whole entry if it was deleted; a removed partner comes back by drawbridge readmission open.",
  containment_withdrawn:
    "Put the entry back, contained: a containment ends by drawbridge federation restore, which commits the record.",
  readmission_missing:
    "Close its planes again, and re-admit it: drawbridge readmission open. The record is committed with the new client.",
  render_differs: "Run drawbridge federation render in a work tree and commit what it writes.",
  registry_invalid: "Run drawbridge federation check in a work tree, correct what it names, and commit.",
} as const;

function tooLarge(revision: Revision, error: unknown) {
  if (error instanceof GitBounds) return refused("too_large", `${revision}: ${error.message}`);
  throw error;
}

function refused(reason: keyof typeof HINTS, detail: string) {
  return { good: false, refusal: { reason, detail, hint: HINTS[reason] } } as const;
}

/** Judges the head against what was accepted before. @throws DrawbridgeError `repository_unusable`, also without a branch */
export async function assessBranch(context: Federation) {
  const head = await context.repository.requireHead();
  const accepted = readHead(context.state).accepted?.revision;
  return { head, accepted, assessment: await assess(head, context) };
}

/** What a head that is not good means: it is refused, or left out of what goes on from what was accepted last. */
export type OnBadHead = "refuse" | "workaround";

/** The head's state; where it is refused, the last good one's and why, if that is to do. @throws DrawbridgeError `head_refused` */
export async function acceptedState(context: Federation, onBadHead: OnBadHead = "workaround") {
  const { repository } = context;
  const { accepted, assessment } = await assessBranch(context);
  if (assessment.good) return { repository, desired: assessment.desired, refusal: undefined };
  const { refusal } = assessment;
  if (accepted !== undefined && onBadHead === "workaround") {
    const desired = await stateAt(context, accepted).catch(undefinedFor("repository_unusable"));
    if (desired !== undefined) return { repository, desired, refusal };
  }
  const { detail, hint } = refusal;
  throw new DrawbridgeError("head_refused", `${detail}; nothing was changed`, { hint });
}
