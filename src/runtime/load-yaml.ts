// Configuration files: YAML checked by a schema that refuses unknown keys. Invariant: all errors of a file are reported at
// once, each with file, line and hint; a secret's value never appears in one.
import { dirname, resolve } from "node:path";
import { type Document, isNode, LineCounter, parseDocument } from "yaml";
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

function parseText(text: string, file: string, lineCounter: LineCounter): Document {
  let document: Document;
  try {
    document = parseDocument(text, { lineCounter, uniqueKeys: true, strict: true });
  } catch {
    // The parser itself gives up, on values nested by the thousand for one.
    throw new ConfigError(file, [{ line: 1, path: "", message: "not valid YAML: cannot be parsed" }]);
  }
  const problems = document.errors.map(({ pos, code }) => {
    const message = `not valid YAML: ${code.toLowerCase().replaceAll("_", " ")}`;
    return { line: lineCounter.linePos(pos[0]).line, path: "", message };
  });
  if (problems.length > 0) throw new ConfigError(file, problems);
  return document;
}

/** The plain value. Aliases are refused: a few lines of them can mean gigabytes. */
function plainValueOf(document: Document, file: string): unknown {
  try {
    return document.toJS({ maxAliasCount: 0 });
  } catch {
    throw new ConfigError(file, [{ line: 1, path: "", message: "anchors and aliases are not allowed" }]);
  }
}

function lineOf(document: Document, lineCounter: LineCounter, path: readonly PropertyKey[]): number {
  for (let length = path.length; length > 0; length--) {
    const node = document.getIn(path.slice(0, length), true);
    if (isNode(node) && node.range) return lineCounter.linePos(node.range[0]).line;
  }
  return 1;
}

/** The line of a key's value in a text that has been parsed before, or of the nearest one around it. */
export function yamlLineOf(text: string, path: readonly PropertyKey[]): number {
  const lineCounter = new LineCounter();
  return lineOf(parseDocument(text, { lineCounter }), lineCounter, path);
}

/** Parses YAML text against a schema. @throws ConfigError listing every problem with its line. */
export function parseYaml<Schema extends z.ZodType>(schema: Schema, text: string, file: string) {
  const lineCounter = new LineCounter();
  const document = parseText(text, file, lineCounter);
  // A file is read once: compiling its schema would cost more than it saves.
  const result = schema.safeParse(plainValueOf(document, file), { jitless: true });
  if (result.success) return result.data;
  const problems = result.error.issues.map((issue) => {
    const unknown = issue.code === "unrecognized_keys" ? [issue.keys[0] ?? ""] : [];
    const path = [...issue.path, ...unknown];
    const message = isMissing(issue) ? "is missing" : issue.message;
    return { line: lineOf(document, lineCounter, path), path: path.map(String).join("."), message };
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
