// What a change is built on. A containment must work although another partner's file is invalid, and must not take in a
// commit by somebody who may not commit. Invariants: a good head is built on as it is; of one whose registry is invalid,
// the broken files alone go back to the last good revision; of one that may not be accepted, or that lacks the partner,
// nothing is kept.
import { DrawbridgeError, undefinedFor } from "../../domain/errors.ts";
import { printableLine } from "../../domain/printable.ts";
import { assessBranch, assessInPlace, type OnBadHead } from "../reconcile/accept-head.ts";
import type { Federation } from "../reconcile/context.ts";
import { type RevisionFiles, readRevision, registryOf } from "../reconcile/desired-state.ts";
import { partnerCalled, partnerEntry, type Registry } from "../registry/partner.ts";
import { RegistryError } from "../registry/problems.ts";
import type { Revision } from "../repository/repository.ts";

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
