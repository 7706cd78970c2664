// The conditions of every plane, by direction and extent, and those of the data duties: which probes show each, from
// where, with which answers, about which subjects. Pure data; evaluate.ts judges by it, and
// docs/reference/conditions.md is generated from it.
// Invariants: a probe that an answer leaves out is no evidence; each condition of a plane has at least one requirement
// that the organisation's own operator must have observed.

import type { Part } from "../format/fields.ts";
import type { RecordPlane } from "../format/stages.ts";
import { CLOSED_CONDITIONS, DUTIES_CONDITIONS } from "./closed-conditions.ts";
import type { Condition, Direction, Extent, Observation } from "./condition.ts";
import { answer, byOperator, condition, inForce, need } from "./condition-builders.ts";
import { OPEN_CONDITIONS } from "./open-conditions.ts";

export const DUTIES = DUTIES_CONDITIONS;

/** The conditions of one plane. An agent's identity is a matter of planes 4 and 5; elsewhere there are none. */
export function conditionsOf(
  plane: RecordPlane,
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

// What shows that the identity of one agent was changed (`open`: pinned or rotated) or given up (`closed`:
// withdrawn). The agent is the one entry of the scope's `pins`. Pure data.

/** A card verified against a pin, by this machine: the reason is the verifier's. */
function byPin(probe: string, verdict: "open" | "closed"): Observation {
  return byOperator(probe, answer(verdict, ["card"]));
}

function ofAgent(name: string, part: Part, observed: Observation, more: Partial<Condition> = {}): Condition {
  return { ...condition(name, part, need("pins", observed)), ...more };
}

const OPTIONAL = { optional: true } as const;

/** What is in force for the program names the agent no more. */
function withdrawn(probe: string, layer: string, ...reasons: readonly string[]): Condition {
  return ofAgent("agent_withdrawn", "homeserver", byOperator(probe, answer("closed", [layer], reasons)));
}

const AGENT_CONDITIONS: Readonly<
  Record<Direction, Readonly<Partial<Record<RecordPlane, readonly Condition[]>>>>
> = {
  open: {
    card: [
      inForce("open", ["homeserver"]),
      // There is no old identity where an agent is pinned for the first time.
      ofAgent("old_identity_fails", "homeserver", byPin("old_identity", "closed"), OPTIONAL),
      ofAgent("new_identity_verifies", "homeserver", byPin("new_identity", "open")),
      ofAgent("old_key_not_served", "homeserver", byPin("served_by_old_pin", "closed"), OPTIONAL),
      ofAgent(
        "bridge_has_verified",
        "bridge",
        byOperator("card_trust", answer("open", ["bridge"], ["agent_card_verified"]), {
          checks: ["current_pin"],
        }),
      ),
    ],
  },
  closed: {
    gateway: [
      inForce("closed", ["homeserver"]),
      withdrawn("callers_of_agent", "gateway", "no_route", "azp_not_admitted"),
    ],
    card: [
      inForce("closed", ["homeserver"]),
      withdrawn("agents_file", "bridge", "not_in_agents_file"),
      ofAgent(
        "bridge_trusts_it_no_more",
        "bridge",
        byOperator(
          "card_trust",
          answer("closed", ["bridge"], ["agent_card_untrusted", "not_in_agents_file"]),
        ),
      ),
    ],
  },
};
