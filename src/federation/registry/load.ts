// Loads a registry from the files of one revision or one work tree, whichever way they were read.
// Invariants: all problems of all files are reported at once; a registry with any problem is no registry;
// a file below registry/ that would be ignored is a problem, because it seems to admit somebody.
import { crossCheck } from "./cross-checks.ts";
import { ORGANISATION_FILE, Organisation } from "./organisation.ts";
import { Partner, type PartnerEntry, type Registry } from "./partner.ts";
import { type CrossProblem, RegistryError, type RegistryProblem } from "./problems.ts";
import { type ReadFile, readRegistryFile } from "./read-file.ts";
import { secretsInText } from "./secret-rules.ts";

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
export function loadRegistry(
  files: ReadonlyMap<string, RegistryFile>,
  known: KnownPartners = new Map(),
): Registry {
  const problems: RegistryProblem[] = [];
  const partners: PartnerEntry[] = [];
  for (const [path, file] of files) {
    if (!path.startsWith(FOLDER) || path === ORGANISATION_FILE) continue;
    const name = partnerName(path);
    if (name === undefined) {
      if (OTHER_FILES.test(path)) problems.push(...secretsInText(textOf(file), path));
      else problems.push(unknownFile(path));
      continue;
    }
    const { value, problems: found } = readPartner(file, path, known);
    problems.push(...found);
    if (value !== undefined) partners.push({ name, file: path, partner: value });
  }
  partners.sort((a, b) => (a.partner.serverName < b.partner.serverName ? -1 : 1));

  const own = files.get(ORGANISATION_FILE);
  const { value: organisation, problems: found } =
    own === undefined ? NO_ORGANISATION : readRegistryFile(Organisation, textOf(own), ORGANISATION_FILE);
  problems.push(...found);
  if (organisation === undefined) throw new RegistryError(problems);

  const registry: Registry = { organisation, partners };
  problems.push(...locate(crossCheck(registry), files));
  if (problems.length > 0) throw new RegistryError(problems);
  return registry;
}

const NO_ORGANISATION = {
  value: undefined,
  problems: [
    {
      ...{ file: ORGANISATION_FILE, line: 1, path: "", rule: "organisation_missing" },
      message: "there is no such file",
      hint: "Write it: it names this organisation's own server; docs/reference/registry.md shows one.",
    },
  ],
};

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

function textOf(file: RegistryFile): string {
  return typeof file === "string" ? file : file.text();
}

function readPartner(file: RegistryFile, path: string, known: KnownPartners) {
  if (typeof file === "string") return readRegistryFile(Partner, file, path);
  const before = known.get(file.blobId);
  if (before !== undefined) return { value: before, problems: [] };
  const read = readRegistryFile(Partner, file.text(), path);
  if (read.value !== undefined) known.set(file.blobId, read.value);
  return read;
}

function locate(
  problems: readonly CrossProblem[],
  files: ReadonlyMap<string, RegistryFile>,
): RegistryProblem[] {
  const read = new Map<string, ReadFile<unknown>["lineOf"]>();
  return problems.map(({ path, ...problem }) => {
    const lineOf =
      read.get(problem.file) ??
      readRegistryFile(
        problem.file === ORGANISATION_FILE ? Organisation : Partner,
        textOf(files.get(problem.file) ?? ""),
        problem.file,
      ).lineOf;
    read.set(problem.file, lineOf);
    return { ...problem, path: path.join("."), line: lineOf(path) };
  });
}
