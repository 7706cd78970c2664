// One act: a partner is contained, or restored, in one commit that holds the flag, the re-render and the
// record. Invariants: all of it or nothing; one record an act, however often it is tried, by however many;
// a file that somebody has edited stops it before the branch moves.
import { DrawbridgeError } from "../../domain/errors.ts";
import { type BranchContext, commitToBranch, finishWorkTrees } from "../commit-to-branch.ts";
import { PLANE_NAMES } from "../planes/names.ts";
import { type ReconcileContext, timestamp } from "../reconcile/context.ts";
import { firstRenderedDifference } from "../reconcile/desired.ts";
import type { PartnerEntry, Registry } from "../registry/partner.ts";
import { renderPartner, renderShared } from "../render.ts";
import { blobIdOf, type Revision } from "../repository/repository.ts";
import { type BaseContext, type ContainmentBase, containmentBase, type SetAside } from "./base.ts";
import { setContained } from "./edit-partner.ts";
import { findPartner } from "./find-partner.ts";
import { type Act, type ContainmentRecord, containmentRecord, recordPath, renderRecord } from "./record.ts";

const ATTEMPTS_MAX = 50;

export interface ActContext extends BaseContext, BranchContext, Pick<ReconcileContext, "clock"> {
  /** Told once, when another act of this machine is waited for. */
  readonly onWait?: () => void;
}

export interface ActResult {
  readonly act: Act;
  readonly partner: PartnerEntry;
  /** The commit that holds the act; the branch's head where nothing was to be done. */
  readonly revision: Revision;
  /** Undefined when the partner was contained, or restored, already. */
  readonly record: ContainmentRecord | undefined;
  readonly recordPath: string | undefined;
  readonly setAside: SetAside | undefined;
  /** Work trees that were edited so quickly that they could not be brought along. */
  readonly workTreesBehind: readonly string[];
}

/**
 * Contains or restores a partner; the real parts are the reconciler's.
 * @param name the partner's server name, or the name of its file
 * @throws DrawbridgeError `usage`, `work_tree_dirty`, `head_refused`, `config_invalid`, `repository_unusable`;
 *   RegistryError
 */
export async function performAct(context: ActContext, act: Act, name: string): Promise<ActResult> {
  const lock = await context.state.lock("commit", context.clock, context.onWait);
  try {
    await finishWorkTrees(context);
    for (let attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
      const result = await tryAct(context, act, name);
      if (result !== undefined) return result;
    }
  } finally {
    await lock.release();
  }
  throw new DrawbridgeError("repository_unusable", "the branch moved at every attempt; nothing was changed", {
    mend: "See who commits to it so often, and run the command again.",
  });
}

/** Undefined when the branch moved meanwhile. */
async function tryAct(context: ActContext, act: Act, name: string): Promise<ActResult | undefined> {
  const contained = act === "contain";
  const base = await containmentBase(context, contained);
  const partner = findPartner(base.registry, name);
  const common = { act, partner, setAside: base.setAside };
  if (partner.partner.contained === contained && isWhole(base)) {
    return {
      ...common,
      ...{ revision: base.head, record: undefined, recordPath: undefined, workTreesBehind: [] },
    };
  }
  const record = containmentRecord(act, partner.partner, base.head, timestamp(context.clock.now()));
  const path = recordPath(record);
  const changes = await changesOf(context, base, partner, contained);
  changes.set(path, renderRecord(record));
  const committed = await commitToBranch(context, {
    parents: base.parents,
    base: base.tree,
    changes,
    message: commitMessage(record, partner, base),
    at: context.clock.now(),
    reason: act,
  });
  return committed === undefined ? undefined : { ...common, ...committed, record, recordPath: path };
}

/**
 * Whether the flag on the base is in force already, or will be at the next pass: a head that is refused for
 * its registry never is, and neither is one whose rendered files say something else.
 */
function isWhole({ files, registry, setAside }: ContainmentBase): boolean {
  if (setAside !== undefined) return setAside.reason === "head_refused";
  return firstRenderedDifference(files, registry) === undefined;
}

async function changesOf(
  { repository }: ActContext,
  base: ContainmentBase,
  entry: PartnerEntry,
  contained: boolean,
): Promise<Map<string, string | null>> {
  const { files, registry, setAside } = base;
  const changes = new Map<string, string | null>();
  const blobOf = (path: string) => files.registry.get(path)?.blobId;
  const wanted = [entry.file, ...(setAside?.paths ?? [])];
  const [texts, shared] = await Promise.all([
    repository.blobs(wanted.flatMap((path) => blobOf(path) ?? [])),
    // Of the Kubernetes files only what speaks of all, or of this partner, can change; the others are not read.
    repository.listDirectly(
      base.tree,
      PLANE_NAMES.map((plane) => `kubernetes/${plane}`),
    ),
  ]);
  for (const path of setAside?.paths ?? []) changes.set(path, texts.get(blobOf(path) ?? "") ?? null);
  changes.set(entry.file, setContained(texts.get(blobOf(entry.file) ?? "") ?? "", contained));

  const changed: PartnerEntry = { ...entry, partner: { ...entry.partner, contained } };
  const after: Registry = {
    ...registry,
    partners: registry.partners.map((one) => (one === entry ? changed : one)),
  };
  const rendered = new Map([...renderShared(after), ...renderPartner(after, changed)]);
  const committed = new Map(shared.map(({ path, blobId }) => [path, blobId]));
  for (const [path, text] of rendered) {
    const blobId = committed.get(path);
    const same =
      blobId === undefined ? files.rendered.get(path) === text : blobIdOf(text, base.tree) === blobId;
    if (!same) changes.set(path, text);
  }
  const before = renderPartner(registry, entry).keys();
  for (const path of [...files.rendered.keys(), ...committed.keys(), ...before]) {
    if (!rendered.has(path)) changes.set(path, null);
  }
  return changes;
}

function commitMessage(
  record: ContainmentRecord,
  entry: PartnerEntry,
  { setAside }: ContainmentBase,
): string {
  const lines = [
    `${record.act === "contain" ? "Contain" : "Restore"} ${record.server_name}`,
    "",
    `Partner ${entry.name}; planes ${record.planes.join(", ")}. Rendered at ${record.git_revision}.`,
  ];
  if (setAside?.reason === "head_refused") {
    lines.push(`What may not be taken up is set aside; this is built on ${setAside.lastGood}.`);
  } else if (setAside !== undefined) {
    lines.push(`Broken, and put back to ${setAside.lastGood}:`, ...setAside.paths);
  }
  return `${lines.join("\n")}\n`;
}
