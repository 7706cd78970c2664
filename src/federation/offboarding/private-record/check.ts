// Checks the text of a private record, and reports every problem and every missing field at once. Invariants: a text with a
// problem yields no record; one without may still lack fields, which are then named; hostile input ends in problems; a problem
// names its field, rule and hint and never repeats the value.
import { isDeepStrictEqual } from "node:util";
import { type Document, isMap, isScalar, isSeq, type LineCounter, visit } from "yaml";
import type * as z from "zod";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { isObject } from "../../../domain/json.ts";
import type { LineOf } from "../../../runtime/load-yaml.ts";
import { dotted, parseBounded } from "../../registry/load.ts";
import { type RegistryProblem, renderProblem } from "../../registry/problems.ts";
import { type BrokenRule, brokenByComment, brokenByText, brokenByValue } from "./content-rules.ts";
import { PrivateRecord, RECORD_FIELDS } from "./schema.ts";

/** `line` is 0 where no line is meant. */
export interface RecordProblem extends Omit<RegistryProblem, "file" | "path"> {
  /** Dotted path; empty for the file as a whole and for comments. */
  readonly field: string;
}

/** A record that is refused. Nothing was written and nothing begun. */
export class RecordError extends DrawbridgeError {
  readonly problems: readonly RecordProblem[];

  constructor(file: string, problems: readonly RecordProblem[]) {
    const lines = problems.map(({ field, ...one }) => renderProblem({ ...one, file, path: field }));
    const hint = "Correct what is named above; nothing was written or begun.";
    super("config_invalid", lines.join("\n"), { hint });
    this.name = "RecordError";
    this.problems = problems;
  }
}

type Path = readonly PropertyKey[];

/** To the end of the line, whatever stands before its line feed. */
const COMMENT = /(?:^|\s)#(.*)$/s;

/** `record` is undefined when anything is wrong or missing; `values`, checked or not, are empty when there is a problem. */
export function checkRecordText(text: string) {
  const { isRefused, document, lines, problems: unread, values, lineOf } = parseBounded(text);
  const form = unread.map(({ message, line }) => yamlProblem(message, line));
  if (isRefused) return failed(form);
  if (document !== undefined) form.push(...namesBesides(text, document, lines));
  if (form.length === 0 && !isObject(values)) form.push(yamlProblem("is no map of fields", 1));
  // In a text that is no YAML, every line is searched as a comment.
  if (document === undefined || !isObject(values) || form.length > 0)
    return failed([...brokenLines(text, brokenByText), ...form]);
  const { contradictions, required } = acrossFields(values, lineOf);
  const broken = [
    ...brokenLines(text, (line) => brokenByComment(COMMENT.exec(line)?.[1] ?? "")),
    ...brokenValues(document.contents, [], lineOf),
  ];
  const spoiled = new Set(broken.map(({ field }) => field));
  const result = PrivateRecord.safeParse(values);
  const schema = result.success ? [] : schemaProblems(result.error, values, lineOf);
  const problems = [
    ...broken,
    // A value that breaks a content rule is not reported for its form as well.
    ...schema.filter(({ field }) => field === "" || !spoiled.has(field)),
    ...contradictions,
  ];
  const missing = RECORD_FIELDS.filter(
    ({ path, isOptional }) => (!isOptional || required[path]) && valueAt(values, path.split(".")) == null,
  ).map(({ path }) => path);
  const isComplete = result.success && problems.length === 0 && missing.length === 0;
  return { record: isComplete ? result.data : undefined, missing, problems, values };
}

export function valueAt(values: unknown, path: Path): unknown {
  let value = values;
  for (const step of path) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, step)) return undefined;
    value = (value as Record<PropertyKey, unknown>)[step];
  }
  return value;
}

function failed(problems: readonly RecordProblem[]) {
  return { record: undefined, missing: [] as readonly string[], problems, values: {} as unknown };
}

function yamlProblem(message: string, line: number): RecordProblem {
  return { rule: "record.form", field: "", line, message, hint: "Write it as plain YAML or JSON." };
}

function brokenLines(text: string, broken: (line: string) => readonly BrokenRule[]): RecordProblem[] {
  const lines = text.split("\n");
  return lines.flatMap((line, at) => broken(line).map((one) => ({ ...one, field: "", line: at + 1 })));
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

function brokenValues(node: unknown, path: Path, lineOf: LineOf): RecordProblem[] {
  if (isMap(node)) {
    return node.items.flatMap(({ key, value }) => {
      const name = isScalar(key) ? String(key.value) : "";
      const inKey = brokenByComment(name).map((one) => ({ ...one, field: dotted(path), line: lineOf(path) }));
      // A key that is itself a secret must not be repeated in the path of its value.
      return inKey.length > 0 ? inKey : brokenValues(value, [...path, name], lineOf);
    });
  }
  if (isSeq(node)) return node.items.flatMap((item, index) => brokenValues(item, [...path, index], lineOf));
  if (!isScalar(node)) return [];
  const { value } = node;
  if (typeof value !== "string" && typeof value !== "number" && typeof value !== "bigint") return [];
  return brokenByValue(value, path).map((one) => ({ ...one, field: dotted(path), line: lineOf(path) }));
}

const schemaProblems = (error: z.ZodError, values: unknown, lineOf: LineOf): RecordProblem[] =>
  error.issues.flatMap((issue) => {
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => ({
        rule: "record.unknown_field",
        field: brokenByText(key).length > 0 ? dotted(issue.path) : dotted([...issue.path, key]),
        line: lineOf([...issue.path, key]),
        message: "unknown field",
        hint: "Remove it or correct its spelling; docs/reference/private-record.md lists every field.",
      }));
    }
    const field = dotted(issue.path);
    const about = { rule: "record.value", field, line: lineOf(issue.path) };
    if (valueAt(values, issue.path) != null) {
      const hint = "Correct the value; docs/reference/private-record.md says what it may be.";
      return [{ ...about, message: issue.message, hint }];
    }
    return field === "version" ? [{ ...about, message: "is missing", hint: "Write version: 1." }] : [];
  });

/** Values that are right by themselves and contradict each other, and optional fields that others make necessary. */
function acrossFields(values: object, lineOf: LineOf) {
  const at = (path: string) => valueAt(values, path.split("."));
  const remoteMedia = at("duties.purge.remoteMedia");
  const quarantinedMedia = at("duties.purge.quarantinedMedia");
  const given = at("duties.purge.rooms");
  const rooms: readonly unknown[] | undefined = Array.isArray(given) ? given : undefined;
  const named = (rooms ?? []).map((entry) => (isObject(entry) ? entry["room"] : undefined));
  const isDecided = rooms !== undefined && remoteMedia != null && quarantinedMedia != null;
  const keepsRooms = rooms?.every((entry) => !isObject(entry) || entry["how"] === "keep") === true;
  const purgesNothing = keepsRooms && remoteMedia != null && remoteMedia !== "purge";
  const trigger = at("revocation.trigger");
  const isOther = typeof trigger === "string" && trigger !== "suspected_compromise";
  const isBroken: Readonly<Record<keyof typeof CONTRADICTIONS, boolean>> = {
    kind_contradicts_trigger: at("revocation.kind") === "emergency" && isOther,
    window: timeOf(at("maintenance.until")) <= timeOf(at("maintenance.from")),
    retention: at("duties.retention.state") === "ended" && at("duties.retention.until") != null,
    room_twice: isDecided && new Set(named).size !== named.length,
    quarantined_media: isDecided && remoteMedia !== "purge" && quarantinedMedia === "purge",
    purge_waiver: isDecided && !purgesNothing && at("duties.purge.waiver") != null,
    readmission_conditions:
      at("readmission.possible") === true && isDeepStrictEqual(at("readmission.conditions"), []),
  };
  const contradictions = Object.entries(CONTRADICTIONS).flatMap(([rule, problem]): RecordProblem[] => {
    if (!isBroken[rule as keyof typeof CONTRADICTIONS]) return [];
    const [field, message, hint] = problem;
    return [{ rule: `record.${rule}`, field, message, hint, line: lineOf(field.split(".")) }];
  });
  const required: Readonly<Record<string, boolean>> = {
    "duties.retention.until": at("duties.retention.state") === "kept",
    "duties.purge.waiver": purgesNothing,
    "readmission.owner": at("readmission.possible") === true,
  };
  return { contradictions, required };
}

/** Of each: the field that is reported, what is wrong with it, and the hint. */
const CONTRADICTIONS = {
  kind_contradicts_trigger: [
    "revocation.trigger",
    "an emergency is for a suspected compromise alone",
    "Write suspected_compromise, or another kind.",
  ],
  window: ["maintenance.until", "is not after maintenance.from", "Correct one of the two."],
  retention: [
    "duties.retention.until",
    "is set although nothing is retained",
    "Clear the date, or write kept.",
  ],
  room_twice: ["duties.purge.rooms", "names a room twice", "Say once what becomes of it."],
  quarantined_media: [
    "duties.purge.quarantinedMedia",
    "cannot be purged while remoteMedia is kept",
    "Write purge for both, or keep for this one.",
  ],
  purge_waiver: [
    "duties.purge.waiver",
    "is set although something is purged",
    "Take the waiver away, or keep everything.",
  ],
  readmission_conditions: [
    "readmission.conditions",
    "names none although a re-admission is possible",
    "Name its conditions as codes, such as new_contract, or write possible: false.",
  ],
} as const;

/** NaN, which is neither before nor after anything, for what is no time. */
const timeOf = (value: unknown): number => (typeof value === "string" ? Date.parse(value) : Number.NaN);
