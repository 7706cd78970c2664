// Every commit of federation control on the organisation's branch: a change of the registry with all that it renders and
// a record of it, or a report. Invariants: all of it or nothing; the result is a valid registry, or every problem is
// reported and nothing changes; one change of this machine at a time; the branch moves from the commit that was built on,
// or not at all; it never moves to a commit that the reconciler would refuse for want of a signature.
import { DrawbridgeError } from "../../domain/errors.ts";
import { editYaml, type YamlEdit } from "../../runtime/edit-yaml.ts";
import type { HeadContext } from "../reconcile/accept-head.ts";
import type { Federation } from "../reconcile/context.ts";
import { renderedChanges } from "../reconcile/desired-state.ts";
import { loadRegistry, type RegistryFile } from "../registry/load.ts";
import type { Registry } from "../registry/partner.ts";
import { type NewCommit, type Revision, writeCommit } from "../repository/repository.ts";
import { canReadSigners, unsignedAmong } from "../repository/signatures.ts";
import { type ChangeBase, changeBase, type OnBadHead } from "./commit-base.ts";

export type CommitContext = HeadContext & Pick<Federation, "author" | "signingKeyFile" | "onWait">;

export interface Proposal {
  readonly edits: ReadonlyMap<string, string>;
  readonly records?: ReadonlyMap<string, string>;
  readonly message: string;
}

/** The proposal to edit one file of the registry. @throws DrawbridgeError `internal` when it is not YAML */
export async function proposeEdit(
  base: ChangeBase,
  file: string,
  edits: readonly YamlEdit[],
  message: string,
): Promise<Proposal> {
  return { edits: new Map([[file, editYaml(await base.textOf(file), edits)]]), message };
}

export interface Change {
  readonly before: ChangeBase;
  readonly after: Registry;
  /** Every path that differs; null where a file goes. */
  readonly changes: ReadonlyMap<string, string | null>;
}

export interface ChangeOptions {
  readonly reason: string;
  readonly onBadHead?: OnBadHead;
  /** Undefined: nothing is to be done on this base. May be called again on another one; throws to have nothing happen. */
  readonly propose: (base: ChangeBase) => Promise<Proposal | undefined>;
  /** Checks what would be committed, and throws to have nothing happen. */
  readonly examine?: (change: Change) => void;
  /** Called with the commit before the branch moves to it, so that a kill in between can be understood. */
  readonly intend?: ((revision: Revision, change: Change) => void) | undefined;
}

export interface Committed {
  /** The commit; the branch's head where nothing was to be done. */
  readonly revision: Revision;
  readonly change: Change | undefined;
  readonly base: ChangeBase;
}

/** @throws DrawbridgeError `head_refused`, `config_invalid`, `repository_unusable`; RegistryError; as the options do */
export function commitChange(context: CommitContext, options: ChangeOptions): Promise<Committed> {
  return untilCommitted(context, () => tryChange(context, options));
}

async function tryChange(
  context: CommitContext,
  { propose, examine, intend, reason, onBadHead }: ChangeOptions,
): Promise<Committed | undefined> {
  const base = await changeBase(context, onBadHead);
  const proposal = await propose(base);
  if (proposal === undefined) return { revision: base.head, change: undefined, base };
  const change = await changesOf(context, base, proposal.edits);
  examine?.(change);
  const revision = await commitToBranch(context, {
    parent: base.tree,
    setAside: base.tree === base.head ? undefined : base.head,
    changes: new Map([...change.changes, ...(proposal.records ?? [])]),
    message: proposal.message,
    reason,
    intend: (revision) => intend?.(revision, change),
  });
  return revision === undefined ? undefined : { revision, change, base };
}

/** What a change of files of the registry makes of everything rendered. @throws RegistryError */
export async function changesOf(
  { cache }: Pick<CommitContext, "cache">,
  before: ChangeBase,
  edits: ReadonlyMap<string, string>,
): Promise<Change> {
  const files = new Map<string, RegistryFile>([...before.files.registry, ...edits]);
  const after = loadRegistry(files, cache);
  const changes = renderedChanges(before.tree, before.files, after);
  for (const path of before.setAside?.paths ?? []) {
    changes.set(path, before.files.registry.has(path) ? await before.textOf(path) : null);
  }
  for (const [path, text] of edits) if ((await before.textOf(path)) !== text) changes.set(path, text);
  return { before, after, changes };
}

const ATTEMPTS_MAX = 50;

interface BranchChange extends Pick<NewCommit, "changes" | "message"> {
  readonly parent: Revision;
  /** A refused head, which a merge leaves out: the branch does not go back, and none of its commits is signed for. */
  readonly setAside?: Revision | undefined;
  readonly reason: string;
  readonly intend?: (revision: Revision) => void;
}

/** Tries until no other commit overtakes the attempt, which is then undefined. @throws DrawbridgeError `repository_unusable` */
export async function untilCommitted<Result>(
  context: CommitContext,
  attempt: () => Promise<Result | undefined>,
): Promise<Result> {
  const tryAll = async () => {
    for (let attempts = 0; attempts < ATTEMPTS_MAX; attempts++) {
      const result = await attempt();
      if (result !== undefined) return result;
    }
    const what = "the branch moved at every attempt; nothing was changed";
    const hint = "See who commits to it so often, and run the command again.";
    throw new DrawbridgeError("repository_unusable", what, { hint });
  };
  return context.state.locked("commit", context.clock, tryAll, context.onWait);
}

/**
 * Commits on top of the branch's head, within `untilCommitted`; undefined, and no change, when the branch has moved.
 * @throws DrawbridgeError `config_invalid` when the commit would be refused, `repository_unusable`; nothing has changed
 */
export async function commitToBranch(
  context: CommitContext,
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
  { repository, signingKeyFile, signing }: CommitContext,
  revision: Revision,
): Promise<void> {
  if (signing === undefined || (await unsignedAmong(repository, [revision], signing)).length === 0) return;
  const what = !canReadSigners(signing)
    ? "that file cannot be read"
    : signingKeyFile === undefined
      ? "repository.signingKeyFile is not set"
      : "the key of repository.signingKeyFile is not among them";
  const accepted = `only commits signed by a key of ${signing.allowedSignersFile} are accepted`;
  throw new DrawbridgeError("config_invalid", `${accepted}, and ${what}; nothing was changed`, {
    hint: "Name a private key in `repository.signingKeyFile` whose public half stands in `repository.allowedSignersFile`, and run the command again.",
  });
}
