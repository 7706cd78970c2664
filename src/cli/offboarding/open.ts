// drawbridge offboarding open: begins the private record of a removal, and opens the run once the record is whole.
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { DrawbridgeError } from "../../domain/errors.ts";
import { shellWord } from "../../domain/printable.ts";
import { RecordError, valueAt } from "../../federation/offboarding/private-record/check.ts";
import {
  changeRecordFile,
  createRecordFile,
  knownValues,
  type PrivateRecordFile,
  readRecordFile,
  registryProblems,
} from "../../federation/offboarding/private-record/file.ts";
import { renderTemplate } from "../../federation/offboarding/private-record/schema.ts";
import { requireOpen, trustOf } from "../../federation/offboarding/run/context.ts";
import { openRun, openRunWith, runsWith } from "../../federation/offboarding/run/run-file.ts";
import { acceptedState } from "../../federation/reconcile/accept-head.ts";
import type { Federation } from "../../federation/reconcile/context.ts";
import { findPartner } from "../../federation/registry/partner.ts";
import { defineCommand, OPTION, type OptionValues, PARTNER, print, printJson, say } from "../lib/command.ts";
import { openForCommand } from "../lib/federation.ts";
import { RECORD_OPTION, reportMissing } from "../lib/offboarding.ts";

const OPTIONS = [
  RECORD_OPTION,
  OPTION.federation,
  ["--kind <kind>", "full, partial or emergency"],
  ["--trigger <trigger>", "planned_departure, contract_end or suspected_compromise"],
  ["--join <run>", "the run that the other organisation has opened"],
  OPTION.json,
] as const;
type Options = OptionValues<typeof OPTIONS>;

export const openCommand = defineCommand({
  arguments: [PARTNER],
  options: OPTIONS,
  help: `
Makes the record where there is none, with what the registry knows; opens the run once the record is complete
and agrees with the registry. Opening again changes nothing. The run's ID is printed.`,
  async run([name], options) {
    const path = resolve(options.record);
    const federation = await openForCommand(options.config);
    const { registry } = (await acceptedState(federation)).desired;
    const entry = findPartner(registry, name);
    const isNew = !existsSync(path);
    if (isNew) {
      createRecordFile(path, renderTemplate(new Map([...knownValues(registry, entry), ...flagsOf(options)])));
      say(`The record is begun: ${path}`);
    }
    const found = isNew ? readRecordFile(path) : withFlags(path, options);
    const { record, missing } = found;
    if (record === undefined) {
      if (options.json === true) printJson({ record: path, missing, run: null });
      else reportMissing(options.record, missing);
      say(`Nothing is opened yet. Then again: drawbridge offboarding open ${shellWord(name)} …`);
      return "incomplete";
    }
    const problems = registryProblems(record, registry, entry);
    if (problems.length > 0) throw new RecordError(path, problems);
    const { serverName: partner } = entry.partner;
    const parties = federation.config.offboarding && trustOf(federation.config).parties;
    const opened =
      sameRun(federation, record.run ?? undefined, partner, found.file) ??
      (await openRun(federation, {
        ...{ partner, ...record.revocation, privateRecordFile: found.file, run: options.join },
      }));
    requireOpen(opened);
    changeRecordFile(path, new Map([["run", opened.run]]));
    const { run: id, kind, trigger, remover, partner: removed, opened_at: openedAt } = opened;
    const run = { run: id, kind, trigger, remover, partner: removed, openedAt };
    print(options, { record: path, missing: [], run }, () => `${id}\n`);
    if (options.json !== true) {
      say(`Run ${id} is open (${kind}, ${trigger}): ${remover} removes ${removed}. Nothing was touched.`);
      say(`Next: drawbridge offboarding plan --config ${shellWord(options.config)}`);
    }
    for (const name of [remover, removed]) {
      if (parties === undefined || parties.some(({ organisation }) => organisation === name)) continue;
      say(`The trust file has no key of ${name}: nothing can be signed or taken in until it is there.`);
    }
    return "ok";
  },
});

function flagsOf({ kind, trigger }: Options): ReadonlyMap<string, string> {
  const given = Object.entries({ "revocation.kind": kind, "revocation.trigger": trigger });
  return new Map(given.flatMap(([field, value]) => (value === undefined ? [] : [[field, value]])));
}

/** Fills in what the flags say. A value that is in the record already is kept: a flag that differs is refused. */
function withFlags(path: string, options: Options): PrivateRecordFile {
  const found = readRecordFile(path);
  const changes = new Map<string, string>();
  for (const [field, value] of flagsOf(options)) {
    const stands = valueAt(found.values, field.split("."));
    if (stands == null) changes.set(field, value);
    else if (stands !== value) {
      throw new DrawbridgeError("usage", `${field} says something else in the record`, {
        hint: "Correct one of the two; nothing was opened.",
      });
    }
  }
  return changes.size === 0 ? found : changeRecordFile(path, changes);
}

/** The run that this very record was opened for before, also if that was cut off before its ID was written. */
function sameRun({ state }: Federation, id: string | undefined, partner: string, file: string) {
  if (id === undefined) {
    const open = openRunWith(state, partner);
    return open?.private_record_file === file ? open : undefined;
  }
  const found = runsWith(state, partner).find(({ run }) => run === id);
  if (found !== undefined) return found;
  throw new DrawbridgeError("usage", `the record names run ${id}, which is not one of this deployment's`, {
    hint: "Name the deployment's own configuration, or begin another record for another run.",
  });
}
