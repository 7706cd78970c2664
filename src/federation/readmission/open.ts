// Opens a re-admission: the partnership is new. What was pinned is retired, what is fresh stands in its place,
// and the contractual gate is recorded, in one commit that opens no plane.
// Invariants: only who is wholly out comes back so; one re-admission of a partner at a time; a kill between
// two writes is understood, and never leads to a second commit.
import type { Random } from "../../domain/clock.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { Identifier } from "../../records/format/fields.ts";
import { editYaml } from "../../runtime/edit-yaml.ts";
import { refuse } from "../agents/guards.ts";
import { type ChangeBase, changeBase, commitChange } from "../change/commit-change.ts";
import { PLANE_NAMES } from "../plane-order.ts";
import { type Federation, timestamp } from "../reconcile/context.ts";
import { findPartner } from "../registry/find-partner.ts";
import type { PartnerEntry } from "../registry/partner.ts";
import { retireAll } from "../registry/retired.ts";
import { parseRevision } from "../repository/repository.ts";
import { type NewIdentities, newIdentitiesDigest, newIdentityEdits } from "./new-identities.ts";
import {
  isOvertaken,
  isRemoved,
  lastReadmission,
  READMISSION_ORDER,
  type Readmission,
  refuseWhileRemoving,
  saveReadmission,
} from "./readmission.ts";
import { type ReadmissionRecord, recordPath, renderRecord } from "./readmission-record.ts";

export interface ReadmissionContext extends Federation {
  readonly random: Random;
  readonly onWait?: () => void;
}

export interface OpenOptions {
  readonly partner: string;
  readonly gate: string;
  readonly fresh: NewIdentities;
}

export interface Opened {
  readonly readmission: Readmission;
  /** Whether this run opened it. */
  readonly isNew: boolean;
}

/** @throws DrawbridgeError `usage`, `guard_refused`, `head_refused`; RegistryError */
export async function openReadmission(context: ReadmissionContext, options: OpenOptions): Promise<Opened> {
  const { state, clock, repository } = context;
  if (!Identifier.safeParse(options.gate).success) {
    throw new DrawbridgeError("usage", "the gate is no reference", {
      hint: "Name where the approval is filed, such as CHG-2041: visible characters, at most 512.",
    });
  }
  const lock = await state.lock("readmission", clock, context.onWait);
  try {
    const { registry } = await changeBase(context);
    const entry = findPartner(registry, options.partner);
    const { serverName } = entry.partner;
    const last = lastReadmission(state, serverName);
    // One that is complete is another's past once all planes are closed again; so is one that a removal ended.
    const isPast =
      last !== undefined && ((last.done && isRemoved(entry.partner)) || isOvertaken(state, last, entry));
    const known = isPast ? undefined : last;
    if (known !== undefined) {
      const opened = parseRevision(known.opened);
      const head = await repository.requireHead();
      if (opened !== undefined && (await repository.isAncestor(opened, head))) {
        if (known.gate === options.gate) {
          if (known.fresh !== null && known.fresh !== newIdentitiesDigest(options.fresh))
            throw otherFresh(known, options);
          return { readmission: known, isNew: false };
        }
        if (!known.done) throw otherGate(serverName, options.partner);
      }
    }
    return await commitOpening(context, options, known?.done === false ? known.id : undefined);
  } finally {
    await lock.release();
  }
}

function otherGate(serverName: string, named: string): DrawbridgeError {
  return new DrawbridgeError("usage", `a re-admission of ${serverName} is open, with another gate`, {
    hint: `Go on with it: drawbridge readmission next ${named}. Nothing was changed.`,
  });
}

function otherFresh({ partner, done }: Readmission, { partner: named }: OpenOptions): DrawbridgeError {
  const what = `the re-admission of ${partner} was opened with other identities`;
  const hint = done
    ? "Pin another key with drawbridge agent pin."
    : `Go on with what was pinned (drawbridge readmission next ${named}), and change a pin with drawbridge agent pin.`;
  return new DrawbridgeError("usage", what, { hint: `${hint} Nothing was changed.` });
}

async function commitOpening(
  context: ReadmissionContext,
  options: OpenOptions,
  pending: string | undefined,
): Promise<Opened> {
  const { state, clock } = context;
  const id = pending ?? context.random.bytes(16).toString("hex");
  const at = timestamp(clock.now());
  let readmission: Readmission | undefined;
  await commitChange(context, {
    reason: "drawbridge: readmission",
    propose: (base) => {
      const entry = findPartner(base.registry, options.partner);
      requireRemoved(context, entry);
      const text = editYaml(base.textOf(entry.file), newIdentityEdits(base.registry, entry, options.fresh));
      const record = recordOf(base, entry, { id, at, options });
      return {
        edits: new Map([[entry.file, text]]),
        records: new Map([[recordPath(record), renderRecord(record)]]),
        message: `Open the re-admission of ${entry.partner.serverName}\n\nEverything pinned before is retired; no plane is opened.\n\nReadmission: ${id}\n`,
      };
    },
    intend: (revision, { before }) => {
      const { partner } = findPartner(before.registry, options.partner);
      readmission = saveReadmission(state, {
        ...{ version: 1, id, partner: partner.serverName, gate: options.gate, openedAt: at },
        opened: revision,
        fresh: newIdentitiesDigest(options.fresh),
        retired: retiredNames(partner),
        rooms: null,
        touched: null,
        stages: READMISSION_ORDER.map((plane) => ({
          ...{ plane, revision: null, provedAt: null, evidence: [], notApplicable: [] },
        })),
        completion: null,
        done: false,
      });
    },
  });
  if (readmission === undefined) throw new DrawbridgeError("internal", "a re-admission was not committed");
  return { readmission, isNew: true };
}

/** @throws DrawbridgeError `guard_refused` */
function requireRemoved({ state }: ReadmissionContext, entry: PartnerEntry): void {
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

function retiredNames(partner: PartnerEntry["partner"]): Readmission["retired"] {
  const { cardKeys, clients, serverKeys } = retireAll(partner);
  return { card_keys: cardKeys.map(({ keyId }) => keyId), clients, server_keys: serverKeys };
}

function recordOf(
  base: ChangeBase,
  { partner }: PartnerEntry,
  { id, at, options }: { readonly id: string; readonly at: string; readonly options: OpenOptions },
): ReadmissionRecord {
  return {
    schema: "svc.federation.readmission.v1",
    act: "opened",
    readmission: id,
    server_name: partner.serverName,
    azp: options.fresh.azp,
    gate: options.gate,
    git_revision: base.head,
    timestamp: at,
    retired: retiredNames(partner),
    rooms: null,
    rooms_replaced: 0,
    planes: [],
  };
}
