// One act: a partner is contained, or restored, in one commit that holds the flag, the re-render and the
// record. Invariants: all of it or nothing; one record an act, however often it is tried, by however many.

import { TOKEN_LIFE_S } from "../../rendered-files/issuer-clients.ts";
import type { CommitContext } from "../change/commit-change.ts";
import { untilCommitted } from "../change/commit-to-branch.ts";
import { setContained } from "../change/edit-partner.ts";
import { timestamp } from "../reconcile/context.ts";
import { firstRenderedDifference } from "../reconcile/desired-state.ts";
import { findPartner } from "../registry/find-partner.ts";
import type { PartnerEntry } from "../registry/partner.ts";
import type { Revision } from "../repository/repository.ts";
import { type ContainmentBase, containmentBase, type SetAside } from "./base.ts";
import { commitPartner } from "./commit-partner.ts";
import {
  type Act,
  type ContainmentRecord,
  containmentRecord,
  recordPath,
  renderRecord,
} from "./containment-record.ts";

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
    ? [`The refused commits are ignored; this commit is based on ${setAside.lastGood}.`]
    : [`Broken, and put back to ${setAside.lastGood}:`, ...setAside.paths];
}

// What a containment and its restore cannot do, as the operator reads it.

/**
 * @param closedAtMs when the gateway plane was closed; undefined when that is not known yet
 */
export function limitsOfContainment(serverName: string, closedAtMs: number | undefined): readonly string[] {
  const until =
    closedAtMs === undefined
      ? `for up to ${TOKEN_LIFE_S} s after the gateway plane is closed`
      : `until ${new Date(closedAtMs + TOKEN_LIFE_S * 1_000).toISOString()} at the latest`;
  return [
    `What ${serverName} has replicated stays there: messages, files, membership and history of every shared room.`,
    `Access tokens that its client holds stay valid ${until}; the gateway refuses them already, other services may not.`,
    "Streams that were open at the gateway when it closed run to their end; only new calls are refused.",
    "The transport (plane 1) stays open, so that bans and ACLs reach its server; it is closed by removing the partner.",
  ];
}

export function limitsOfRestore(serverName: string): readonly string[] {
  return [
    `Nobody of ${serverName} is put back into a room: who was in it is invited again, and comes back by accepting.`,
    "Rooms that were replaced or retired stay so: the invitations are to the rooms that replace them.",
    "History that it has replicated was never taken back, and what it learned before stays known.",
    "What was said while it was contained arrives with its next events in rooms that were kept, on both sides.",
  ];
}

export function limitsOf(act: Act, serverName: string, closedAtMs?: number): readonly string[] {
  return act === "contain" ? limitsOfContainment(serverName, closedAtMs) : limitsOfRestore(serverName);
}
