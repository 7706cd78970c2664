// A commit that this machine itself makes on the organisation's branch: an act, a stage, a report. Invariants: one
// change of this machine at a time; the branch moves from the commit that was built on, or not at all; it never
// moves to a commit that the reconciler would refuse for want of a signature.
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import {
  type CommitAuthor,
  canReadSigners,
  isSignedByAllowed,
  type NewCommit,
  writeCommit,
} from "../repository/commit.ts";
import type { Repository, Revision } from "../repository/repository.ts";
import type { StateFolder } from "../state/folder.ts";

const ATTEMPTS_MAX = 50;

export interface BranchContext {
  readonly repository: Repository;
  readonly state: StateFolder;
  readonly clock: Clock;
  readonly author: CommitAuthor;
  readonly signingKeyFile?: string | undefined;
  /** OpenSSH allowed signers; absent: any commit is accepted. */
  readonly allowedSignersFile?: string | undefined;
  /** Called once, when another change of this machine is waited for. */
  readonly onWait?: () => void;
}

interface BranchChange extends Pick<NewCommit, "parents" | "base" | "changes" | "message"> {
  /** What the branch's log says. */
  readonly reason: string;
  /** Called with the commit before the branch moves to it, so that a kill in between can be understood. */
  readonly intend?: ((revision: Revision) => void) | undefined;
}

/**
 * Tries until an attempt is not overtaken by somebody else's commit.
 * @param attempt undefined when the branch moved meanwhile
 * @throws DrawbridgeError `repository_unusable`
 */
export async function untilCommitted<Result>(
  context: BranchContext,
  attempt: () => Promise<Result | undefined>,
): Promise<Result> {
  const lock = await context.state.lock("commit", context.clock, context.onWait);
  try {
    for (let attempts = 0; attempts < ATTEMPTS_MAX; attempts++) {
      const result = await attempt();
      if (result !== undefined) return result;
    }
  } finally {
    await lock.release();
  }
  throw new DrawbridgeError("repository_unusable", "the branch moved at every attempt; nothing was changed", {
    hint: "See who commits to it so often, and run the command again.",
  });
}

/**
 * Commits on top of the first parent, which must be the branch's head; to be called within `untilCommitted`.
 * @returns undefined when the branch moved meanwhile; then nothing has changed
 * @throws DrawbridgeError `config_invalid` when the commit would be refused, `repository_unusable`; nothing has
 *   changed then either
 */
export async function commitToBranch(
  context: BranchContext,
  { reason, intend, ...change }: BranchChange,
): Promise<Revision | undefined> {
  const { repository, clock, author, signingKeyFile } = context;
  const revision = await writeCommit(repository, { ...change, at: clock.now(), author, signingKeyFile });
  await requireAccepted(context, revision);
  intend?.(revision);
  return (await repository.advance(change.parents[0], revision, reason)) ? revision : undefined;
}

/** A commit without an allowed signature would be a head that is refused, and keep everything else out as well. */
async function requireAccepted(
  { repository, signingKeyFile, allowedSignersFile }: BranchContext,
  revision: Revision,
): Promise<void> {
  if (allowedSignersFile === undefined) return;
  if (await isSignedByAllowed(repository, revision, allowedSignersFile)) return;
  const what = !canReadSigners(allowedSignersFile)
    ? "that file cannot be read"
    : signingKeyFile === undefined
      ? "repository.signingKeyFile is not set"
      : "the key of repository.signingKeyFile is not among them";
  throw new DrawbridgeError(
    "config_invalid",
    `only commits signed by a key of ${allowedSignersFile} are accepted, and ${what}; nothing was changed`,
    {
      hint: "Name a private key in `repository.signingKeyFile` whose public half stands in `repository.allowedSignersFile`, and run the command again.",
    },
  );
}
