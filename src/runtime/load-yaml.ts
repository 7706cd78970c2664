// Configuration files: YAML checked by a schema that refuses unknown keys. Invariant: all errors of a file are reported at
// once, each with file, line and hint; a secret's value never appears in one.
import { dirname, resolve } from "node:path";
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
import * as z from "zod";
import { DrawbridgeError } from "../domain/errors.ts";
import { readInput } from "./read-input.ts";

export interface ConfigProblem {
  readonly line: number;
  /** Dotted path of the offending key, such as `agents.docs-qa.cardUrl`; empty for the whole file. */
  readonly path: string;
  readonly message: string;
}

export class ConfigError extends DrawbridgeError {
  readonly file: string;
  readonly problems: readonly ConfigProblem[];

  constructor(file: string, problems: readonly ConfigProblem[]) {
    const lines = problems.map((p) => `${file}:${p.line}: ${p.path === "" ? "" : `${p.path}: `}${p.message}`);
    super("config_invalid", lines.join("\n"), {
      hint: `Correct ${file}. A program that follows it takes it up by itself; else run the command again.`,
    });
    this.name = "ConfigError";
    this.file = file;
    this.problems = problems;
  }
}

/** The line of a key; that of its nearest parent when it is absent. */
export type LineOf = (path: readonly PropertyKey[]) => number;

/** What `readYaml` gives of a text that is not parsed. */
export const unreadYaml = (message: string) => ({
  ...{ document: undefined, lines: new LineCounter(), problems: [{ message, line: 1 }] },
  ...{ values: undefined, lineOf: () => 1 },
});

/** A text as YAML, and what is wrong with it, which quotes nothing. Aliases are refused: a few lines of them can mean gigabytes. */
export function readYaml(text: string) {
  const lines = new LineCounter();
  try {
    const strict = { uniqueKeys: false, strict: true, merge: false, schema: "core" } as const;
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
    const values: unknown = problems.length > 0 ? undefined : document.toJS({ maxAliasCount: 0 });
    return { document, lines, problems, values, lineOf: lineLookup(document, lines) };
  } catch {
    // The parser itself gives up, on values nested by the thousand for one.
    return unreadYaml("not valid YAML: too deep or malformed");
  }
}

/** Offsets of keys that their map has already. The parser's own check is quadratic. */
function repeatedKeys(node: unknown): number[] {
  if (isSeq(node)) return node.items.flatMap(repeatedKeys);
  if (!isMap(node)) return [];
  const names = new Set<string>();
  return node.items.flatMap(({ key, value }) => {
    const name = isScalar(key) ? String(key.value) : "";
    const twice = names.has(name);
    names.add(name);
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

function lineOf(document: Document, lineCounter: LineCounter, path: readonly PropertyKey[]): number {
  for (let length = path.length; length > 0; length--) {
    const node = document.getIn(path.slice(0, length), true);
    if (isNode(node) && node.range) return lineCounter.linePos(node.range[0]).line;
  }
  return 1;
}

/** Parses YAML text against a schema. @throws ConfigError listing every problem with its line. */
export function parseYaml<Schema extends z.ZodType>(schema: Schema, text: string, file: string) {
  const { document, lines, problems: broken, values } = readYaml(text);
  if (document === undefined || broken.length > 0) {
    throw new ConfigError(
      file,
      broken.map((one) => ({ ...one, path: "" })),
    );
  }
  // A file is read once: compiling its schema would cost more than it saves.
  const result = schema.safeParse(values, { jitless: true });
  if (result.success) return result.data;
  const problems = result.error.issues.map((issue) => {
    const unknown = issue.code === "unrecognized_keys" ? [issue.keys[0] ?? ""] : [];
    const path = [...issue.path, ...unknown];
    const message = isMissing(issue) ? "is missing" : issue.message;
    return { line: lineOf(document, lines, path), path: path.map(String).join("."), message };
  });
  throw new ConfigError(file, problems);
}

export function isMissing(issue: z.core.$ZodIssue): boolean {
  return issue.message.endsWith("received undefined");
}

/** @throws DrawbridgeError `config_unreadable` when the file cannot be read; ConfigError when it is invalid */
export function loadYaml<Schema extends z.ZodType>(schema: Schema, file: string): z.output<Schema> {
  return parseYaml(schema, readInput(file).toString("utf8"), file);
}

/** A configuration, with the folder that relative paths in it start from: its file's own. */
export type InFolder<Config> = Config & { readonly directory: string };

/** As `loadYaml`. */
export function loadConfig<Schema extends z.ZodType<object>>(schema: Schema, file: string) {
  const path = resolve(file);
  return { ...loadYaml(schema, path), directory: dirname(path) };
}

/** An address to listen on, as configuration files write it. */
export const ListenAddress = z.strictObject({
  host: z.string().default("127.0.0.1"),
  port: z.int().min(1).max(65_535),
});
