// Opens a re-admission: the partnership is new. What was pinned is retired, the new identities come in its place, and
// the contractual approval is recorded, in one commit that opens no plane.
// Invariants: only a partner whose planes are all closed is re-admitted; one re-admission of a partner at a time; a kill
// between two writes never leads to a second commit.

import { DrawbridgeError } from "../../domain/errors.ts";
import { jsonText } from "../../domain/json.ts";
import { shellWord } from "../../domain/printable.ts";
import { Identifier } from "../../records/format/fields.ts";
import { refuse } from "../agents/identity-rules.ts";
import { changeBase } from "../change/commit-base.ts";
import { commitChange, proposeEdit } from "../change/commit-change.ts";
import { PLANE_NAMES } from "../plane-order.ts";
import { type Federation, timestamp } from "../reconcile/context.ts";
import { findPartner, isRemoved, type PartnerEntry } from "../registry/partner.ts";
import { type ReadmissionRecord, readmissionRecordPath } from "../registry/readmission-record.ts";
import { retireAll } from "../registry/retired.ts";
import { parseRevision, type Revision } from "../repository/repository.ts";
import { READMISSION } from "../workflow/procedure.ts";
import { type NewIdentities, newIdentitiesDigest, newIdentityEdits } from "./new-identities.ts";
import {
  isOvertaken,
  lastReadmission,
  type Readmission,
  refuseWhileRemoving,
  saveReadmission,
  unprovedStage,
} from "./readmission.ts";

export interface OpenReadmissionOptions {
  readonly partner: string;
  /** Where the contractual approval is filed. */
  readonly approval: string;
  readonly identities: NewIdentities;
}

export interface Opened {
  readonly readmission: Readmission;
  /** Whether this call opened it. */
  readonly isNew: boolean;
}

/** @throws DrawbridgeError `usage`, `guard_refused`, `head_refused`; RegistryError */
export async function openReadmission(context: Federation, options: OpenReadmissionOptions): Promise<Opened> {
  const { state, clock } = context;
  if (!Identifier.safeParse(options.approval).success) {
    throw new DrawbridgeError("usage", "the approval is no reference", {
      hint: "Name where the approval is filed, such as CHG-2041: visible characters, at most 512.",
    });
  }
  return state.locked(
    "readmission",
    clock,
    async () => {
      const { registry, head } = await changeBase(context);
      const entry = findPartner(registry, options.partner);
      const last = lastReadmission(state, entry.partner.serverName);
      // A complete one is over once all planes are closed again; so is one that a later removal has ended.
      const isOver =
        last !== undefined && ((last.done && isRemoved(entry.partner)) || isOvertaken(state, last, entry));
      const known = isOver ? undefined : last;
      if (known !== undefined && (await isOnBranch(context, known.opened, head))) {
        const isSame = known.approval === options.approval;
        if (isSame && known.new_identities !== newIdentitiesDigest(options.identities)) {
          throw otherIdentities(known, options);
        }
        if (isSame) return { readmission: known, isNew: false };
        if (!known.done) {
          const what = `a re-admission of ${known.partner} is open, with another approval`;
          const hint = `Go on with it: drawbridge readmission next ${shellWord(options.partner)}. Nothing was changed.`;
          throw new DrawbridgeError("usage", what, { hint });
        }
      }
      return commitOpening(context, options, known?.done === false ? known.id : undefined);
    },
    context.onWait,
  );
}

/** Whether the branch holds a commit. */
export async function isOnBranch(
  { repository }: Pick<Federation, "repository">,
  commit: string | undefined,
  head: Revision,
): Promise<boolean> {
  const revision = parseRevision(commit);
  return revision !== undefined && (await repository.isAncestor(revision, head));
}

function otherIdentities(
  { partner, done }: Readmission,
  { partner: named }: OpenReadmissionOptions,
): DrawbridgeError {
  const what = `the re-admission of ${partner} was opened with other identities`;
  const hint = done
    ? "Pin another key with drawbridge agent pin."
    : `Go on with what was pinned (drawbridge readmission next ${shellWord(named)}), and change a pin with drawbridge agent pin.`;
  return new DrawbridgeError("usage", what, { hint: `${hint} Nothing was changed.` });
}

async function commitOpening(
  context: Federation,
  { partner: named, approval, identities }: OpenReadmissionOptions,
  pending: string | undefined,
): Promise<Opened> {
  const { state, clock } = context;
  const id = pending ?? context.random.bytes(16).toString("hex");
  const at = timestamp(clock.now());
  const openingOf = (partner: PartnerEntry["partner"]): Omit<Readmission, "opened"> => {
    const { cardKeys, clients, serverKeys } = retireAll(partner);
    return {
      ...{ version: 1, id, partner: partner.serverName, approval, opened_at: at },
      new_identities: newIdentitiesDigest(identities),
      retired: { card_keys: cardKeys.map(({ keyId }) => keyId), clients, server_keys: serverKeys },
      ...{ rooms: null, touched: null },
      stages: READMISSION.steps.map(({ plane }) => unprovedStage(plane, null)),
      ...{ completion: null, done: false },
    };
  };
  let readmission: Readmission | undefined;
  await commitChange(context, {
    reason: "drawbridge: readmission",
    propose: async (base) => {
      const entry = findPartner(base.registry, named);
      requireRemoved(context, entry);
      const { azp } = identities;
      const record = readmissionRecord("opened", openingOf(entry.partner), { azp, head: base.head, at });
      const records = new Map([[readmissionRecordPath(record), jsonText(record)]]);
      const message = `Open the re-admission of ${entry.partner.serverName}\n\nEverything pinned before is retired; no plane is opened.\n\nReadmission: ${id}\n`;
      const edits = newIdentityEdits(base.registry, entry, identities);
      return { ...(await proposeEdit(base, entry.file, edits, message)), records };
    },
    intend: (revision, { before }) => {
      const opening = openingOf(findPartner(before.registry, named).partner);
      readmission = saveReadmission(state, { ...opening, opened: revision });
    },
  });
  if (readmission === undefined) throw new DrawbridgeError("internal", "a re-admission was not committed");
  return { readmission, isNew: true };
}

/** @throws DrawbridgeError `guard_refused` */
function requireRemoved({ state }: Federation, entry: PartnerEntry): void {
  const { name, partner } = entry;
  const open = PLANE_NAMES.filter((plane) => partner.planes[plane] === "open");
  if (open.length > 0) {
    throw refuse(
      "not_removed",
      `${name} is not removed: ${open.join(", ")} ${open.length === 1 ? "is" : "are"} declared open`,
    );
  }
  refuseWhileRemoving(state, entry);
}

/** The record of one act, from the re-admission as it is then. */
export function readmissionRecord(
  act: ReadmissionRecord["act"],
  readmission: Omit<Readmission, "opened">,
  { azp, head, at }: { readonly azp: string; readonly head: string; readonly at: string },
): ReadmissionRecord {
  const { id, partner, approval, retired, rooms, touched, stages } = readmission;
  return {
    schema: "svc.federation.readmission.v1",
    ...{ act, readmission: id, server_name: partner, azp, approval, git_revision: head, timestamp: at },
    ...{ retired, rooms },
    rooms_replaced: (touched ?? []).filter(({ state }) => state === "replaced").length,
    planes: stages
      .filter(({ proved_at }) => proved_at !== null)
      .map(({ plane, revision, evidence, not_applicable }) => ({
        ...{ plane, revision: revision ?? head, evidence, not_applicable },
      })),
  };
}
