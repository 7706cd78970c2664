// Checks the text of a private record: what is wrong with it, and what is missing.
// Invariants: a text with a problem yields no record; a text without one may still lack fields, which are then
// named; hostile input ends in problems; no value is repeated in one.
import { type Document, isMap, isNode, isScalar, isSeq, LineCounter, parseDocument, visit } from "yaml";
import type { z } from "zod";
import { refuseBeforeParsing, repeatedKeys } from "../../registry/read-file.ts";
import { brokenByComment, brokenByText, brokenByValue } from "./content-rules.ts";
import { RECORD_FIELDS } from "./fields.ts";
import { dotted, type RecordProblem } from "./problems.ts";
import { PrivateRecord } from "./schema.ts";

export interface CheckedRecord {
  /** Undefined when anything is wrong or missing. */
  readonly record: PrivateRecord | undefined;
  /** Paths of the fields that are still to be filled in, in the schema's order. */
  readonly missing: readonly string[];
  readonly problems: readonly RecordProblem[];
  /** The plain values, checked or not; empty when the text has a problem. */
  readonly values: Readonly<Record<string, unknown>>;
}

type Path = readonly PropertyKey[];
type LineOf = (path: Path) => number;

/** To the end of the line, whatever stands before its line feed. */
const COMMENT = /(?:^|\s)#(.*)$/s;

export function checkRecordText(text: string): CheckedRecord {
  const refused = refuseBeforeParsing(text);
  if (refused !== undefined) return failed([yamlProblem(`${refused}`, 1)]);
  const lines = new LineCounter();
  let document: Document.Parsed;
  let values: unknown;
  try {
    document = parseDocument(text, { lineCounter: lines, uniqueKeys: false, strict: true, merge: false });
    if (document.errors.length > 0) {
      const errors = document.errors.map(({ code, pos }) =>
        yamlProblem(`not valid YAML: ${code.toLowerCase().replaceAll("_", " ")}`, lines.linePos(pos[0]).line),
      );
      return failed([...brokenLines(text), ...errors]);
    }
    values = document.toJS({ maxAliasCount: 0 });
  } catch {
    // The parser's own messages may quote the text.
    return failed([
      ...brokenLines(text),
      yamlProblem("not valid YAML: too deep, malformed, or has aliases", 1),
    ]);
  }
  const unsearched = namesBesides(text, document, lines);
  if (unsearched.length > 0) return failed([...brokenLines(text), ...unsearched]);
  const twice = repeatedKeys(document.contents).map((offset) =>
    yamlProblem("a key is written twice", lines.linePos(offset).line),
  );
  if (!isObject(values)) return failed([...brokenLines(text), yamlProblem("is no map of fields", 1)]);
  const lineOf = lineLookup(document, lines);
  const broken = [...brokenComments(text), ...brokenValues(document.contents, [], lineOf)];
  const spoiled = new Set(broken.map(({ field }) => field));
  const result = PrivateRecord.safeParse(values);
  const schema = result.success ? [] : schemaProblems(result.error, values, lineOf);
  const problems = [
    ...twice,
    ...broken,
    // A value that may not stand there at all need not be told to have the wrong form besides.
    ...schema.filter(({ field }) => field === "" || !spoiled.has(field)),
    ...contradictions(values, lineOf),
  ];
  const wanted = wantedBesides(values);
  const missing = RECORD_FIELDS.filter(
    ({ path, optional }) =>
      (optional !== true || wanted.has(path)) && valueAt(values, path.split(".")) == null,
  ).map(({ path }) => path);
  const isComplete = result.success && problems.length === 0 && missing.length === 0;
  return { record: isComplete ? result.data : undefined, missing, problems, values };
}

/** The value at a path of a plain object. */
export function valueAt(values: unknown, path: Path): unknown {
  let value = values;
  for (const step of path) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, step)) return undefined;
    value = (value as Record<PropertyKey, unknown>)[step];
  }
  return value;
}

function failed(problems: readonly RecordProblem[]): CheckedRecord {
  return { record: undefined, missing: [], problems, values: {} };
}

function yamlProblem(message: string, line: number): RecordProblem {
  return { rule: "record.form", field: "", line, message, hint: "Write it as plain YAML or JSON." };
}

/** For a text that is no YAML: every line is looked at as a comment would be. */
function brokenLines(text: string): RecordProblem[] {
  return text
    .split("\n")
    .flatMap((line, index) => brokenByText(line).map((one) => ({ ...one, field: "", line: index + 1 })));
}

/** Words of a text that are neither a value, a key nor a comment, and would be searched by nobody. */
function namesBesides(text: string, document: Document.Parsed, lines: LineCounter): RecordProblem[] {
  const problems = text
    .split("\n")
    .flatMap((line, index) => (line.startsWith("%") ? [yamlProblem("has a directive (%)", index + 1)] : []));
  visit(document, {
    Node: (_key, node) => {
      const { anchor } = node as { readonly anchor?: string };
      if (anchor === undefined && node.tag === undefined) return;
      const line = node.range ? lines.linePos(node.range[0]).line : 1;
      problems.push(yamlProblem("has an anchor (&) or a tag (!)", line));
    },
  });
  return problems;
}

function brokenComments(text: string): RecordProblem[] {
  return text.split("\n").flatMap((line, index) => {
    const comment = COMMENT.exec(line)?.[1];
    if (comment === undefined) return [];
    return brokenByComment(comment).map((one) => ({ ...one, field: "", line: index + 1 }));
  });
}

/** What the rules say of every scalar, the keys among them. */
function brokenValues(node: unknown, path: Path, lineOf: LineOf): RecordProblem[] {
  if (isMap(node)) {
    return node.items.flatMap(({ key, value }) => {
      const name = isScalar(key) ? String(key.value) : "";
      const below = [...path, name];
      const inKey = brokenByComment(name).map((one) => ({ ...one, field: dotted(path), line: lineOf(path) }));
      // A secret must not be told by way of its place.
      return inKey.length > 0 ? inKey : brokenValues(value, below, lineOf);
    });
  }
  if (isSeq(node)) return node.items.flatMap((item, index) => brokenValues(item, [...path, index], lineOf));
  if (!isScalar(node)) return [];
  const { value } = node;
  if (typeof value !== "string" && typeof value !== "number" && typeof value !== "bigint") return [];
  return brokenByValue(value, path).map((one) => ({ ...one, field: dotted(path), line: lineOf(path) }));
}

function schemaProblems(error: z.ZodError, values: unknown, lineOf: LineOf): RecordProblem[] {
  return error.issues.flatMap((issue) => {
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => ({
        rule: "record.unknown_field",
        field: brokenByText(key).length > 0 ? dotted(issue.path) : dotted([...issue.path, key]),
        line: lineOf([...issue.path, key]),
        message: "unknown field",
        hint: "Remove it or correct its spelling; docs/reference/private-record.md lists every field.",
      }));
    }
    const isEmpty = valueAt(values, issue.path) == null;
    if (isEmpty && dotted(issue.path) !== "version") return [];
    return [
      {
        rule: "record.value",
        field: dotted(issue.path),
        line: lineOf(issue.path),
        message: isEmpty ? "is missing" : issue.message,
        hint: isEmpty
          ? "Write version: 1."
          : "Correct the value; docs/reference/private-record.md says what it may be.",
      },
    ];
  });
}

/** Fields that are right by themselves and cannot stand together. */
function contradictions(values: unknown, lineOf: LineOf): RecordProblem[] {
  const problems: RecordProblem[] = [];
  const at = (path: string) => valueAt(values, path.split("."));
  const report = (rule: string, field: string, message: string, hint: string) =>
    problems.push({ rule, field, line: lineOf(field.split(".")), message, hint });
  if (
    at("revocation.kind") === "emergency" &&
    !["suspected_compromise", undefined, null].includes(text(at("revocation.trigger")))
  ) {
    report(
      "record.kind_contradicts_trigger",
      "revocation.trigger",
      "an emergency is for a suspected compromise alone",
      "Write suspected_compromise, or another kind.",
    );
  }
  const [from, until] = [text(at("maintenance.from")), text(at("maintenance.until"))].map((time) =>
    Date.parse(time ?? ""),
  );
  if (from !== undefined && until !== undefined && until <= from) {
    report("record.window", "maintenance.until", "is not after maintenance.from", "Correct one of the two.");
  }
  if (at("duties.retention.state") === "ended" && at("duties.retention.until") != null) {
    report(
      "record.retention",
      "duties.retention.until",
      "stands there although nothing is kept",
      "Take the day away (--clear), or write kept.",
    );
  }
  problems.push(...purgeContradictions(at("duties.purge"), lineOf));
  return problems;
}

function purgeContradictions(purge: unknown, lineOf: LineOf): RecordProblem[] {
  if (!isObject(purge)) return [];
  const { rooms, remoteMedia, quarantinedMedia, waiver } = purge;
  if (!Array.isArray(rooms) || remoteMedia == null || quarantinedMedia == null) return [];
  const problem = (rule: string, field: string, message: string, hint: string): RecordProblem => ({
    ...{ rule, field: `duties.purge.${field}`, message, hint },
    line: lineOf(["duties", "purge", field]),
  });
  const problems: RecordProblem[] = [];
  const named = rooms.map((entry: unknown) => (isObject(entry) ? entry["room"] : undefined));
  if (new Set(named).size !== named.length) {
    problems.push(
      problem("record.room_twice", "rooms", "names a room twice", "Say once what becomes of it."),
    );
  }
  const purgesMedia = remoteMedia === "purge";
  if (!purgesMedia && quarantinedMedia === "purge") {
    problems.push(
      problem(
        "record.quarantined_media",
        "quarantinedMedia",
        "cannot be purged while remoteMedia is kept",
        "Write purge for both, or keep for this one.",
      ),
    );
  }
  if (purgesNothing(purge) === false && waiver != null) {
    problems.push(
      problem(
        "record.purge_waiver",
        "waiver",
        "stands there although something is purged",
        "Take the waiver away (--clear), or keep everything.",
      ),
    );
  }
  return problems;
}

/** Undefined as long as that is not decided. */
function purgesNothing({ rooms, remoteMedia }: Record<string, unknown>): boolean | undefined {
  if (!Array.isArray(rooms) || remoteMedia == null) return undefined;
  return (
    remoteMedia !== "purge" && !rooms.some((entry: unknown) => isObject(entry) && entry["how"] !== "keep")
  );
}

/** Fields that are missing only because of what stands in others. */
function wantedBesides(values: unknown): ReadonlySet<string> {
  const at = (path: string) => valueAt(values, path.split("."));
  const purge = at("duties.purge");
  return new Set([
    ...(at("duties.retention.state") === "kept" ? ["duties.retention.until"] : []),
    ...(isObject(purge) && purgesNothing(purge) === true ? ["duties.purge.waiver"] : []),
    ...(at("readmission.possible") === true ? ["readmission.owner"] : []),
  ]);
}

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The line of a path, or of the nearest one around it. */
function lineLookup(document: Document.Parsed, lines: LineCounter): LineOf {
  return (path) => {
    for (let length = path.length; length > 0; length--) {
      const node = document.getIn(path.slice(0, length), true);
      if (isNode(node) && node.range) return lines.linePos(node.range[0]).line;
    }
    return 1;
  };
}
