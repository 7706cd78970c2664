// What the commands that walk a removal share: how they open a deployment, and how they name a run.
import { systemClock, systemRandom } from "../../domain/clock.ts";
import { observeFromOutside, requireAbout } from "../../federation/evidence/observe-from-outside.ts";
import { residualStatement } from "../../federation/offboarding/duties/residual.ts";
import { recordFacts } from "../../federation/offboarding/private-record/consistency.ts";
import type { OffboardingContext } from "../../federation/offboarding/run/context.ts";
import { trustOf } from "../../federation/offboarding/run/context.ts";
import { findRun } from "../../federation/offboarding/run/run.ts";
import { type RunStatus, statusOf } from "../../federation/offboarding/workflow/status.ts";
import type { Block } from "../../federation/offboarding/workflow/step.ts";
import { loadProbeConfig } from "../../federation/probes/config.ts";
import { openForCommand, planeLabel, say, shellWord } from "./federation-options.ts";

export const RUN_ID_OPTION = [
  "--run-id <run>",
  "the run, or the other organisation; the open one when absent",
] as const;
export const PROBE_OPTION = [
  "--probe-config <file>",
  "a probe.yaml: look from outside as well, as the other organisation",
] as const;
export const JSON_OPTION = ["--json", "print JSON"] as const;

export interface RunOptions {
  readonly config: string;
  readonly runId?: string;
  readonly probeConfig?: string;
  readonly json?: boolean;
}

/** Opens the deployment of a configuration file, with the eyes that a probe file lends. */
export async function openOffboarding({
  config: file,
  probeConfig,
}: RunOptions): Promise<OffboardingContext> {
  const { config, federation } = await openForCommand(file);
  const probe = probeConfig === undefined ? undefined : loadProbeConfig(probeConfig);
  const sources = { clock: systemClock, random: systemRandom };
  return {
    federation,
    config,
    random: systemRandom,
    facts: recordFacts,
    residual: residualStatement,
    outside:
      probe === undefined
        ? undefined
        : (own, partner, planes, inside) => {
            requireAbout(probe, own, partner.partner.serverName);
            return observeFromOutside({ config, probe, sources }, partner, planes, inside);
          },
    say,
  };
}

/** Where the run stands now. */
export function statusNow({ federation, config }: OffboardingContext, run?: string): RunStatus {
  return statusOf(findRun(federation.state, run), trustOf(config));
}

/** What keeps a step from being done, a paragraph each. */
export function blockLines(blocks: readonly Block[]): readonly string[] {
  return blocks.flatMap(({ plane, condition, probe, found, hint }) => [
    `  ${condition}${plane === null ? "" : ` (plane ${planeLabel(plane)})`}`,
    `    probe  ${probe}`,
    `    found  ${found}`,
    `    hint   ${hint}`,
  ]);
}

/** The exact command that comes next here; or what is waited for. */
export function nextLine(
  { next, waiting, ended }: RunStatus,
  { config, probeConfig, runId }: RunOptions,
): string {
  if (ended?.how === "aborted") return `The run was aborted at ${ended.at} (${ended.reason}).`;
  const where = [
    `--config ${shellWord(config)}`,
    ...(runId === undefined ? [] : [`--run-id ${shellWord(runId)}`]),
    ...(probeConfig !== undefined && ["next", "sign", "complete"].includes(next[0] ?? "")
      ? [`--probe-config ${shellWord(probeConfig)}`]
      : []),
  ].join(" ");
  const command = `drawbridge offboarding ${next.join(" ")} ${where}`;
  if (waiting === null) return next.length === 0 ? "Nothing is left to do here." : `Next: ${command}`;
  const what = `${waiting.what.replaceAll("_", " ")}${waiting.stage === null ? "" : ` of ${waiting.stage}`}`;
  const since = waiting.since === null ? "" : `, since ${waiting.since}`;
  return [
    `Waiting for ${waiting.for}: ${what}${since}.`,
    `If it lacks a file: ${command}`,
    `When its file has come: drawbridge offboarding import FILE --config ${shellWord(config)}`,
  ].join("\n");
}
