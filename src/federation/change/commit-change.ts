// Every commit of federation control on the organisation's branch: a change of the registry with all that it renders and
// a record of it, or a report. Invariants: all of it or nothing; the result is a valid registry, or every problem is
// reported and nothing changes; one change of this machine at a time; the branch moves from the commit that was built on,
// or not at all; it never moves to a commit that the reconciler would refuse for want of a signature.
import { DrawbridgeError, undefinedFor } from "../../domain/errors.ts";
import { printableLine } from "../../domain/printable.ts";
import { editYaml, type YamlEdit } from "../../runtime/edit-yaml.ts";
import { assessBranch, assessInPlace, type OnBadHead } from "../reconcile/accept-head.ts";
import type { Federation } from "../reconcile/context.ts";
import { type RevisionFiles, readRevision, registryOf, renderedChanges } from "../reconcile/desired-state.ts";
import { loadRegistry, type RegistryFile } from "../registry/load.ts";
import { partnerCalled, partnerEntry, type Registry } from "../registry/partner.ts";
import { RegistryError } from "../registry/problems.ts";
import { type NewCommit, type Revision, writeCommit } from "../repository/repository.ts";
import { canReadSigners, unsignedAmong } from "../repository/signatures.ts";

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

// What a change is built on. A containment must work although another partner's file is invalid, and must not take in a
// commit by somebody who may not commit. Invariants: a good head is built on as it is; of one whose registry is invalid,
// the broken files alone go back to the last good revision; of one that may not be accepted, or that lacks the partner,
// nothing is kept.

/** How many commits are searched for a valid registry where no revision was ever accepted. */
const HISTORY_MAX = 100;

export interface ChangeBase {
  readonly head: Revision;
  /** The revision that is built on: the head, or the last good one where the head is refused. */
  readonly tree: Revision;
  readonly files: RevisionFiles;
  readonly registry: Registry;
  readonly isRendered: boolean;
  readonly setAside: SetAside | undefined;
  textOf(file: string): Promise<string>;
}

export interface SetAside {
  readonly reason: "head_refused" | "registry_invalid";
  readonly lastGood: Revision;
  /** Files that go back to it; empty when the whole tree does. */
  readonly paths: readonly string[];
}

/**
 * @param about the partner to be changed: a refused head that lacks it does not change what is in force, and is not built on
 * @throws DrawbridgeError `head_refused`; RegistryError when an invalid registry cannot be worked around
 */
export async function changeBase(context: Federation, onBadHead: OnBadHead = "refuse", about?: string) {
  const { repository, cache } = context;
  const { head, accepted, assessment } = await assessBranch(context);
  const baseOf = (base: Omit<ChangeBase, "head" | "textOf">): ChangeBase => ({
    ...{ head, ...base },
    textOf: async (file) => {
      const blobId = base.files.registry.get(file)?.blobId;
      // Known blobs are not read with a revision, so that what is edited is read here.
      return blobId === undefined ? "" : ((await repository.blobs([blobId])).get(blobId) ?? "");
    },
  });
  const whole = async (tree: Revision, isRendered: boolean, known?: Registry, setAside?: SetAside) => {
    const files = await readRevision(repository, tree, cache);
    return baseOf({ tree, files, registry: known ?? registryOf(files, cache), isRendered, setAside });
  };
  if (assessment.good) return whole(head, true, assessment.desired.registry);
  const { reason, detail, hint } = assessment.refusal;
  const refused = () => new DrawbridgeError("head_refused", `${detail}; nothing was changed`, { hint });
  if (onBadHead === "refuse") throw refused();
  const lacksIt = async (registry: Registry) => {
    if (about === undefined || accepted === undefined) return false;
    const known = partnerCalled(registryOf(await readRevision(repository, accepted, cache), cache), about);
    return known !== undefined && partnerEntry(registry, known.partner.serverName) === undefined;
  };
  if (reason === "render_differs") {
    const base = await whole(head, false);
    if (!(await lacksIt(base.registry))) return base;
  }
  if (reason === "registry_invalid") {
    const repaired = await withoutBrokenFiles(context, head, accepted);
    const left = await assessInPlace(head, repaired.files, context);
    // Otherwise the files that are not broken may not be accepted either, and nor may what is built on them.
    const isUsable = left.good || left.refusal.reason === "render_differs";
    if (isUsable && !(await lacksIt(repaired.registry)))
      return baseOf({ tree: head, ...repaired, isRendered: false });
  }
  if (accepted === undefined) throw refused();
  const setAside = { reason: "head_refused", lastGood: accepted, paths: [] } as const;
  // A repository that was put back may lack it: then what to do about the head is what helps.
  const base = await whole(accepted, true, undefined, setAside).catch(undefinedFor("repository_unusable"));
  if (base === undefined) throw refused();
  return base;
}

async function withoutBrokenFiles(context: Federation, head: Revision, accepted: Revision | undefined) {
  const { repository, cache } = context;
  const found = await readRevision(repository, head, cache);
  const registry = new Map(found.registry);
  const paths = new Set<string>();
  let lastGood: { readonly revision: Revision; readonly files: RevisionFiles } | undefined;
  for (;;) {
    const files = { ...found, registry };
    try {
      const valid = registryOf(files, cache);
      const revision = lastGood?.revision ?? head;
      const setAside = { reason: "registry_invalid" as const, lastGood: revision, paths: [...paths].sort() };
      return { files, registry: valid, setAside };
    } catch (error) {
      if (!(error instanceof RegistryError)) throw error;
      lastGood ??= await lastValid(context, head, accepted);
      if (lastGood === undefined) throw error;
      const before = paths.size;
      for (const { file } of error.problems) paths.add(file);
      // Files that are each valid and contradict one another: then all of them go back.
      if (paths.size === before) {
        for (const path of [...registry.keys(), ...lastGood.files.registry.keys()]) paths.add(path);
        if (paths.size === before) throw error;
      }
      for (const path of paths) {
        const file = lastGood.files.registry.get(path);
        if (file === undefined) registry.delete(path);
        else registry.set(path, file);
      }
    }
  }
}

async function lastValid({ repository, cache }: Federation, head: Revision, accepted: Revision | undefined) {
  for (const revision of accepted ? [accepted] : await repository.history(head, HISTORY_MAX)) {
    const files = await readRevision(repository, revision, cache);
    try {
      registryOf(files, cache);
      return { revision, files };
    } catch (error) {
      if (!(error instanceof RegistryError)) throw error;
    }
  }
  return undefined;
}

export function setAsideLines({ setAside }: ChangeBase): readonly string[] {
  if (setAside === undefined) return [];
  return setAside.reason === "head_refused"
    ? [`The refused commits are ignored; this commit is based on ${setAside.lastGood}.`]
    : [`Broken, and put back to ${setAside.lastGood}:`, ...setAside.paths.map(printableLine)];
}
