// The private record as a file: read, made and changed. Invariants: nothing is read from, or written to, a location that is
// refused; a file is written whole, mode 0600, and only if nothing in it is refused; setting a field keeps everything else.
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { editYaml } from "../../../runtime/edit-yaml.ts";
import { inspectLocation } from "../../../runtime/private-file-location.ts";
import { createFile, PRIVATE, writeWhole } from "../../../runtime/write-file.ts";
import { type CheckedRecord, checkRecordText, RecordError, type RecordProblem } from "./check.ts";
import { type PrivateRecord, recordField } from "./schema.ts";

/** Past this nobody has written it by hand. */
const BYTES_MAX = 4 * 1_048_576;

export interface PrivateRecordFile extends Omit<CheckedRecord, "problems"> {
  readonly file: string;
  readonly text: string;
}

/** Reads a record that may still lack fields. @throws RecordError; DrawbridgeError `config_unreadable` */
export function readRecordFile(path: string): PrivateRecordFile {
  const { file, exists, problems } = locate(path);
  const isFile = exists && !problems.some(({ rule }) => rule === "record.not_a_file");
  if (!isFile) refuseIfAny(path, problems);
  if (!exists) {
    throw new DrawbridgeError("config_unreadable", `there is no record at ${path}`, {
      hint: "Make one: drawbridge offboarding open PARTNER --record FILE.",
    });
  }
  const text = readBounded(path, file);
  const checked = checkRecordText(text);
  refuseIfAny(path, [...problems, ...checked.problems]);
  return { file, text, ...checked };
}

function refuseIfAny(path: string, problems: readonly RecordProblem[]): void {
  if (problems.length > 0) throw new RecordError(path, problems);
}

function locate(path: string) {
  const { problems, ...found } = inspectLocation(path);
  return {
    ...found,
    problems: problems.map(
      (one): RecordProblem => ({ ...one, rule: `record.${one.rule}`, field: "", line: 0 }),
    ),
  };
}

/** Reads a record that must be whole. @throws RecordError, also for a missing field; else as `readRecordFile` */
export function requireRecord(path: string): PrivateRecord {
  const { record, missing } = readRecordFile(path);
  if (record !== undefined) return record;
  const problems = missing.map((field) => ({
    ...{ rule: "record.missing", field, line: 0, message: "is missing" },
    hint: `Write it in the record: ${recordField(field)?.says ?? field}.`,
  }));
  throw new RecordError(path, problems);
}

/** Makes a new record; one that is there is never touched. @throws RecordError, DrawbridgeError `usage` */
export function createRecordFile(path: string, text: string): void {
  const { file, problems } = locate(path);
  refuseIfAny(path, [...problems, ...checkRecordText(text).problems]);
  createFile(file, text);
}

/** Sets fields of a record, all or none. @throws RecordError when what would stand there is refused */
export function changeRecordFile(path: string, changes: ReadonlyMap<string, string>): PrivateRecordFile {
  const before = readRecordFile(path);
  const edits = [...changes].map(([field, value]) => ({ path: field.split("."), value }));
  const text = editYaml(before.text, edits);
  const checked = checkRecordText(text);
  refuseIfAny(path, checked.problems);
  if (text !== before.text) writeWhole(before.file, text, PRIVATE);
  return { file: before.file, text, ...checked };
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
