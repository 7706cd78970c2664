// The private record as a file: read, made and changed.
// Invariants: nothing is read from, or written to, a location that is refused; a file is written whole, mode 0600,
// and only if nothing in it is refused; two changes at once do not undo each other; setting a field changes nothing
// else of the record's meaning, keeps comments, and leaves a JSON text JSON.
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import type { Clock } from "../../../domain/clock.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { editYaml } from "../../../runtime/edit-yaml.ts";
import { namedLock } from "../../../runtime/named-lock.ts";
import { type FileLocation, inspectLocation } from "../../../runtime/private-file-location.ts";
import { createPrivateFile, PRIVATE, writeWhole } from "../../../runtime/write-file.ts";
import { type CheckedRecord, checkRecordText, RecordError, type RecordProblem, valueAt } from "./check.ts";
import { type PrivateRecord, RECORD_FIELDS, type RecordField, RoomPurge, recordField } from "./schema.ts";

/** Past this nobody has written it by hand. */
const BYTES_MAX = 4 * 1_048_576;
const LOCK_TIMEOUT_MS = 10_000;

export interface PrivateRecordFile extends Omit<CheckedRecord, "problems"> {
  /** Its path, symbolic links resolved. */
  readonly file: string;
  readonly text: string;
}

/**
 * Reads a record that may still lack fields.
 * @throws RecordError with every problem, those of its location included; DrawbridgeError `config_unreadable`
 */
export function readRecordFile(path: string): PrivateRecordFile {
  const { file, exists, problems } = locate(path);
  if (!exists) {
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

function locate(path: string): Pick<FileLocation, "file" | "exists"> & { problems: RecordProblem[] } {
  const { file, exists, problems } = inspectLocation(path);
  return {
    ...{ file, exists },
    problems: problems.map((one) => ({ ...one, rule: `record.${one.rule}`, field: "", line: 0 })),
  };
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

function missingProblem(field: string): RecordProblem {
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
  const { file, problems } = locate(path);
  const checked = checkRecordText(text);
  const all = [...problems, ...checked.problems];
  if (all.length > 0) throw new RecordError(path, all);
  createPrivateFile(file, text);
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
): Promise<PrivateRecordFile> {
  const lock = await namedLock(`private record ${inspectLocation(path).file}`, {
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
  { values }: PrivateRecordFile,
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

function usage(message: string, hint: string): DrawbridgeError {
  return new DrawbridgeError("usage", message, { hint });
}

/**
 * A field by what is written on the command line.
 * @throws DrawbridgeError `usage` for a field that there is not
 */
export function requireField(path: string): RecordField {
  const field = recordField(path);
  if (field !== undefined) return field;
  const below = RECORD_FIELDS.filter((one) => one.path.startsWith(`${path}.`)).map((one) => one.path);
  throw usage(
    "the record has no such field",
    below.length > 0
      ? `Name one of ${below.join(", ")}.`
      : "drawbridge offboarding show lists every field; nothing was changed.",
  );
}

/**
 * What the words of a command line mean for a field.
 * @throws DrawbridgeError `usage` when they cannot be meant for it
 */
export function fieldValue(field: RecordField, words: readonly string[]): unknown {
  if (field.holds === "rooms") return words.map(roomPurgeOf);
  if (field.holds === "words") return [...words];
  const [word, second] = words;
  if (word === undefined || second !== undefined) {
    throw usage(`${field.path} takes one value`, "Put it in quotes if it has blanks; nothing was changed.");
  }
  if (field.holds !== "boolean") return word;
  if (word !== "true" && word !== "false") {
    throw usage(`${field.path} is true or false`, "Write one of the two; nothing was changed.");
  }
  return word === "true";
}

function roomPurgeOf(word: string): { readonly room: string; readonly how: string } {
  const at = word.lastIndexOf("=");
  const how = RoomPurge.safeParse(word.slice(at + 1));
  if (at < 1 || !how.success) {
    throw usage(
      "duties.purge.rooms takes ROOM=room, ROOM=history or ROOM=keep",
      "Quote each for the shell: '!id=room'. Nothing was changed.",
    );
  }
  return { room: word.slice(0, at), how: how.data };
}

/**
 * The text with one field set; undefined takes its value away.
 * @param text one that parses
 */
export function setField(text: string, path: string, value: unknown): string {
  return editYaml(text, [{ path: path.split("."), value: value ?? null }]);
}
