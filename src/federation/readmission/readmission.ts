// One re-admission as this organisation runs it, in a folder of its own below the state folder; how it is opened; and what
// removals of the same partner mean for it. Opening retires what was pinned, puts the new identities in its place and
// records the contractual approval, in one commit that opens no plane.
// Invariants: only a partner whose planes are all closed is re-admitted; one re-admission of a partner at a time; a file is
// whole or absent; a commit is written here before the branch moves to it; a plane is proved once, and only after the
// planes before it; no plane is opened while a removal runs; a removal that was begun after a re-admission was opened ends
// that re-admission, with its approval and its identities.

import { z } from "zod";
import { Sha256Digest } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import { jsonText } from "../../domain/json.ts";
import { shellWord } from "../../domain/printable.ts";
import { GitRevision, Identifier, Instant, OrganisationName, RunId } from "../../records/format/fields.ts";
import { STAGE_NAMES } from "../../records/format/stages.ts";
import { refuse } from "../agents/identity-rules.ts";
import { changeBase } from "../change/commit-base.ts";
import { commitChange, proposeEdit } from "../change/commit-change.ts";
import { readStage } from "../offboarding/run/progress.ts";
import { openRunWith, runsWith } from "../offboarding/run/run-file.ts";
import { PLANE_NAMES, type PlaneName } from "../plane-order.ts";
import { type Federation, timestamp } from "../reconcile/context.ts";
import { findPartner, isRemoved, type PartnerEntry } from "../registry/partner.ts";
import {
  type ReadmissionRecord,
  RetiredNames,
  RoomsChoice,
  readmissionRecordPath,
} from "../registry/readmission-record.ts";
import { retireAll } from "../registry/retired-identities.ts";
import { parseRevision, type Revision } from "../repository/repository.ts";
import type { StateFolder } from "../state/folder.ts";
import { type PlaneStep, READMISSION } from "../workflow/procedure.ts";
import { type NewIdentities, newIdentitiesDigest, newIdentityEdits } from "./new-identities.ts";

const Stage = z.strictObject({
  plane: z.enum(PLANE_NAMES),
  /** The commit that opens it; null before. */
  revision: GitRevision.nullable(),
  /** When it was observed to be open; null before. */
  proved_at: Instant.nullable(),
  evidence: z.array(Sha256Digest),
  /** Conditions that did not apply, by name. */
  not_applicable: z.array(Identifier).default([]),
});
export type Stage = z.output<typeof Stage>;

/** A stage that is not proved yet. */
export function unprovedStage(plane: PlaneName, revision: string | null): Stage {
  return { plane, revision, proved_at: null, evidence: [], not_applicable: [] };
}

const TouchedRoom = z.strictObject({
  room: Identifier,
  /** `kept`: closed, and still there; `replaced`, `gone`: it does not come back. */
  state: z.enum(["kept", "replaced", "gone"]),
  /** The room in its place; null where there is none. */
  replacement: Identifier.nullable(),
  /** Whether the partner's server has learned of its users' bans, without which they can never join again. */
  repairable: z.enum(["yes", "no", "unknown"]),
});
export type TouchedRoom = z.output<typeof TouchedRoom>;

export const Readmission = z.strictObject({
  version: z.literal(1),
  id: RunId,
  partner: OrganisationName,
  /** Where the contractual approval is filed. */
  approval: Identifier,
  opened_at: Instant,
  /** The commit that retires what was pinned and holds the new identities. */
  opened: GitRevision,
  /** Digest of the new identities. */
  new_identities: Sha256Digest,
  retired: RetiredNames,
  rooms: RoomsChoice.nullable(),
  /** Rooms that the partner was closed out of, as they were found before step 2; null before. */
  touched: z.array(TouchedRoom).nullable(),
  stages: z.array(Stage).length(PLANE_NAMES.length),
  /** The commit with the record of completion; null before it is about to be made. */
  completion: z.strictObject({ revision: GitRevision, at: Instant }).nullable(),
  done: z.boolean(),
});
export type Readmission = z.output<typeof Readmission>;

const FOLDER = "readmission";

/** One of a re-admission's files, in the state folder. */
export function readmissionFile(id: string, name = "readmission.json"): string {
  return `${FOLDER}/${id}/${name}`;
}

export function saveReadmission(state: StateFolder, readmission: Readmission): Readmission {
  state.write(readmissionFile(readmission.id), readmission);
  return readmission;
}

/** The last one of a partner. */
function lastReadmission(state: StateFolder, partner: string): Readmission | undefined {
  const all = state.folders(FOLDER).flatMap((id) => state.read(Readmission, readmissionFile(id)) ?? []);
  const theirs = all.filter((one) => one.partner === partner);
  return theirs.sort((left, right) => (left.opened_at < right.opened_at ? -1 : 1)).at(-1);
}

/** @throws DrawbridgeError `usage` when none was opened */
export function requireReadmission(state: StateFolder, partner: string): Readmission {
  const found = lastReadmission(state, partner);
  if (found !== undefined) return found;
  throw new DrawbridgeError("usage", `no re-admission of ${partner} was opened`, {
    hint: "Open one: drawbridge readmission open PARTNER --approval REFERENCE --new-identities FILE.",
  });
}

export function stageOf({ stages }: Readmission, plane: PlaneName): Stage | undefined {
  return stages.find((one) => one.plane === plane);
}

/** The step of the first plane that is not proved to be open yet; undefined after the last. */
export function currentStep(readmission: Readmission): PlaneStep | undefined {
  return READMISSION.steps.find(({ plane }) => stageOf(readmission, plane)?.proved_at == null);
}

export function withStage(readmission: Readmission, stage: Stage): Readmission {
  const stages = readmission.stages.map((one) => (one.plane === stage.plane ? stage : one));
  return { ...readmission, stages };
}

/** @throws DrawbridgeError `guard_refused` while a removal of the partner has not ended */
export function refuseWhileRemoving(state: StateFolder, { name, partner }: PartnerEntry): void {
  const run = openRunWith(state, partner.serverName);
  if (run !== undefined) throw refuse("removal_open", `the removal ${run.run} of ${name} has not ended`);
}

/** Whether the partner is out again by a removal that was begun since. */
export function isOvertaken(
  state: StateFolder,
  { opened_at: openedAt }: Readmission,
  { partner }: PartnerEntry,
): boolean {
  return (
    isRemoved(partner) &&
    runsWith(state, partner.serverName).some(
      (run) => run.opened_at > openedAt && STAGE_NAMES.some((stage) => readStage(run, stage) !== undefined),
    )
  );
}

interface OpenReadmissionOptions {
  readonly partner: string;
  /** Where the contractual approval is filed. */
  readonly approval: string;
  readonly identities: NewIdentities;
}

/** `isNew`: whether this call opened it. @throws DrawbridgeError `usage`, `guard_refused`, `head_refused`; RegistryError */
export async function openReadmission(context: Federation, options: OpenReadmissionOptions) {
  const { state, clock, onWait } = context;
  if (!Identifier.safeParse(options.approval).success) {
    throw new DrawbridgeError("usage", "the approval is no reference", {
      hint: "Name where the approval is filed, such as CHG-2041: visible characters, at most 512.",
    });
  }
  const work = async () => {
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
        throw otherIdentities(known, options.partner);
      }
      if (isSame) return { readmission: known, isNew: false };
      if (!known.done) {
        const what = `a re-admission of ${known.partner} is open, with another approval`;
        const hint = `Go on with it: drawbridge readmission next ${shellWord(options.partner)}. Nothing was changed.`;
        throw new DrawbridgeError("usage", what, { hint });
      }
    }
    return commitOpening(context, options, known?.done === false ? known.id : undefined);
  };
  return state.locked("readmission", clock, work, onWait);
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

function otherIdentities({ partner, done }: Readmission, named: string): DrawbridgeError {
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
) {
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
  const are = open.length === 1 ? "is" : "are";
  if (open.length > 0) {
    throw refuse("not_removed", `${name} is not removed: ${open.join(", ")} ${are} declared open`);
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
