// The records of the branch's head, of each plane and of its drift. Invariants: what is about to be done is written before
// it is done; what was reached is written before the next plane begins; no field holds content; the text of a drifted
// file is kept before it is undone, for this user alone, under its own digest; of drift the newest is kept.
import { readFileSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import * as z from "zod";
import { sha256 } from "../../domain/digest.ts";
import { Sha256Digest } from "../../domain/identifier-fields.ts";
import { jsonText } from "../../domain/json.ts";
import { GitRevision } from "../../records/format/fields.ts";
import { PRIVATE, writeWhole } from "../../runtime/write-file.ts";
import { PLANE_NAMES, type PlaneName } from "../plane-order.ts";
import { Drift, OutOfReach } from "../planes/plane.ts";
import type { Revision } from "../repository/repository.ts";
import { damagedFile, type StateFolder } from "./folder.ts";

const RevisionField = GitRevision.transform((value) => value as Revision);
const Time = z.iso.datetime();
const Mark = z.strictObject({ revision: RevisionField, digest: Sha256Digest, at: Time });

export const OutcomeName = z.enum(["in_force", "incomplete", "deferred", "failed"]);

/** `at` is when the last attempt ended, also one that changed nothing. */
const Applied = Mark.extend({
  /** When the first attempt at this state ended, which gives the order in which the planes received it. */
  firstAt: Time.nullable().default(null),
  outcome: OutcomeName,
  reason: z.string().nullable(),
  outOfReach: z.array(OutOfReach),
  attempts: z.int().min(0),
  retryAt: Time.nullable(),
});
export type Applied = z.output<typeof Applied>;

/** `at` is since when the state has been in force, however often it was checked and applied again since. */
const InForce = Mark.extend({
  /** When the state was last restored, after drift or a failed attempt; null when it was never known to be lost. */
  repairedAt: Time.nullable().default(null),
});

const DriftCheck = z.strictObject({ succeededAt: Time.nullable(), differences: z.int().min(0).nullable() });

const PlaneRecord = z.strictObject({
  version: z.literal(1),
  plane: z.enum(PLANE_NAMES),
  /** An attempt that began and is not known to have ended: it may be applied wholly, partly or not at all. */
  applying: Mark.nullable(),
  applied: Applied.nullable(),
  inForce: InForce.nullable(),
  /** The last drift check; `differences` is null where it failed, `succeededAt` where none has ever succeeded. */
  driftCheck: DriftCheck.nullable(),
});
export type PlaneRecord = z.output<typeof PlaneRecord>;

export const RefusalReason = z.enum([
  "branch_missing",
  "not_descendant",
  "signature_not_allowed",
  "date_not_possible",
  "too_large",
  "registry_invalid",
  "retirement_withdrawn",
  "containment_withdrawn",
  "readmission_missing",
  "render_differs",
]);

export interface Refusal {
  readonly reason: z.output<typeof RefusalReason>;
  readonly detail: string;
  readonly hint: string;
}

const HeadRecord = z.strictObject({
  version: z.literal(1),
  accepted: Mark.pick({ revision: true, at: true }).nullable(),
  /** The branch's head where it is another revision, and why it is not accepted. */
  refused: z.strictObject({ revision: RevisionField.nullable(), reason: RefusalReason, at: Time }).nullable(),
});
export type HeadRecord = z.output<typeof HeadRecord>;

const HEAD_FILE = "head.json";

/** @throws DrawbridgeError `state_unreadable` when the file is damaged, because a rewind could not be noticed */
export function readHead(state: StateFolder): HeadRecord {
  const hint = "Read it, then move it away: without it, the next pass accepts the branch's present head.";
  const damaged = (file: string) => {
    throw damagedFile(file, hint);
  };
  return state.read(HeadRecord, HEAD_FILE, damaged) ?? { version: 1, accepted: null, refused: null };
}

export function writeHead(state: StateFolder, record: HeadRecord): void {
  state.write(HEAD_FILE, record);
}

/** A record that is damaged counts as none: the plane is then applied again, which changes nothing. */
export function readPlane(state: StateFolder, plane: PlaneName, damaged: (file: string) => void = () => {}) {
  return state.read(PlaneRecord, planeFile(plane), damaged) ?? emptyRecord(plane);
}

export function emptyRecord(plane: PlaneName): PlaneRecord {
  return { version: 1, plane, applying: null, applied: null, inForce: null, driftCheck: null };
}

export function writePlane(state: StateFolder, record: PlaneRecord): void {
  state.write(planeFile(record.plane), record);
}

const planeFile = (plane: PlaneName): string => `planes/${plane}.json`;

const KEPT_MAX = 1_000;
const KEPT_FILE_BYTES_MAX = 16 * 1_048_576;

export const DriftRecord = z.strictObject({
  schema: z.literal("svc.federation.drift.v1"),
  at: z.iso.datetime(),
  plane: z.enum(PLANE_NAMES),
  ...Drift.shape,
  revision: z.string(),
  kept: z.string().nullable(),
});
export type DriftRecord = z.output<typeof DriftRecord>;

export function keepDrift(state: StateFolder, plane: PlaneName, drift: Drift, revision: string, at: string) {
  const { subject, kind, found } = drift;
  const kept = drift.file === undefined ? null : keepText(state, drift.file);
  const schema = "svc.federation.drift.v1";
  const record: DriftRecord = { schema, at, plane, subject, kind, found, revision, kept };
  const digest = sha256(jsonText(record)).toString("hex").slice(0, 8);
  state.write(`drift/${at.replaceAll(":", "")}-${plane}-${digest}.json`, record);
  forgetOldest(state, "drift");
  forgetOldest(state, "drift-texts");
  return record;
}

export function recentDrift(state: StateFolder, limit: number): readonly DriftRecord[] {
  const names = state.names("drift").toReversed().slice(0, limit);
  return names.flatMap((name) => state.read(DriftRecord, join("drift", name), () => undefined) ?? []);
}

function keepText(state: StateFolder, file: string): string | null {
  try {
    if (statSync(file).size > KEPT_FILE_BYTES_MAX) return null;
    const bytes = readFileSync(file);
    // Digest of what is kept, which may be younger than what was noticed.
    const name = `${sha256(bytes).toString("hex")}.txt`;
    writeWhole(state.file("drift-texts", name), bytes, PRIVATE);
    return join("drift-texts", name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

function forgetOldest(state: StateFolder, folder: string): void {
  const all = state.names(folder);
  if (all.length <= KEPT_MAX) return;
  const aged = all.map((name) => ({ name, at: statSync(join(state.path, folder, name)).mtimeMs }));
  aged.sort((left, right) => left.at - right.at);
  for (const { name } of aged.slice(0, all.length - KEPT_MAX))
    rmSync(join(state.path, folder, name), { force: true });
}
