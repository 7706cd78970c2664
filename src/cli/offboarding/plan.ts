// drawbridge offboarding plan: what each remaining step would change, interrupt and restart.
import { type PlannedStage, plan } from "../../federation/offboarding/workflow/plan.ts";
import { positionOf } from "../../records/format/stages.ts";
import { defineCommand } from "../lib/command.ts";
import { openOffboarding, RUN_OPTIONS } from "../lib/offboarding.ts";
import { print } from "../lib/output.ts";
import { planeLabel } from "../lib/progress.ts";

export const command = defineCommand({
  options: RUN_OPTIONS,
  help: "\nChanges nothing, and asks no server.",
  async run(_, options) {
    const planned = await plan(await openOffboarding(options), options.runId);
    print(options, planned, () => textOf(planned.stages));
  },
});

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
