// The private record as a file: read, made and changed; and whether it agrees with the registry.
// Invariants: nothing is read from, or written to, a location that is refused; a file is written whole, mode 0600, and only
// if nothing in it is refused; setting a field keeps the others.
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";
import { DrawbridgeError } from "../../../domain/errors.ts";
import { editYaml } from "../../../runtime/edit-yaml.ts";
import { inspectLocation } from "../../../runtime/private-file-location.ts";
import { createFile, PRIVATE, writeWhole } from "../../../runtime/write-file.ts";
import type { Partner, PartnerEntry, Registry } from "../../registry/partner.ts";
import { checkRecordText, RecordError, type RecordProblem } from "./check.ts";
import { type KnownValues, type PrivateRecord, RECORD_FIELDS } from "./schema.ts";

/** Past this nobody has written it by hand. */
const BYTES_MAX = 4 * 1_048_576;

export type PrivateRecordFile = Readonly<ReturnType<typeof readRecordFile>>;

/** Reads a record that may still lack fields. @throws RecordError; DrawbridgeError `config_unreadable` */
export function readRecordFile(path: string) {
  const { file, exists, problems } = locate(path);
  if (!exists || problems.some(({ rule }) => rule === "record.not_a_file")) refuseIfAny(path, problems);
  if (!exists) {
    const hint = "Make one: drawbridge offboarding open PARTNER --record FILE.";
    throw new DrawbridgeError("config_unreadable", `there is no record at ${path}`, { hint });
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
  const { problems: found, ...location } = inspectLocation(path);
  const problems = found.map((one) => ({ ...one, rule: `record.${one.rule}`, field: "", line: 0 }));
  return { ...location, problems };
}

/** Reads a record that must be whole. @throws RecordError, also for a missing field; else as `readRecordFile` */
export function requireRecord(path: string): PrivateRecord {
  const { record, missing } = readRecordFile(path);
  if (record !== undefined) return record;
  const problems = missing.map((field) => ({
    ...{ rule: "record.missing", field, line: 0, message: "is missing" },
    hint: `Write it in the record: ${RECORD_FIELDS.find(({ path }) => path === field)?.says ?? field}.`,
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
    const hint = "Run this as the user that the record belongs to.";
    throw new DrawbridgeError("config_unreadable", `cannot read ${path}: ${code}`, { hint, cause });
  } finally {
    if (handle !== undefined) closeSync(handle);
  }
}

/** Agents of either side between us and the partner: what planes 5 and 4 carry; sorted. */
const agentsBetween = ({ gateway, card }: Partner): readonly string[] =>
  [...new Set([...(gateway?.invokes ?? []), ...Object.keys(card.consumes)])].sort();

export const closedUnnamed = (partner: Partner, named: readonly string[]): readonly string[] =>
  agentsBetween(partner).filter((agent) => !named.includes(agent));

export const NAME_OR_WITHDRAW =
  "Name every agent that it closes; or take the named ones away alone: drawbridge agent withdraw PARTNER AGENT.";

export function knownValues({ organisation }: Registry, { partner }: PartnerEntry): KnownValues {
  const invoked = (partner.gateway?.invokes ?? []).flatMap((name) => organisation.agents[name] ?? []);
  return new Map<string, string | readonly string[]>([
    ["partner.serverName", partner.serverName],
    ["affected.agents", agentsBetween(partner)],
    ["affected.routes", invoked.flatMap(({ cardPath, invokePath }) => [cardPath, invokePath]).sort()],
    ["affected.oidcClient", partner.gateway === undefined ? "none" : partner.azp],
  ]);
}

export function registryProblems(record: PrivateRecord, registry: Registry, entry: PartnerEntry) {
  const problems: RecordProblem[] = [];
  const elsewhere = "Correct the record, or name the partner that is meant.";
  const report = (field: string, message: string, rule = "record.not_in_registry", hint = elsewhere) =>
    problems.push({ rule, field, line: 0, message, hint });
  const known = knownValues(registry, entry);
  const { serverName } = entry.partner;
  if (record.partner.serverName !== serverName) {
    report("partner.serverName", `is not ${serverName}, as the registry has it`);
  }
  if (record.affected.oidcClient !== known.get("affected.oidcClient")) {
    report("affected.oidcClient", "is not the client that the registry has for this partner");
  }
  const own = registry.organisation.agents;
  const agents = new Set([...Object.keys(own), ...Object.keys(entry.partner.card.consumes)]);
  for (const [index, name] of record.affected.agents.entries()) {
    if (!agents.has(name)) report(`affected.agents.${index}`, "is an agent that the registry does not know");
  }
  if (record.revocation.kind === "partial") {
    for (const name of closedUnnamed(entry.partner, record.affected.agents)) {
      const message = `does not name ${name}, which a partial removal would close as well`;
      report("affected.agents", message, "record.closes_more", NAME_OR_WITHDRAW);
    }
  }
  const routes = new Set(Object.values(own).flatMap(({ cardPath, invokePath }) => [cardPath, invokePath]));
  for (const [index, path] of record.affected.routes.entries()) {
    if (!routes.has(path)) report(`affected.routes.${index}`, "is a path that the registry does not know");
  }
  return problems;
}
