// One re-admission as this organisation runs it, in a folder of its own below the state folder; and what removals of the
// same partner mean for it. Invariants: a file is whole or absent; a commit is written here before the branch moves to
// it; a plane is proved once, and only after the planes before it; no plane is opened while a removal runs; a removal
// that was begun after a re-admission was opened ends that re-admission, with its approval and its identities.
import { z } from "zod";
import { Sha256Digest } from "../../domain/digest.ts";
import { DrawbridgeError } from "../../domain/errors.ts";
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import { GitRevision, Identifier, Instant, OrganisationName, RunId } from "../../records/format/fields.ts";
import { STAGE_NAMES } from "../../records/format/stages.ts";
import { refuse } from "../agents/identity-rules.ts";
import { readStage } from "../offboarding/run/progress.ts";
import { openRunWith, runsWith } from "../offboarding/run/run-file.ts";
import { PLANE_NAMES, type PlaneName } from "../plane-order.ts";
import { isRemoved, type PartnerEntry } from "../registry/partner.ts";
import { RoomsChoice } from "../registry/readmission-record.ts";
import type { StateFolder } from "../state/folder.ts";
import { type PlaneStep, READMISSION } from "../workflow/procedure.ts";

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
  retired: z.strictObject({
    card_keys: z.array(Identifier),
    clients: z.array(Identifier),
    server_keys: z.array(Identifier),
  }),
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

function fileOf(id: string, name: string): string {
  return `${FOLDER}/${id}/${name}`;
}

export function saveReadmission(state: StateFolder, readmission: Readmission): Readmission {
  state.write(fileOf(readmission.id, "readmission.json"), readmission);
  return readmission;
}

/** Writes what was last observed of a plane. */
export function saveEvidence(
  state: StateFolder,
  { id }: Readmission,
  plane: PlaneName,
  items: readonly EvidenceItem[],
): void {
  state.write(fileOf(id, `evidence-${plane}.json`), { version: 1, items });
}

/** Every re-admission of this deployment, the oldest first. */
function listReadmissions(state: StateFolder): readonly Readmission[] {
  return state
    .folders(FOLDER)
    .flatMap((id) => state.read(Readmission, fileOf(id, "readmission.json")) ?? [])
    .sort((left, right) => (left.opened_at < right.opened_at ? -1 : 1));
}

/** The last one of a partner. */
export function lastReadmission(state: StateFolder, partner: string): Readmission | undefined {
  return listReadmissions(state).findLast((one) => one.partner === partner);
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
