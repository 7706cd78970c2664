// drawbridge offboarding plan: what each remaining step would change, interrupt and restart.
import process from "node:process";
import type { Command } from "commander";
import { type PlannedStage, plan } from "../../federation/offboarding/workflow/plan.ts";
import { positionOf } from "../../records/format/stages.ts";
import type { CommandModule } from "../lib/command.ts";
import { CONFIG_OPTION, planeLabel } from "../lib/federation-options.ts";
import { JSON_OPTION, openOffboarding, RUN_ID_OPTION, type RunOptions } from "../lib/offboarding-options.ts";
import { renderJson } from "../lib/output.ts";

export const command: CommandModule = {
  register(program: Command): void {
    program
      .option(...CONFIG_OPTION)
      .option(...RUN_ID_OPTION)
      .option(...JSON_OPTION)
      .addHelpText("after", "\nChanges nothing, and asks no server.")
      .action(async (options: RunOptions) => {
        const planned = await plan(await openOffboarding(options), options.runId);
        process.stdout.write(options.json === true ? renderJson(planned) : textOf(planned.stages));
      });
  },
};

function textOf(stages: readonly PlannedStage[]): string {
  if (stages.length === 0) return "Nothing is left to be changed.\n";
  const sections = stages.map(({ stage, plane, files, restarts, interrupts }) => [
    `${positionOf(stage)} ${stage}${plane === null ? "" : `, plane ${planeLabel(plane)}`}`,
    `  ${interrupts}`,
    ...(restarts === null ? [] : [`  RESTARTS: the ${restarts}`]),
    ...(plane !== null && files.length === 0 ? ["  no rendered file changes"] : []),
    ...files.flatMap(({ path, diff }) => [
      `  ${path}`,
      ...diff
        .trimEnd()
        .split("\n")
        .map((line) => `    ${line}`),
    ]),
  ]);
  return `${sections.map((lines) => lines.join("\n")).join("\n\n")}\n`;
}
