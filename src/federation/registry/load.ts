// Loads a registry from the files of one revision or one work tree, whichever way they were read. Invariants: all problems of
// all files are reported at once, and no value is repeated in one; a registry with any problem is no registry; a file below
// registry/ that would be ignored is a problem, because it seems to admit somebody; hostile input ends in problems: size and
// depth are bounded before the parser sees the text, aliases are refused.
import { LRUCache } from "lru-cache";
import type * as z from "zod";
import { isMissing, type LineOf, readYaml, unreadYaml } from "../../runtime/load-yaml.ts";
import { crossCheck } from "./cross-checks.ts";
import { ORGANISATION_FILE, Organisation } from "./organisation.ts";
import { Partner, type PartnerEntry, type Registry } from "./partner.ts";
import { type CrossProblem, RegistryError, type RegistryProblem } from "./problems.ts";
import { secretsInText, secretsInValues } from "./secret-rules.ts";

const FOLDER = "registry/";
const PARTNERS = "registry/partners/";
/** Short enough for a label of a Kubernetes object, and never a server name with a dot. */
const PARTNER_NAME = /^[a-z0-9](?:[a-z0-9-]{0,48}[a-z0-9])?$/;
const OTHER_FILES = /^registry\/(?:abuse-report\.schema\.json|[A-Za-z0-9_-]+\.md|(?:partners\/)?\.gitkeep)$/;

/** A file of a git revision: its text is read only when its blob is not known yet. */
export interface StoredFile {
  readonly blobId: string;
  text(): string;
}

export type RegistryFile = string | StoredFile;

/** Valid partners that were read before, by the ID of the blob. Entries are added, never removed. */
type KnownPartners = Map<string, Partner>;

/** What is not below `registry/` is left alone. @throws RegistryError with every problem found */
export function loadRegistry(files: ReadonlyMap<string, RegistryFile>, known: KnownPartners = new Map()) {
  const problems: RegistryProblem[] = [];
  // There may be more of them than a call has arguments.
  const add = (more: readonly RegistryProblem[]) => {
    for (const problem of more) problems.push(problem);
  };
  const partners: PartnerEntry[] = [];
  for (const [path, file] of files) {
    if (!path.startsWith(FOLDER) || path === ORGANISATION_FILE) continue;
    const name = partnerName(path);
    if (name === undefined) {
      if (OTHER_FILES.test(path)) add(secretsInText(textOf(file), path));
      else problems.push(unknownFile(path));
      continue;
    }
    const { value, problems: found } = readPartner(file, path, known);
    add(found);
    if (value !== undefined) partners.push({ name, file: path, partner: value });
  }
  partners.sort((a, b) => (a.partner.serverName < b.partner.serverName ? -1 : 1));

  const own = files.get(ORGANISATION_FILE);
  const { value: organisation, problems: found } =
    own === undefined ? NO_ORGANISATION : readOnce(Organisation, textOf(own), ORGANISATION_FILE);
  add(found);
  if (organisation === undefined) throw new RegistryError(problems);

  const registry: Registry = { organisation, partners };
  add(locate(crossCheck(registry), files));
  if (problems.length > 0) throw new RegistryError(problems);
  return registry;
}

const MISSING = {
  ...{ file: ORGANISATION_FILE, line: 1, path: "", rule: "organisation_missing" },
  message: "there is no such file",
  hint: "Write it: it names this organisation's own server; docs/reference/registry.md shows one.",
};
const NO_ORGANISATION = { value: undefined, problems: [MISSING] };

function partnerName(path: string): string | undefined {
  if (!path.startsWith(PARTNERS) || !path.endsWith(".yaml")) return undefined;
  const name = path.slice(PARTNERS.length, -".yaml".length);
  return PARTNER_NAME.test(name) ? name : undefined;
}

function unknownFile(path: string): RegistryProblem {
  const base = { file: path, line: 1, path: "", rule: "file_name" };
  if (!path.startsWith(PARTNERS)) {
    const hint = `Move it out of ${FOLDER}; partners stand in ${PARTNERS}.`;
    return { ...base, message: "is not a registry file and would be ignored", hint };
  }
  const message = "a partner's file is NAME.yaml, NAME of lower-case letters, digits and hyphens, at most 50";
  return { ...base, message, hint: "Rename it; a file that is not read admits nobody." };
}

const textOf = (file: RegistryFile): string => (typeof file === "string" ? file : file.text());

/** Valid files that were read last, because a command reads the registry of several revisions, and most files are as before. */
const lastRead = new LRUCache<string, object>({ max: 32 });

function readOnce<Value extends object>(schema: z.ZodType<Value>, text: string, file: string) {
  const request = `${file}\0${text}`;
  const before = lastRead.get(request);
  // A file's path says which schema it was read with.
  if (before !== undefined) return { value: before as Value, problems: [] };
  const read = readRegistryFile(schema, text, file);
  if (read.value !== undefined) lastRead.set(request, read.value);
  return read;
}

function readPartner(file: RegistryFile, path: string, known: KnownPartners) {
  if (typeof file === "string") return readOnce(Partner, file, path);
  const before = known.get(file.blobId);
  if (before !== undefined) return { value: before, problems: [] };
  const read = readOnce(Partner, file.text(), path);
  if (read.value !== undefined) known.set(file.blobId, read.value);
  return read;
}

function locate(problems: readonly CrossProblem[], files: ReadonlyMap<string, RegistryFile>) {
  const read = new Map<string, LineOf>();
  return problems.map(({ path, ...problem }) => {
    const { file } = problem;
    const lineOf = read.get(file) ?? parseBounded(textOf(files.get(file) ?? "")).lineOf;
    read.set(file, lineOf);
    return { ...problem, path: path.join("."), line: lineOf(path) };
  });
}

const BYTES_MAX = 1_048_576;
const DEPTH_MAX = 32;
type Path = readonly PropertyKey[];

/** One file, with every problem in it; the value is undefined when there is any. */
function readRegistryFile<Value>(schema: z.ZodType<Value>, text: string, file: string) {
  const read = parseBounded(text);
  // Also what can be made out of a broken file: a secret in it has been committed all the same.
  const values = read.document && secretsInValues(read.document.contents, read.lines, file);
  const secrets = [...(read.isRefused ? [] : secretsInText(text, file)), ...(values ?? [])];
  if (read.problems.length > 0) {
    const problems = read.problems.map((problem) => ({
      ...{ file, path: "", rule: "yaml", hint: "Write it as plain YAML, one key a line." },
      ...problem,
    }));
    return { value: undefined, problems: besides(secrets, problems) };
  }
  const result = schema.safeParse(read.values);
  const issues = result.error?.issues ?? [];
  const problems = issues.flatMap((issue) => schemaProblems(issue, file, read.lineOf));
  const all = besides(secrets, problems);
  return { value: all.length === 0 ? result.data : undefined, problems: all };
}

/** Secrets, each rule once a line, and the other problems of other lines: those could name the value. */
function besides(secrets: readonly RegistryProblem[], problems: readonly RegistryProblem[]) {
  const lines = new Set(secrets.map(({ line }) => line));
  const once = new Map(secrets.map((problem) => [`${problem.line} ${problem.rule}`, problem]));
  return [...once.values(), ...problems.filter(({ line }) => !lines.has(line))];
}

/** As `readYaml`, within bounds. `isRefused`: it was not given to the parser. */
export function parseBounded(text: string) {
  const refused = refuseBeforeParsing(text);
  const isRefused = refused !== undefined;
  return { isRefused, ...(isRefused ? unreadYaml(refused) : readYaml(text)) };
}

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
