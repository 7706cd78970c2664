// What the commands on a removal share: their options, the run that they work on, and what is printed of it: what was done,
// where it stands, what blocks it, and the next command.
import { printableLine, shellWord } from "../../domain/printable.ts";
import { outsideProbe } from "../../federation/evidence/observe-from-outside.ts";
import { residualReport } from "../../federation/offboarding/duties/residual.ts";
import { RECORD_FIELDS } from "../../federation/offboarding/private-record/schema.ts";
import { type OffboardingContext, recordFacts, trustOf } from "../../federation/offboarding/run/context.ts";
import { findRun, type Run } from "../../federation/offboarding/run/run-file.ts";
import { statusOf, waitedFor } from "../../federation/offboarding/steps/status.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import type { Block } from "../../federation/workflow/procedures.ts";
import { type DeploymentOptions, OPTION, print, required, say } from "./command.ts";
import { openForCommand } from "./federation.ts";

const RUN_ID = ["--run-id <run>", "the run, or the other organisation; the open one when absent"] as const;
export const RUN_OPTIONS = [OPTION.federation, RUN_ID, OPTION.json] as const;
export const PROBE_OPTIONS = [OPTION.federation, RUN_ID, OPTION.probe, OPTION.json] as const;

export type RunStatus = ReturnType<typeof statusOf>;
type RunOptions = DeploymentOptions & { readonly runId: string | undefined };

export async function openOffboarding(options: DeploymentOptions): Promise<OffboardingContext> {
  const federation = await openForCommand(options.config);
  const outside = outsideProbe(federation, options.probeConfig);
  const residual = async (run: Run) => (await residualReport({ ...federation, say }, run)).statement;
  return { ...federation, facts: recordFacts, say, residual, outside };
}

/** Prints what was done in a run (`done` as JSON, `lines` for people), where it stands now, and the next command. */
export function printDone(
  { state, config }: OffboardingContext,
  { run }: Pick<Run, "run">,
  options: RunOptions,
  done: Readonly<Record<string, unknown>>,
  lines: (status: RunStatus) => readonly string[],
): void {
  const status = statusOf(findRun(state, run), trustOf(config));
  const { recordFile } = status;
  const complete = recordFile === null ? [] : [endLine(status, recordFile)];
  const text = () => [...lines(status), ...complete, nextLine(status, options)].join("\n");
  print(options, { ...done, recordFile, status }, () => `${text()}\n`);
}

/** What `drawbridge verify` answers about the record: it calls none complete in which a part is managed by nobody. */
export function endLine({ isWhole }: Pick<RunStatus, "isWhole">, recordFile: string): string {
  return isWhole
    ? `COMPLETE; the record verifies: ${recordFile}`
    : `ENDED; both have signed, and the record is INCOMPLETE: a part is not managed, and drawbridge verify names what is not shown: ${recordFile}`;
}

export function blockLines(blocks: readonly Block[]): readonly string[] {
  return blocks.flatMap(({ plane, condition, probe, found, hint }) => [
    `  ${condition}${plane === null ? "" : ` (plane ${planeLabel(plane)})`}`,
    `    probe  ${printableLine(probe)}`,
    `    found  ${found}`,
    `    hint   ${hint}`,
  ]);
}

export function nextLine({ next, waiting, ended }: RunStatus, options: RunOptions): string {
  const { config, probeConfig, runId } = options;
  if (ended?.how === "aborted") return `The run was aborted at ${ended.at} (${ended.reason}).`;
  const run = runId === undefined ? "" : ` --run-id ${shellWord(runId)}`;
  const probes = probeConfig !== undefined && ["next", "sign", "complete"].includes(next[0] ?? "");
  const probe = probes ? ` --probe-config ${shellWord(probeConfig)}` : "";
  const command = `drawbridge offboarding ${next.join(" ")} --config ${shellWord(config)}${run}${probe}`;
  if (waiting === null) return next.length === 0 ? "Nothing is left to do here." : `Next: ${command}`;
  const since = waiting.since === null ? "" : `, since ${waiting.since}`;
  return [
    `Waiting for ${waiting.for}: ${waitedFor(waiting)}${since}.`,
    `If it lacks a file: ${command}`,
    `When its file has come: drawbridge offboarding import FILE --config ${shellWord(config)}`,
  ].join("\n");
}

export const RECORD_OPTION = required("--record <file>", "the private record, outside version control");

export function reportMissing(file: string, missing: readonly string[]): void {
  say(`${missing.length} ${missing.length === 1 ? "field is" : "fields are"} missing in ${file}:`);
  for (const { path, says } of RECORD_FIELDS) if (missing.includes(path)) say(`  ${path}: ${says}`);
}
