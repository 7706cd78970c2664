// What shows that the identity of one agent was changed (`open`: pinned or rotated) or given up (`closed`:
// withdrawn). The agent is the one entry of the scope's `pins`. Pure data.
import type { Part } from "../format/fields.ts";
import type { PlaneName } from "../format/stages.ts";
import type { Condition, Direction, Observation } from "./condition.ts";
import { answer, byOperator, condition, inForce, need } from "./condition-builders.ts";

/** A card verified against a pin, by this machine: the reason is the verifier's. */
function byPin(probe: string, verdict: "open" | "closed"): Observation {
  return byOperator(probe, answer(verdict, ["card"]));
}

function ofAgent(name: string, part: Part, observed: Observation, more: Partial<Condition> = {}): Condition {
  return { ...condition(part, name, need("pins", observed)), ...more };
}

const OPTIONAL = { optional: true } as const;

function withdrawn(probe: string, layer: string, ...reasons: readonly string[]): Condition {
  return ofAgent("agent_withdrawn", "homeserver", byOperator(probe, answer("closed", [layer], reasons)));
}

export const AGENT_CONDITIONS: Readonly<
  Record<Direction, Readonly<Partial<Record<PlaneName, readonly Condition[]>>>>
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
