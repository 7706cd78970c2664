// Every commit of federation control on the organisation's branch: a change of the registry with all that it renders and
// a record of it, or a report. Invariants: all of it or nothing; the result is a valid registry, or every problem is
// reported and nothing changes; one change of this machine at a time; the branch moves from the commit that was built on,
// or not at all; it never moves to a commit that the reconciler would refuse for want of a signature.
import { DrawbridgeError } from "../../domain/errors.ts";
import { editYaml, type YamlEdit } from "../../runtime/edit-yaml.ts";
import type { OnBadHead } from "../reconcile/accept-head.ts";
import type { Federation } from "../reconcile/context.ts";
import { renderedChanges } from "../reconcile/desired-state.ts";
import { loadRegistry, type RegistryFile } from "../registry/load.ts";
import { canReadSigners, unsignedAmong } from "../repository/commit-signatures.ts";
import { type NewCommit, type Revision, writeCommit } from "../repository/repository.ts";
import { type ChangeBase, changeBase } from "./change-base.ts";

/** Edits of one file of the registry, if any, and records besides. */
export interface Proposal {
  readonly file?: string;
  readonly edits?: readonly YamlEdit[];
  readonly records?: ReadonlyMap<string, string>;
  readonly message: string;
}

/** `changes`: every path that differs; null where a file goes. */
export type Change = Readonly<Awaited<ReturnType<typeof changesOf>>>;

export interface ChangeOptions {
  readonly reason: string;
  readonly onBadHead?: OnBadHead;
  /** As `changeBase` takes it. */
  readonly about?: string;
  /** Undefined: nothing is to be done on this base. May be called again on another one; throws to have nothing happen. */
  readonly propose: (base: ChangeBase) => Promise<Proposal | undefined> | Proposal | undefined;
  /** Checks what would be committed, and throws to have nothing happen. */
  readonly examine?: (change: Change) => void;
  /** The commit is made, and the branch does not move to it. */
  readonly isRehearsal?: boolean;
  /** Called with the commit before the branch moves to it, so that a kill in between can be understood. */
  readonly intend?: ((revision: Revision, change: Change) => void) | undefined;
}

/** `revision`: the commit; the branch's head where nothing was to be done. */
export type Committed = NonNullable<Awaited<ReturnType<typeof tryChange>>>;

/** @throws DrawbridgeError `head_refused`, `config_invalid`, `repository_unusable`; RegistryError; as the options do */
export const commitChange = (context: Federation, options: ChangeOptions): Promise<Committed> =>
  untilCommitted(context, () => tryChange(context, options));

async function tryChange(
  context: Federation,
  { propose, examine, intend, reason, onBadHead, about, isRehearsal }: ChangeOptions,
) {
  const base = await changeBase(context, onBadHead, about);
  const proposal = await propose(base);
  if (proposal === undefined) return { revision: base.head, change: undefined, base };
  const { file, edits = [], records = [], message } = proposal;
  const edited = file === undefined ? [] : [[file, editYaml(await base.textOf(file), edits)] as const];
  const change = await changesOf(context, base, new Map(edited));
  examine?.(change);
  const revision = await commitToBranch(context, {
    parent: base.tree,
    setAside: base.tree === base.head ? undefined : base.head,
    changes: new Map([...change.changes, ...records]),
    ...{ message, reason, isRehearsal },
    intend: (revision) => intend?.(revision, change),
  });
  return revision === undefined ? undefined : { revision, change, base };
}

/** What a change of files of the registry makes of everything rendered. @throws RegistryError */
export async function changesOf({ cache }: Federation, base: ChangeBase, edits: ReadonlyMap<string, string>) {
  const after = loadRegistry(new Map<string, RegistryFile>([...base.files.registry, ...edits]), cache);
  const changes = renderedChanges(base.tree, base.files, after);
  for (const path of base.setAside?.paths ?? []) {
    changes.set(path, base.files.registry.has(path) ? await base.textOf(path) : null);
  }
  for (const [path, text] of edits) if ((await base.textOf(path)) !== text) changes.set(path, text);
  return { before: base, after, changes };
}

const ATTEMPTS_MAX = 50;

interface BranchChange extends Pick<NewCommit, "changes" | "message"> {
  readonly parent: Revision;
  /** A refused head, which a merge leaves out: the branch does not go back, and none of its commits is signed for. */
  readonly setAside?: Revision | undefined;
  readonly reason: string;
  readonly isRehearsal?: boolean | undefined;
  readonly intend?: (revision: Revision) => void;
}

/** Tries until no other commit overtakes the attempt, which is then undefined. @throws DrawbridgeError `program_failed` */
export async function untilCommitted<T>(context: Federation, attempt: () => Promise<T | undefined>) {
  const tryAll = async () => {
    for (let attempts = 0; attempts < ATTEMPTS_MAX; attempts++) {
      const result = await attempt();
      if (result !== undefined) return result;
    }
    const what = "the branch moved at every attempt; nothing was changed";
    const hint = "See who commits to it so often, and run the command again.";
    throw new DrawbridgeError("program_failed", what, { hint });
  };
  return context.state.locked("commit", context.clock, tryAll, context.onWait);
}

/** Within `untilCommitted`; undefined: the branch moved. @throws DrawbridgeError `config_invalid`, `repository_unusable` */
export async function commitToBranch(
  context: Federation,
  { parent, setAside, changes, message, reason, isRehearsal, intend }: BranchChange,
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
  if (isRehearsal === true) return revision;
  intend?.(revision);
  return (await repository.advance(setAside ?? parent, revision, reason)) ? revision : undefined;
}

/** A commit without an allowed signature would be a head that is refused, and keep everything else out as well. */
async function requireAccepted({ repository, signingKeyFile, signing }: Federation, revision: Revision) {
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
