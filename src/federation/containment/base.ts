// What a containment is built on. An emergency containment must work although another
// partner's file is invalid, and must not accept a commit by an unauthorised person. Invariants: a good head is built on as it is; of a head whose registry is
// invalid, only the files that are broken go back to the last good revision; of a head that may not be taken
// up, nothing is kept; nothing is admitted that the last good revision does not admit.
import { DrawbridgeError } from "../../domain/errors.ts";
import type { BaseContext } from "../change/commit-change.ts";
import { assessOrigin } from "../reconcile/accept-head.ts";
import { type RevisionFiles, readRevision, registryOf } from "../reconcile/desired-state.ts";
import type { Registry } from "../registry/partner.ts";
import { RegistryError } from "../registry/problems.ts";
import type { Revision } from "../repository/repository.ts";
import { readHead } from "../state/plane-records.ts";

/** How many commits are searched for a valid registry where no revision was ever accepted. */
const HISTORY_MAX = 100;

export interface ContainmentBase {
  readonly head: Revision;
  /** The head, and the last good revision where the head does not come after it. */
  readonly parents: readonly [Revision, ...Revision[]];
  /** The revision whose tree is changed. */
  readonly tree: Revision;
  readonly files: RevisionFiles;
  readonly registry: Registry;
  /** What of the head is set aside, and why; undefined for a good head. */
  readonly setAside: SetAside | undefined;
}

export interface SetAside {
  readonly reason: "head_refused" | "registry_invalid";
  /** The revision that is gone back to. */
  readonly lastGood: Revision;
  /** Files that go back to it; empty when the whole tree does. */
  readonly paths: readonly string[];
}

/**
 * @param lenient whether a head that is not good is worked around; otherwise it is an error
 * @throws DrawbridgeError `head_refused` or RegistryError
 */
export async function containmentBase(context: BaseContext, lenient: boolean): Promise<ContainmentBase> {
  const { repository, state, cache, allowedSignersFile } = context;
  const head = await repository.requireHead();
  const accepted = readHead(state).accepted?.revision;
  const refusal = await assessOrigin(head, {
    ...{ repository, cache, accepted, allowedSignersFile, allowNonFastForward: false },
  });
  if (refusal !== undefined) {
    if (!lenient || accepted === undefined) {
      throw new DrawbridgeError("head_refused", `${refusal.detail}; nothing was changed`, {
        hint: refusal.hint,
      });
    }
    const files = await readRevision(repository, accepted, cache);
    const isAfter = await repository.isAncestor(accepted, head);
    return {
      head,
      parents: isAfter ? [head] : [head, accepted],
      tree: accepted,
      files,
      registry: registryOf(files, cache),
      setAside: { reason: "head_refused", lastGood: accepted, paths: [] },
    };
  }
  const files = await readRevision(repository, head, cache);
  const good = { head, parents: [head] as const, tree: head, files, setAside: undefined };
  try {
    return { ...good, registry: registryOf(files, cache) };
  } catch (error) {
    if (!lenient || !(error instanceof RegistryError)) throw error;
    return withoutBrokenFiles(context, good, error, accepted);
  }
}

async function withoutBrokenFiles(
  context: BaseContext,
  head: Omit<ContainmentBase, "registry" | "setAside">,
  broken: RegistryError,
  accepted: Revision | undefined,
): Promise<ContainmentBase> {
  const lastGood = await lastValid(context, head.head, accepted);
  if (lastGood === undefined) throw broken;
  const registry = new Map(head.files.registry);
  const paths = new Set<string>();
  let problems = broken.problems.map(({ file }) => file);
  for (;;) {
    const before = paths.size;
    for (const path of problems) paths.add(path);
    // Files that are each valid and contradict one another: then all of them go back.
    if (paths.size === before) {
      for (const path of [...registry.keys(), ...lastGood.files.registry.keys()]) paths.add(path);
      if (paths.size === before) throw broken;
    }
    for (const path of paths) {
      const file = lastGood.files.registry.get(path);
      if (file === undefined) registry.delete(path);
      else registry.set(path, file);
    }
    const files = { ...head.files, registry };
    try {
      return {
        ...{ ...head, files, registry: registryOf(files, context.cache) },
        setAside: { reason: "registry_invalid", lastGood: lastGood.revision, paths: [...paths].sort() },
      };
    } catch (error) {
      if (!(error instanceof RegistryError)) throw error;
      problems = error.problems.map(({ file }) => file);
    }
  }
}

/** The last revision that was taken up; or, where none ever was, the youngest whose registry is valid. */
async function lastValid(
  context: BaseContext,
  head: Revision,
  accepted: Revision | undefined,
): Promise<{ revision: Revision; files: RevisionFiles } | undefined> {
  const { repository, cache } = context;
  const candidates =
    accepted === undefined ? await repository.history(head, HISTORY_MAX) : ([accepted] as const);
  for (const revision of candidates) {
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
