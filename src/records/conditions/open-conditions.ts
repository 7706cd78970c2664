// What shows that a plane is open to a partner. Pure data.
import type { PlaneName } from "../format/stages.ts";
import type { Answer, Condition, Observation, Requirement } from "./condition.ts";
import {
  absent,
  answer,
  asPartner,
  atBridge,
  atHomeserver,
  byOperator,
  inForce,
  LEFT,
  NO_AGENT_CONSUMED,
  NO_ROOM_SHARED,
  need,
  ofAgents,
} from "./condition-builders.ts";

const open = answer.bind(undefined, "open");

/** What the partner may try besides; it need not, and nothing of ours may refuse it. */
function tried(subjects: Requirement["subjects"], probe: string, ...answers: readonly Answer[]): Requirement {
  return need(subjects, asPartner(probe, ...answers), { optional: true, ignoresUnknown: true });
}

/** Open or closed, and not otherwise than the room's state says. */
function eitherWay(probe: string, layer: string): Observation {
  const answers = (["open", "closed"] as const).map((verdict) => answer(verdict, [layer], [null], [200]));
  return { probe, vantage: "operator", answers };
}

const RETAINED: Observation = {
  probe: "room_acl_at_retained",
  vantage: "retained_server",
  answers: [open(["room_acl"], [null], [200])],
};

const TRUSTED = byOperator("card_trust", open(["bridge"], ["agent_card_verified"]), {
  checks: ["current_pin"],
});
const PUBLIC = open(["gateway"], undefined, [200]);
const NEVER = answer("closed", ["gateway"], ["never_published"], [404]);

export const OPEN_CONDITIONS: Readonly<Record<PlaneName, readonly Condition[]>> = {
  transport: [
    inForce("open", ["homeserver"]),
    atHomeserver(
      "whitelist_admits_partner",
      need("partner", byOperator("whitelist", open(["homeserver"], undefined, [200]))),
      tried("self", "federation_send", open(["homeserver"], ["accepted"], [200])),
    ),
  ],
  rooms: [
    inForce("open", ["homeserver"]),
    {
      // A room's state does not show what is enforced: the homeserver's own cache is required for each room.
      ...atHomeserver(
        "kept_rooms_hear_it",
        need("kept", byOperator("room_enforcement", open(["homeserver"], [null], [200]))),
        need("kept", byOperator("room_acl", open(["room_acl"], [null], [200]))),
        need("kept", RETAINED, { optional: true }),
      ),
      ...absent("rooms_kept", "journal", "no_room_kept"),
    },
    {
      // Other rooms may be closed to the partner, by their owners or on purpose; what they enforce is their state.
      ...atHomeserver(
        "other_rooms_hear_it",
        need("rooms", [eitherWay("room_enforcement", "homeserver"), LEFT]),
        need("rooms", [eitherWay("room_acl", "room_acl"), LEFT]),
        need(
          "rooms",
          { ...eitherWay("room_acl_at_retained", "room_acl"), vantage: "retained_server" },
          { optional: true },
        ),
      ),
      ...NO_ROOM_SHARED,
    },
  ],
  border: [
    inForce("open", ["homeserver"]),
    atHomeserver(
      "policy_admits_partner",
      need("partner", byOperator("policy_check", open(["border"], [null], [200]))),
      need("none", byOperator("policy_in_force", open(["border"], [null], [200]))),
    ),
  ],
  card: [
    inForce("open", ["gateway", "bridge"]),
    { ...atBridge("agent_card_verified", need("pins", TRUSTED)), ...NO_AGENT_CONSUMED },
    ofAgents(
      "card_published",
      need("agents", [byOperator("card_fetch", PUBLIC), byOperator("card_fetch", NEVER)]),
      tried("agents", "card_fetch", PUBLIC, { ...NEVER, reasons: ["no_route"] }),
    ),
  ],
  gateway: [
    inForce("open", ["gateway"]),
    ofAgents(
      "may_invoke",
      need("caller", byOperator("callers_in_force", open(["gateway"], ["azp_admitted"]))),
      need("caller", byOperator("issuer_client", open(["issuer"], ["client_enabled"]))),
      tried("caller", "token_request", open(["issuer"], ["token_issued"], [200])),
    ),
  ],
};
