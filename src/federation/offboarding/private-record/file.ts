// The private record as a file: read, made and changed.
// Invariants: nothing is read from, or written to, a place that is refused; a file is written whole, mode 0600,
// and only if nothing in it is refused; two changes at once do not undo each other.
import { closeSync, constants, fstatSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { namedLock } from "../../../runtime/named-lock.ts";
import { createPrivateFile } from "../../../runtime/private-file.ts";
import { flushFolder, PRIVATE, writeWhole } from "../../../runtime/write-file.ts";
import { type CheckedRecord, checkRecordText, valueAt } from "./check.ts";
import { setField } from "./edit.ts";
import { inspectPlace } from "./place.ts";
import { RecordError, type RecordProblem } from "./problems.ts";
import type { PrivateRecord } from "./schema.ts";

/** Past this nobody has written it by hand. */
const BYTES_MAX = 4 * 1_048_576;
const LOCK_TIMEOUT_MS = 10_000;

export interface RecordFile extends Omit<CheckedRecord, "problems"> {
  /** Where it really lies. */
  readonly file: string;
  readonly text: string;
}

/**
 * Reads a record that may still lack fields.
 * @throws RecordError with all that is wrong, the place included; DrawbridgeError `config_unreadable`
 */
export function readRecordFile(path: string): RecordFile {
  const { place, problems } = inspectPlace(path);
  const { file } = place;
  if (!place.exists) {
    if (problems.length > 0) throw new RecordError(path, problems);
    throw new DrawbridgeError("config_unreadable", `there is no record at ${path}`, {
      hint: "Make one: drawbridge offboarding open PARTNER --record FILE.",
    });
  }
  if (problems.some(({ rule }) => rule === "record.not_a_file")) throw new RecordError(path, problems);
  const text = readBounded(path, file);
  const checked = checkRecordText(text);
  const all = [...problems, ...checked.problems];
  if (all.length > 0) throw new RecordError(path, all);
  return { file, text, record: checked.record, missing: checked.missing, values: checked.values };
}

/**
 * Reads a record that must be whole.
 * @throws RecordError, also when a field is missing; DrawbridgeError `config_unreadable`
 */
export function requireRecord(path: string): PrivateRecord {
  const { record, missing } = readRecordFile(path);
  if (record !== undefined) return record;
  throw new RecordError(path, missing.map(missingProblem));
}

/** A field that nobody has filled in yet, as a problem. */
export function missingProblem(field: string): RecordProblem {
  return {
    ...{ rule: "record.missing", field, line: 0, message: "is missing" },
    hint: `drawbridge offboarding set ${field} VALUE --record FILE`,
  };
}

/**
 * Makes a new record; one that is there is never touched.
 * @throws RecordError, DrawbridgeError `usage`
 */
export function createRecordFile(path: string, text: string): void {
  const { place, problems } = inspectPlace(path);
  const checked = checkRecordText(text);
  const all = [...problems, ...checked.problems];
  if (all.length > 0) throw new RecordError(path, all);
  const folder = dirname(place.file);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  createPrivateFile(place.file, text);
  flushFolder(folder);
}

/**
 * Sets fields of a record, all or none.
 * @param changes values by path; undefined takes one away
 * @throws RecordError when what would stand there is refused; then the file is as it was
 */
export async function changeRecordFile(
  path: string,
  changes: ReadonlyMap<string, unknown>,
  clock: Clock,
): Promise<RecordFile> {
  const { place } = inspectPlace(path);
  const lock = await namedLock(`private record ${place.file}`, {
    clock,
    timeoutMs: LOCK_TIMEOUT_MS,
    holder: "another change of this record",
  });
  try {
    const before = readRecordFile(path);
    requireUnclassified(path, before, changes);
    let text = before.text;
    for (const [field, value] of changes) text = setField(text, field, value);
    const checked = checkRecordText(text);
    if (checked.problems.length > 0) throw new RecordError(path, checked.problems);
    if (text !== before.text) writeWhole(before.file, text, PRIVATE);
    return { file: before.file, text, ...checked };
  } finally {
    await lock.release();
  }
}

/** What a run was opened as cannot be changed under it. */
const CLASSIFICATION = ["partner.serverName", "revocation.kind", "revocation.trigger", "run"];

function requireUnclassified(
  path: string,
  { values }: RecordFile,
  changes: ReadonlyMap<string, unknown>,
): void {
  if (valueAt(values, ["run"]) == null) return;
  const changed = CLASSIFICATION.filter(
    (field) => changes.has(field) && changes.get(field) !== valueAt(values, field.split(".")),
  );
  if (changed.length === 0) return;
  throw new RecordError(
    path,
    changed.map((field) => ({
      ...{ rule: "record.classified", field, line: 0, message: "is fixed: a run was opened with it" },
      hint: "Abort the run (drawbridge offboarding abort), and open another with a record of its own.",
    })),
  );
}

function readBounded(path: string, file: string): string {
  let handle: number | undefined;
  try {
    handle = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW);
    if (fstatSync(handle).size > BYTES_MAX) {
      const message = `is larger than ${BYTES_MAX / 1_048_576} MiB`;
      const hint = "Keep nothing in it but the fields of a record.";
      throw new RecordError(path, [{ rule: "record.form", field: "", line: 0, message, hint }]);
    }
    return readFileSync(handle, "utf8");
  } catch (cause) {
    if (cause instanceof RecordError) throw cause;
    const code = (cause as NodeJS.ErrnoException).code ?? "unknown error";
    throw new DrawbridgeError("config_unreadable", `cannot read ${path}: ${code}`, {
      hint: "Run this as the user that the record belongs to.",
      cause,
    });
  } finally {
    if (handle !== undefined) closeSync(handle);
  }
}
