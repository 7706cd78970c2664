// One change of the registry in one commit: the files, everything that they render, and a record of it. Every commit of
// federation control that changes the registry is made here.
// Invariants: all of it or nothing; the result is a valid registry, or every problem is reported and nothing changes;
// nobody else commits meanwhile.
import { editYaml, type YamlEdit } from "../../runtime/edit-yaml.ts";
import type { HeadContext } from "../reconcile/accept-head.ts";
import { renderedChanges } from "../reconcile/desired-state.ts";
import { loadRegistry, type RegistryFile } from "../registry/load.ts";
import type { Registry } from "../registry/partner.ts";
import type { Revision } from "../repository/repository.ts";
import { type ChangeBase, changeBase, type OnBadHead } from "./commit-base.ts";
import { type BranchContext, commitToBranch, untilCommitted } from "./commit-to-branch.ts";

export interface CommitContext extends HeadContext, BranchContext {}

export interface Proposal {
  /** Files of the registry by path, as they are to be. */
  readonly edits: ReadonlyMap<string, string>;
  /** Further files of the commit, such as a record. */
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

/** A proposal worked out: what the commit would hold. */
export interface Change {
  readonly before: ChangeBase;
  readonly after: Registry;
  /** Every path that differs; null where a file goes. */
  readonly changes: ReadonlyMap<string, string | null>;
}

export interface ChangeOptions {
  /** Said in the branch's log. */
  readonly reason: string;
  /** `refuse` when absent. */
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
  /** Undefined when nothing was to be done. */
  readonly change: Change | undefined;
  readonly base: ChangeBase;
}

/**
 * @throws DrawbridgeError `head_refused`, `config_invalid`, `repository_unusable`; RegistryError; and what `propose`
 *   and `examine` throw
 */
export function commitChange(context: CommitContext, options: ChangeOptions): Promise<Committed> {
  return untilCommitted(context, () => tryChange(context, options));
}

/** Undefined when the branch moved meanwhile. */
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

/**
 * What a change of files of the registry makes of everything rendered.
 * @throws RegistryError
 */
export async function changesOf(
  { cache }: Pick<CommitContext, "cache">,
  before: ChangeBase,
  edits: ReadonlyMap<string, string>,
): Promise<Change> {
  const after = loadRegistry(new Map<string, RegistryFile>([...before.files.registry, ...edits]), { cache });
  const changes = renderedChanges(before.tree, before.files, after);
  for (const path of before.setAside?.paths ?? []) {
    changes.set(path, before.files.registry.has(path) ? await before.textOf(path) : null);
  }
  for (const [path, text] of edits) if ((await before.textOf(path)) !== text) changes.set(path, text);
  return { before, after, changes };
}
