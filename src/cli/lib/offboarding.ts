import { printableLine, shellWord } from "../../domain/printable.ts";
import { residualReport } from "../../federation/offboarding/duties/residual.ts";
import { recordFacts } from "../../federation/offboarding/private-record/file.ts";
import { type OffboardingContext, trustOf } from "../../federation/offboarding/run/context.ts";
import { findRun, type Run } from "../../federation/offboarding/run/run-file.ts";
import { type RunStatus, statusOf, waitedFor } from "../../federation/offboarding/steps/status.ts";
import { planeLabel } from "../../federation/plane-order.ts";
import type { Block } from "../../federation/workflow/procedure.ts";
import { verdictOf } from "../../federation/workflow/step-verdict.ts";
import type { Evaluated } from "../../records/conditions/condition.ts";
import { openForCommand, outsideOf } from "./federation.ts";
import { CONFIG, type DeploymentOptions, JSON_OPTION, PROBE_CONFIG } from "./options.ts";
import { print, say } from "./output.ts";

const RUN_ID = ["--run-id <run>", "the run, or the other organisation; the open one when absent"] as const;
export const RUN_OPTIONS = [CONFIG.federation, RUN_ID, JSON_OPTION] as const;
export const PROBING_RUN_OPTIONS = [CONFIG.federation, RUN_ID, PROBE_CONFIG, JSON_OPTION] as const;

interface RunOptions extends DeploymentOptions {
  readonly runId: string | undefined;
}

export async function openOffboarding(options: DeploymentOptions): Promise<OffboardingContext> {
  const federation = await openForCommand(options.config);
  return {
    ...{ ...federation, facts: recordFacts, say },
    residual: async (context, run) => (await residualReport(context, run)).statement,
    outside: outsideOf(federation, options.probeConfig),
  };
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
  const complete = recordFile === null ? [] : [`COMPLETE; the record verifies: ${recordFile}`];
  const text = () => [...lines(status), ...complete, nextLine(status, options)].join("\n");
  print(options, { ...done, recordFile, status }, () => `${text()}\n`);
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

/** What a settled stage's conditions show: a part that is not managed here is never called closed. */
export function shownWords(conditions: readonly Pick<Evaluated, "condition" | "verdict">[]): string {
  if (verdictOf(conditions) === "not_applicable") return "nothing to close, and that is shown";
  const has = (verdict: Evaluated["verdict"]) => conditions.some((one) => one.verdict === verdict);
  if (!has("unmanaged")) return "closed, and shown";
  return has("met") ? "closed and shown as far as it is managed here" : "not managed here, so not shown";
}
