// What the commands of federation control share: how they open the deployment, report progress, and print the steps of a
// procedure, whichever it is: where each stands, and its conditions.
import { systemClock, systemRandom } from "../../domain/clock.ts";
import { printableLine } from "../../domain/printable.ts";
import { loadFederationConfig } from "../../federation/config.ts";
import { outsideProbe } from "../../federation/evidence/observe-from-outside.ts";
import { PLANE_NUMBERS, type PlaneName, planeLabel } from "../../federation/plane-order.ts";
import { probeFromInside } from "../../federation/probes/from-inside.ts";
import { acceptedState } from "../../federation/reconcile/accept-head.ts";
import { openFederation, type Reporter } from "../../federation/reconcile/context.ts";
import { findPartner } from "../../federation/registry/partner.ts";
import type { Plan, PlannedStep } from "../../federation/workflow/plan.ts";
import type { StepStatus } from "../../federation/workflow/procedures.ts";
import type { JudgedCondition } from "../../federation/workflow/run-step.ts";
import type { Verdict } from "../../records/conditions/condition.ts";
import { isSettled } from "../../records/conditions/evaluate.ts";
import { type DeploymentOptions, fromConfigFile, renderTable, say, short, withReason } from "./command.ts";

export async function openForCommand(file: string, reporter: Reporter = progressReporter) {
  const config = fromConfigFile(file, "federation", loadFederationConfig);
  const onWait = () => say("another change is being made; waiting");
  return openFederation(config, { clock: systemClock, random: systemRandom, reporter, onWait });
}

/** Observes a partner as the registry has it. @throws DrawbridgeError `usage` when probe.yaml is about another one */
export async function probePartner(name: string, options: DeploymentOptions, planes: readonly PlaneName[]) {
  const federation = await openForCommand(options.config);
  const { config, parts } = federation;
  const current = await acceptedState(federation);
  if (current.refusal !== undefined) {
    say(`NOTE: the head is refused: ${current.refusal.detail}`);
    say(`The partner is probed by ${short(current.desired.revision)}, which was accepted before.`);
  }
  const { registry } = current.desired;
  const partner = findPartner(registry, name);
  const probe = outsideProbe(federation, options.probeConfig);
  const inside = await probeFromInside(federation, current.desired, partner, planes);
  const outside = (await probe?.(registry.organisation.serverName, partner, planes, inside)) ?? [];
  return { config, current, partner, parts, inside, outside };
}

/** A plane in a running text, where a bare `2 rooms` would be taken for a count: `plane 2 (rooms)`. */
export const planeWords = (plane: PlaneName): string => `plane ${PLANE_NUMBERS[plane]} (${plane})`;

export const progressReporter: Reporter = {
  event: (event) => say(textOf(event)),
  note: (plane, text) => say(`  ${planeWords(plane)}: ${text}`),
};

/** For a workflow that reports the end of each plane itself: what hinders it, and the notes of the slow rooms plane. */
export const workflowReporter: Reporter = {
  event: (event) => {
    if (event.event === "head_accepted" || event.event === "plane_begun") return;
    if (event.event !== "plane_ended" || event.hint !== null) progressReporter.event(event);
  },
  note: (plane, text) => {
    if (plane === "rooms") progressReporter.note(plane, text);
  },
};

function textOf(event: Parameters<Reporter["event"]>[0]): string {
  switch (event.event) {
    case "head_accepted":
      return `revision ${short(event.revision)} is accepted${event.order === null ? "" : `, in ${event.order} order`}`;
    case "head_refused":
      return [
        `REFUSED: ${event.detail} [${event.reason}]`,
        event.inForce ? `revision ${short(event.inForce)} stays in force` : "no revision was ever accepted",
        `hint: ${event.hint}`,
      ].join("\n");
    case "plane_begun":
      return `${planeWords(event.plane)}: applying ${short(event.revision)}`;
    case "plane_ended": {
      const { plane, outcome, reason, durationMs, hint, outOfReach } = event;
      const left = outOfReach.map((one) => `\n  not reached: ${printableLine(one.subject)} (${one.reason})`);
      const ended = `${planeWords(plane)}: ${withReason(outcome, reason)} after ${durationMs} ms`;
      return [ended, ...(hint === null ? [] : [`\n  hint: ${hint}`]), ...left].join("");
    }
    case "plane_waits":
      return `${planeWords(event.plane)}: another process is at work on it; waiting`;
    case "drift": {
      const kept = event.record.kept === null ? "" : `; its text is kept in ${event.record.kept}`;
      return `DRIFT: ${planeWords(event.record.plane)}: ${printableLine(event.record.subject)} was ${event.record.kind}${kept}`;
    }
    case "drift_unknown":
      return `${planeWords(event.plane)}: cannot be checked for drift (${event.code})`;
    case "state_damaged":
      return `${event.file} is damaged; the plane is applied again`;
  }
}

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
export function planText({ steps }: Pick<Plan, "steps">, more = (_: PlannedStep): readonly string[] => []) {
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
