// One act: a partner is contained, or restored, in one commit that holds the flag, the re-render and the
// record. Invariants: all of it or nothing; one record an act, however often it is tried, by however many.

import { TOKEN_LIFE_S } from "../../rendered-files/issuer-clients.ts";
import { type ChangeBase, type SetAside, setAsideLines } from "../change/commit-base.ts";
import { type CommitContext, commitChange } from "../change/commit-change.ts";
import { setContained } from "../change/edit-partner.ts";
import { timestamp } from "../reconcile/context.ts";
import { findPartner, type PartnerEntry } from "../registry/partner.ts";
import type { Revision } from "../repository/repository.ts";
import { CONTAIN, RESTORE } from "../workflow/procedure.ts";
import {
  type Act,
  type ContainmentRecord,
  containmentRecord,
  containmentRecordPath,
  renderContainmentRecord,
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
 * Contains or restores a partner; the real parts are the reconciler's. An emergency must not wait until somebody has
 * repaired the branch: a containment works around a head that is not good.
 * @param name the partner's server name, or the name of its file
 * @throws DrawbridgeError `usage`, `head_refused`, `config_invalid`, `repository_unusable`;
 *   RegistryError
 */
export async function performAct(context: CommitContext, act: Act, name: string): Promise<ActResult> {
  const contained = act === "contain";
  let record: ContainmentRecord | undefined;
  const { revision, base } = await commitChange(context, {
    reason: `drawbridge: ${act}`,
    onBadHead: (contained ? CONTAIN : RESTORE).onBadHead,
    propose: async (base) => {
      const entry = findPartner(base.registry, name);
      record = undefined;
      if (entry.partner.contained === contained && isWhole(base)) return undefined;
      record = containmentRecord(act, entry.partner, base.head, timestamp(context.clock.now()));
      const text = setContained(await base.textOf(entry.file), contained);
      return {
        edits: new Map([[entry.file, text]]),
        records: new Map([[containmentRecordPath(record), renderContainmentRecord(record)]]),
        message: commitMessage(record, entry, base),
      };
    },
  });
  return {
    ...{ act, revision, record, setAside: base.setAside },
    partner: findPartner(base.registry, name),
    recordPath: record === undefined ? undefined : containmentRecordPath(record),
  };
}

/**
 * Whether the flag on the base is in force already, or will be at the next pass: a head that is refused for
 * its registry never is, and neither is one whose rendered files say something else.
 */
function isWhole({ setAside, isRendered }: ChangeBase): boolean {
  return isRendered && setAside?.reason !== "registry_invalid";
}

function commitMessage(record: ContainmentRecord, entry: PartnerEntry, base: ChangeBase): string {
  const lines = [
    `${record.act === "contain" ? "Contain" : "Restore"} ${record.server_name}`,
    "",
    `Partner ${entry.name}; planes ${record.planes.join(", ")}. Rendered at ${record.git_revision}.`,
    ...setAsideLines(base),
  ];
  return `${lines.join("\n")}\n`;
}

// What a containment and its restore cannot do, as the operator reads it.

/** @param gatewayClosed when the gateway plane was closed; undefined when it was not seen closed yet */
export function limitsOf(
  act: Act,
  serverName: string,
  gatewayClosed?: number | "unmanaged",
): readonly string[] {
  if (act === "restore") return limitsOfRestore(serverName);
  return [
    `What ${serverName} has replicated stays there: messages, files, membership and history of every shared room.`,
    ...limitsOfGateway(gatewayClosed),
    "The transport (plane 1) stays open, so that bans and ACLs reach its server; it is closed by removing the partner.",
  ];
}

function limitsOfGateway(closed: number | "unmanaged" | undefined): readonly string[] {
  if (closed === "unmanaged") {
    return [
      "The gateway and the issuer are not managed here: its client gets tokens, and its calls and open streams go on, until whoever runs them closes them.",
    ];
  }
  const tokens =
    closed === undefined
      ? `for up to ${TOKEN_LIFE_S} s after the gateway plane is closed; the gateway refuses them from then on`
      : `until ${new Date(closed + TOKEN_LIFE_S * 1_000).toISOString()} at the latest; the gateway refuses them already`;
  return [
    `Access tokens that its client holds stay valid ${tokens}, other services may not.`,
    "Streams that are open at the gateway when it closes run to their end; only new calls are refused.",
  ];
}

function limitsOfRestore(serverName: string): readonly string[] {
  return [
    `Nobody of ${serverName} is put back into a room: who was in it is invited again, and comes back by accepting.`,
    "Rooms that were replaced or retired stay so: the invitations are to the rooms that replace them.",
    "History that it has replicated was never taken back, and what it learned before stays known.",
    "What was said while it was contained arrives with its next events in rooms that were kept, on both sides.",
  ];
}
