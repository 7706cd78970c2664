// Reads one YAML file of the registry, with every problem in it. Invariants: hostile input ends in problems: size and depth
// are bounded before the parser sees the text, aliases are refused; no value is repeated in a message.
import {
  type Document,
  isMap,
  isNode,
  isScalar,
  isSeq,
  LineCounter,
  type Pair,
  parseDocument,
  visit,
  type YAMLMap,
} from "yaml";
import type { z } from "zod";
import { isMissing } from "../../runtime/load-yaml.ts";
import type { RegistryProblem } from "./problems.ts";
import { secretsInText, secretsInValues } from "./secret-rules.ts";

const BYTES_MAX = 1_048_576;
const DEPTH_MAX = 32;

type Path = readonly PropertyKey[];
export type LineOf = (path: Path) => number;

export interface ReadFile<Value> {
  readonly value: Value | undefined;
  readonly problems: readonly RegistryProblem[];
  /** The line of a key; that of its nearest parent when it is absent. */
  lineOf(path: Path): number;
}

export function readRegistryFile<Schema extends z.ZodType>(
  schema: Schema,
  text: string,
  file: string,
): ReadFile<z.output<Schema>> {
  const read = parseBounded(text);
  const secrets = read.isRefused ? [] : secretsInText(text, file);
  if (read.document !== undefined) {
    // Also what can be made out of a broken file: a secret in it has been committed all the same.
    secrets.push(...secretsInValues(read.document.contents, read.lines, file));
  }
  if (read.problems.length > 0) {
    const problems = read.problems.map((problem) => ({
      ...{ file, path: "", rule: "yaml", hint: "Write it as plain YAML, one key a line." },
      ...problem,
    }));
    return { value: undefined, problems: besides(secrets, problems), lineOf: () => 1 };
  }
  const { lineOf } = read;
  const result = schema.safeParse(read.values);
  const problems = result.success
    ? []
    : result.error.issues.flatMap((issue) => schemaProblems(issue, file, lineOf));
  const all = besides(secrets, problems);
  return { value: all.length === 0 ? result.data : undefined, problems: all, lineOf };
}

/** Secrets, each rule once a line, and the other problems of other lines: those could name the value. */
function besides(
  secrets: readonly RegistryProblem[],
  problems: readonly RegistryProblem[],
): readonly RegistryProblem[] {
  const lines = new Set(secrets.map(({ line }) => line));
  const once = new Map(secrets.map((problem) => [`${problem.line} ${problem.rule}`, problem]));
  return [...once.values(), ...problems.filter(({ line }) => !lines.has(line))];
}

/**
 * A text as YAML, and what keeps it from being read: the parser's own messages may quote the text, and are not among
 * that. `isRefused`: it was not even given to the parser.
 */
export function parseBounded(text: string) {
  const lines = new LineCounter();
  const failed = (message: string, isRefused: boolean) => ({
    ...{ isRefused, document: undefined, lines, problems: [{ message, line: 1 }] },
    ...{ values: undefined, lineOf: () => 1 },
  });
  const refused = refuseBeforeParsing(text);
  if (refused !== undefined) return failed(refused, true);
  try {
    const strict = { uniqueKeys: false, strict: true, merge: false };
    const document = parseDocument(text, { lineCounter: lines, ...strict });
    const aliases: number[] = [];
    visit(document, { Alias: (_, { range }) => void aliases.push(range?.[0] ?? 0) });
    const found = [
      ...document.errors.map(({ code, pos }) => {
        return [`not valid YAML: ${code.toLowerCase().replaceAll("_", " ")}`, pos[0]] as const;
      }),
      ...repeatedKeys(document.contents).map((offset) => ["the key is written twice", offset] as const),
      ...aliases.map((offset) => ["has an alias (*name)", offset] as const),
    ];
    const problems = found.map(([message, offset]) => ({ message, line: lines.linePos(offset).line }));
    const values = problems.length > 0 ? undefined : document.toJS({ maxAliasCount: 0 });
    return { isRefused: false, document, lines, problems, values, lineOf: lineLookup(document, lines) };
  } catch {
    return failed("not valid YAML: too deep or malformed", false);
  }
}

/** Why a text is not given to the parser at all; undefined when it may be. */
function refuseBeforeParsing(text: string): string | undefined {
  if (text.length > BYTES_MAX) return `is larger than ${BYTES_MAX / 1_024} KiB`;
  if (text.includes("\u0000")) return "has a NUL character: it is no text file";
  let flow = 0;
  for (const line of text.split("\n")) {
    // Each level of a block needs a column or a `- ` of its own, so this bounds the depth from above.
    const lead = /^(?:[ \t]|[-?:] )*/.exec(line)?.[0].length ?? 0;
    if (lead > DEPTH_MAX * 8) return "is indented deeper than any registry file";
    for (const character of line) {
      if (character === "[" || character === "{") flow++;
      else if (character === "]" || character === "}") flow--;
      if (flow > DEPTH_MAX) return "is nested deeper than any registry file";
    }
  }
  return undefined;
}

function schemaProblems(issue: z.core.$ZodIssue, file: string, lineOf: LineOf): readonly RegistryProblem[] {
  const problem = (path: Path, message: string, hint: string): RegistryProblem => {
    return { file, rule: "schema", line: lineOf(path), path: dotted(path), message, hint };
  };
  const { path } = issue;
  if (issue.code === "unrecognized_keys") {
    const hint = "Remove it or correct its spelling; docs/reference/registry.md lists every key.";
    return issue.keys.map((key) => problem([...path, key], "unknown key", hint));
  }
  if (isMissing(issue)) {
    return [problem(path, "is missing", "Add it; docs/reference/registry.md says what it means.")];
  }
  const hint = "Correct the value; docs/reference/registry.md says what it may be.";
  return [problem(path, issue.message, hint)];
}

/** A key as a message may show it: shortened, and without what a terminal would interpret. */
export function dotted(path: Path): string {
  const steps = path.map((step) => String(step).replaceAll(/[^\x21-\x7e]/g, "?"));
  return steps.map((step) => step.slice(0, 64)).join(".");
}

/** Offsets of keys that their map has already. The parser's own check is quadratic. */
function repeatedKeys(node: unknown): number[] {
  if (isSeq(node)) return node.items.flatMap(repeatedKeys);
  if (!isMap(node)) return [];
  const seen = new Set<string>();
  return node.items.flatMap(({ key, value }) => {
    const name = isScalar(key) ? String(key.value) : "";
    const twice = seen.has(name);
    seen.add(name);
    const offset = isNode(key) ? (key.range?.[0] ?? 0) : 0;
    return [...(twice ? [offset] : []), ...repeatedKeys(value)];
  });
}

/** Looks lines up; each map is indexed once, so that many problems of one map stay cheap. */
function lineLookup(document: Document.Parsed, lines: LineCounter): LineOf {
  const indexes = new WeakMap<YAMLMap, Map<string, Pair>>();
  const pairOf = (map: YAMLMap, name: string) => {
    const index =
      indexes.get(map) ??
      new Map(map.items.map((pair) => [isScalar(pair.key) ? String(pair.key.value) : "", pair]));
    indexes.set(map, index);
    return index.get(name);
  };
  return (path) => {
    let node: unknown = document.contents;
    let line = 1;
    for (const step of path) {
      let key: unknown;
      if (isMap(node)) {
        const pair = pairOf(node, String(step));
        key = pair?.key;
        node = pair?.value;
      } else if (isSeq(node)) {
        node = node.items[Number(step)];
        key = node;
      } else break;
      if (!isNode(key) || !key.range) break;
      line = lines.linePos(key.range[0]).line;
    }
    return line;
  };
}
