// How the steps of a procedure are printed, whichever procedure it is: where each stands, and its conditions.
import { planeLabel } from "../../federation/plane-order.ts";
import type { Plan, PlannedStep } from "../../federation/workflow/plan.ts";
import type { StepStatus } from "../../federation/workflow/procedure.ts";
import type { JudgedCondition } from "../../federation/workflow/step-verdict.ts";
import type { Verdict } from "../../records/conditions/condition.ts";
import { isSettled } from "../../records/conditions/evaluate.ts";
import { renderTable, short } from "./output.ts";

const MARKS: Readonly<Record<Verdict, string>> = {
  ...{ met: "ok", not_applicable: "-", unmanaged: "unmanaged", not_met: "NO", unknown: "?" },
};

export function stepTable(steps: readonly StepStatus[]): string {
  const isShared = steps.some(({ other }) => other !== null);
  const theirs = isShared ? ["THEIRS", "SINCE"] : [];
  const rows = steps.map(({ step, planeNumber, own, other, commit }, index) => [
    ...[String(index + 1), step, planeNumber === null ? "-" : String(planeNumber)],
    ...[own.state, own.since ?? "-"],
    ...(isShared ? [other?.state ?? "-", other?.since ?? "-"] : []),
    short(commit),
  ]);
  return renderTable(["", "STEP", "PLANE", "OURS", "SINCE", ...theirs, "COMMIT"], rows);
}

export function conditionText(conditions: readonly JudgedCondition[]): string {
  if (conditions.length === 0) return "";
  const rows = conditions.map(({ condition, verdict, found }) => [MARKS[verdict], condition, found]);
  return [
    renderTable(["", "CONDITION", "FOUND"], rows),
    ...conditions.filter((one) => !isSettled(one)).map(({ condition, hint }) => `${condition}: ${hint}\n`),
  ].join("");
}

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
    ...files.map(({ path, diff }) => `  ${path}\n${diff.trimEnd().replaceAll(/^/gm, "    ")}`),
  ];
}
