// A commit that this machine itself makes on the organisation's branch: an act, a stage, a report. Invariants: one
// change of this machine at a time; the branch moves from the commit that was built on, or not at all; it never
// moves to a commit that the reconciler would refuse for want of a signature.
import type { Clock } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { Repository, Revision } from "../repository/repository.ts";
import { canReadSigners, type SigningPolicy, unsignedAmong } from "../repository/signatures.ts";
import { type CommitAuthor, type NewCommit, writeCommit } from "../repository/write-commit.ts";
import type { StateFolder } from "../state/folder.ts";

const ATTEMPTS_MAX = 50;

export interface BranchContext {
  readonly repository: Repository;
  readonly state: StateFolder;
  readonly clock: Clock;
  readonly author: CommitAuthor;
  readonly signingKeyFile?: string | undefined;
  /** Which commits must be signed, and by whom; absent: any commit is accepted. */
  readonly signing?: SigningPolicy | undefined;
  /** Called once, when another change of this machine is waited for. */
  readonly onWait?: () => void;
}

interface BranchChange extends Pick<NewCommit, "changes" | "message"> {
  /** What is built on: the branch's head, unless that is set aside. */
  readonly parent: Revision;
  /**
   * A head of the branch that is refused. It is left out by a merge that keeps the parent's tree, so that the branch
   * does not go back and none of its commits needs a signature.
   */
  readonly setAside?: Revision | undefined;
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
  const tryAll = async () => {
    for (let attempts = 0; attempts < ATTEMPTS_MAX; attempts++) {
      const result = await attempt();
      if (result !== undefined) return result;
    }
    throw new DrawbridgeError(
      "repository_unusable",
      "the branch moved at every attempt; nothing was changed",
      { hint: "See who commits to it so often, and run the command again." },
    );
  };
  return context.state.locked("commit", context.clock, tryAll, context.onWait);
}

/**
 * Commits on top of the branch's head; to be called within `untilCommitted`.
 * @returns undefined when the branch moved meanwhile; then nothing has changed
 * @throws DrawbridgeError `config_invalid` when the commit would be refused, `repository_unusable`; nothing has
 *   changed then either
 */
export async function commitToBranch(
  context: BranchContext,
  { parent, setAside, changes, message, reason, intend }: BranchChange,
): Promise<Revision | undefined> {
  const { repository, clock, author, signingKeyFile } = context;
  const common = { at: clock.now(), author, signingKeyFile };
  const base =
    setAside === undefined
      ? parent
      : await writeCommit(repository, {
          ...{ ...common, parents: [parent, setAside], changes: new Map() },
          message: `Leave out what was refused since ${parent}\n`,
        });
  const revision = await writeCommit(repository, { ...common, parents: [base], changes, message });
  await requireAccepted(context, revision);
  intend?.(revision);
  return (await repository.advance(setAside ?? parent, revision, reason)) ? revision : undefined;
}

/** A commit without an allowed signature would be a head that is refused, and keep everything else out as well. */
async function requireAccepted(
  { repository, signingKeyFile, signing }: BranchContext,
  revision: Revision,
): Promise<void> {
  if (signing === undefined || (await unsignedAmong(repository, [revision], signing)).length === 0) return;
  const what = !canReadSigners(signing)
    ? "that file cannot be read"
    : signingKeyFile === undefined
      ? "repository.signingKeyFile is not set"
      : "the key of repository.signingKeyFile is not among them";
  throw new DrawbridgeError(
    "config_invalid",
    `only commits signed by a key of ${signing.allowedSignersFile} are accepted, and ${what}; nothing was changed`,
    {
      hint: "Name a private key in `repository.signingKeyFile` whose public half stands in `repository.allowedSignersFile`, and run the command again.",
    },
  );
}
