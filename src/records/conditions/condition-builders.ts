import type { Part } from "../format/fields.ts";
import type { Answer, Condition, Direction, Observation, Requirement } from "./condition.ts";

/** One's own parts have no HTTP status unless one is named. */
export function answer(
  verdict: Direction,
  layers: readonly string[],
  reasons?: readonly (string | null)[],
  statuses: readonly (number | null)[] = [null],
): Answer {
  return { verdict, layers, statuses, ...(reasons !== undefined && { reasons }) };
}

export function byOperator(probe: string, answered: Answer, more: Partial<Observation> = {}): Observation {
  return { probe, vantage: "operator", answers: [answered], ...more };
}

export function asPartner(probe: string, ...answers: readonly Answer[]): Observation {
  return { probe, vantage: "partner", answers };
}

export function condition(part: Part, name: string, ...requirements: readonly Requirement[]): Condition {
  return { name, parts: [part], requirements };
}
export const atHomeserver = condition.bind(undefined, "homeserver");
export const atBridge = condition.bind(undefined, "bridge");
export const atGateway = condition.bind(undefined, "gateway");

export function need(
  subjects: Requirement["subjects"],
  observed: Observation | readonly Observation[],
  more: Partial<Requirement> = {},
): Requirement {
  return { subjects, anyOf: "probe" in observed ? [observed] : observed, ...more };
}

/** The reconciler has reached the declared state; or, where that is waivable, it names what it has not reached. */
export function inForce(
  verdict: Direction,
  parts: readonly Part[],
  more: Partial<Requirement> = {},
): Condition {
  const checks = ["names_revision"] as const;
  const anyOf = [byOperator("reconciled", answer(verdict, ["reconciler"], ["in_force"]), { checks })];
  return { name: "in_force", parts, requirements: [{ subjects: "none", anyOf, ...more }] };
}

export const LEFT = byOperator(
  "room_left",
  answer("closed", ["homeserver"], ["retired", "left", "replaced"], [200]),
);

export function absent(probe: string, layer: string, reason: string): Pick<Condition, "absence"> {
  return { absence: { observation: byOperator(probe, answer("closed", [layer], [reason])) } };
}
export const NO_AGENT_CONSUMED = absent("agents_consumed", "registry", "no_agent_consumed");
export const NO_ROOM_SHARED = absent("rooms_shared", "homeserver", "no_room_in_scope");

/** Of the agents that are offered to the partner, where there is any. */
export function ofAgents(name: string, ...requirements: readonly Requirement[]): Condition {
  const absence = absent("agents_offered", "registry", "no_agent_offered");
  return { ...atGateway(name, ...requirements), ...absence };
}
