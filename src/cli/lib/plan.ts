// How a plan is printed, whichever procedure it is of.
import type { Plan, PlannedStep } from "../../federation/workflow/plan.ts";
import { planeLabel } from "./progress.ts";

/** @param more lines below a step, by its name */
export function planText(
  { steps }: Pick<Plan, "steps">,
  more: (step: PlannedStep) => readonly string[] = () => [],
): string {
  if (steps.length === 0) return "Nothing is left to be changed.\n";
  return `${steps.map((step) => [...stepLines(step), ...more(step)].join("\n")).join("\n\n")}\n`;
}

function stepLines({ step, plane, state, files, restarts, interrupts }: PlannedStep): readonly string[] {
  const label = plane === null ? "" : `plane ${planeLabel(plane)}`;
  const title = plane === null || step === plane ? label || step : `${step}, ${label}`;
  return [
    `${title}${state === "pending" ? "" : `: ${state}`}`,
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
  ];
}
