// Selects the conditions of a plane; evaluate.ts judges by them, and docs/reference/conditions.md is generated from them.
// Invariants: a probe that an answer leaves out is no evidence; each condition of a plane has at least one requirement
// that the organisation's own operator must have observed.
import type { PlaneName } from "../format/stages.ts";
import { AGENT_CONDITIONS } from "./agent-conditions.ts";
import { CLOSED_CONDITIONS } from "./closed-conditions.ts";
import type { Condition, Direction, Extent } from "./condition.ts";
import { OPEN_CONDITIONS } from "./open-conditions.ts";

/** The conditions of one plane. An agent's identity is a matter of planes 4 and 5; elsewhere there are none. */
export function conditionsOf(
  plane: PlaneName,
  direction: Direction,
  extent: Extent = "partner",
): readonly Condition[] {
  if (extent === "agent") return AGENT_CONDITIONS[direction][plane] ?? [];
  return direction === "closed" ? CLOSED_CONDITIONS[plane] : OPEN_CONDITIONS[plane];
}

/** What of them the organisation's own parts show by themselves, without an attempt of the partner's. */
export function fromInside(conditions: readonly Condition[]): readonly Condition[] {
  return conditions.flatMap((condition) => {
    const requirements = condition.requirements.filter(({ byAttempt }) => byAttempt !== true);
    // What is left with optional requirements alone would be met without any evidence.
    return requirements.every(({ optional }) => optional === true) ? [] : [{ ...condition, requirements }];
  });
}
