// One act: a partner is contained, or restored, in one commit that holds the flag, the re-render and the
// record. Invariants: all of it or nothing; one record an act, however often it is tried, by however many.
import type { CommitContext } from "../change/commit-change.ts";
import { untilCommitted } from "../change/commit-to-branch.ts";
import { setContained } from "../change/edit-partner.ts";
import { timestamp } from "../reconcile/context.ts";
import { firstRenderedDifference } from "../reconcile/desired.ts";
import { findPartner } from "../registry/find-partner.ts";
import type { PartnerEntry } from "../registry/partner.ts";
import type { Revision } from "../repository/repository.ts";
import { type ContainmentBase, containmentBase, type SetAside } from "./base.ts";
import { commitPartner } from "./commit-partner.ts";
import { type Act, type ContainmentRecord, containmentRecord, recordPath, renderRecord } from "./record.ts";

export interface ActResult {
  readonly act: Act;
  readonly partner: PartnerEntry;
  /** The commit that holds the act; the branch's head where nothing was to be done. */
  readonly revision: Revision;
  /** Undefined when the partner was contained, or restored, already. */
  readonly record: ContainmentRecord | undefined;
  readonly recordPath: string | undefined;
  readonly setAside: SetAside | undefined;
}

/**
 * Contains or restores a partner; the real parts are the reconciler's.
 * @param name the partner's server name, or the name of its file
 * @throws DrawbridgeError `usage`, `head_refused`, `config_invalid`, `repository_unusable`;
 *   RegistryError
 */
export async function performAct(context: CommitContext, act: Act, name: string): Promise<ActResult> {
  return untilCommitted(context, () => tryAct(context, act, name));
}

/** Undefined when the branch moved meanwhile. */
async function tryAct(context: CommitContext, act: Act, name: string): Promise<ActResult | undefined> {
  const contained = act === "contain";
  const base = await containmentBase(context, contained);
  const partner = findPartner(base.registry, name);
  const common = { act, partner, setAside: base.setAside };
  if (partner.partner.contained === contained && isWhole(base)) {
    return { ...common, revision: base.head, record: undefined, recordPath: undefined };
  }
  const record = containmentRecord(act, partner.partner, base.head, timestamp(context.clock.now()));
  const path = recordPath(record);
  const revision = await commitPartner(context, base, {
    entry: partner,
    changed: { ...partner.partner, contained },
    edit: (text) => setContained(text, contained),
    files: new Map([[path, renderRecord(record)]]),
    message: commitMessage(record, partner, base),
    reason: `drawbridge: ${act}`,
  });
  return revision === undefined ? undefined : { ...common, revision, record, recordPath: path };
}

/**
 * Whether the flag on the base is in force already, or will be at the next pass: a head that is refused for
 * its registry never is, and neither is one whose rendered files say something else.
 */
function isWhole({ files, registry, setAside }: ContainmentBase): boolean {
  if (setAside !== undefined) return setAside.reason === "head_refused";
  return firstRenderedDifference(files, registry) === undefined;
}

function commitMessage(record: ContainmentRecord, entry: PartnerEntry, base: ContainmentBase): string {
  const lines = [
    `${record.act === "contain" ? "Contain" : "Restore"} ${record.server_name}`,
    "",
    `Partner ${entry.name}; planes ${record.planes.join(", ")}. Rendered at ${record.git_revision}.`,
    ...setAsideLines(base),
  ];
  return `${lines.join("\n")}\n`;
}

/** What a commit's message says of what was set aside. */
export function setAsideLines({ setAside }: ContainmentBase): readonly string[] {
  if (setAside === undefined) return [];
  return setAside.reason === "head_refused"
    ? [`What may not be taken up is set aside; this is built on ${setAside.lastGood}.`]
    : [`Broken, and put back to ${setAside.lastGood}:`, ...setAside.paths];
}
