// What shows that a plane is open to a partner. Pure data.
import type { Part } from "../format/scope.ts";
import type { RecordPlane } from "../format/stages.ts";
import type { Answer, Condition, Observation, Requirement } from "./condition.ts";

function open(
  layers: readonly string[],
  reasons?: readonly (string | null)[],
  statuses: readonly (number | null)[] = [null],
): Answer {
  return { verdict: "open", layers, statuses, ...(reasons !== undefined && { reasons }) };
}

function byOperator(probe: string, answer: Answer, more: Partial<Observation> = {}): Observation {
  return { probe, vantage: "operator", answers: [answer], ...more };
}

function inForce(...parts: readonly Part[]): Condition {
  const checks = ["names_revision"] as const;
  const anyOf = [byOperator("reconciled", open(["reconciler"], ["in_force"]), { checks })];
  return { name: "in_force", parts, requirements: [{ subjects: "none", anyOf }] };
}

/** What the partner may try besides; it need not, and nothing of ours may refuse it. */
function tried(subjects: Requirement["subjects"], probe: string, ...answers: readonly Answer[]): Requirement {
  return {
    ...{ subjects, anyOf: [{ probe, vantage: "partner", answers }] },
    ...{ optional: true, ignoresUnknown: true },
  };
}

/** There is nothing that a condition could be about. */
function absent(layer: string, reason: string): Answer {
  return { verdict: "closed", layers: [layer], reasons: [reason] };
}

/** Open or closed, and not otherwise than the room's state says. */
function eitherWay(probe: string, layer: string): Observation {
  const found = { layers: [layer], reasons: [null], statuses: [200] } as const;
  const answers = [
    { ...found, verdict: "open" },
    { ...found, verdict: "closed" },
  ] as const;
  return { probe, vantage: "operator", answers };
}

const RETAINED: Observation = {
  probe: "room_acl_at_retained",
  vantage: "retained_server",
  answers: [open(["room_acl"], [null], [200])],
};

/** Our own people have left the room, or it was replaced. */
const LEFT = byOperator("room_left", {
  ...{ verdict: "closed", layers: ["homeserver"], reasons: ["retired", "left", "replaced"], statuses: [200] },
});

const PUBLIC = open(["gateway"], undefined, [200]);
/** An agent whose card is published for nobody. */
const NEVER: Answer = {
  ...{ verdict: "closed", layers: ["gateway"], reasons: ["never_published"], statuses: [404] },
};

function condition(name: string, part: Part, ...requirements: readonly Requirement[]): Condition {
  return { name, parts: [part], requirements };
}

export const OPEN_CONDITIONS: Readonly<Record<RecordPlane, readonly Condition[]>> = {
  transport: [
    inForce("homeserver"),
    condition(
      "whitelist_admits_partner",
      "homeserver",
      { subjects: "partner", anyOf: [byOperator("whitelist", open(["homeserver"], undefined, [200]))] },
      tried("self", "federation_send", open(["homeserver"], ["accepted"], [200])),
    ),
  ],
  rooms: [
    inForce("homeserver"),
    {
      // A room's state does not show what is enforced: the homeserver's own cache is required for each room.
      ...condition(
        "kept_rooms_hear_it",
        "homeserver",
        { subjects: "kept", anyOf: [byOperator("room_enforcement", open(["homeserver"], [null], [200]))] },
        { subjects: "kept", anyOf: [byOperator("room_acl", open(["room_acl"], [null], [200]))] },
        { subjects: "kept", anyOf: [RETAINED], optional: true },
      ),
      absence: { observation: byOperator("rooms_kept", absent("journal", "no_room_kept")) },
    },
    {
      // Other rooms may be closed to the partner, by their owners or on purpose; what they enforce is their state.
      ...condition(
        "other_rooms_hear_it",
        "homeserver",
        { subjects: "rooms", anyOf: [eitherWay("room_enforcement", "homeserver"), LEFT] },
        { subjects: "rooms", anyOf: [eitherWay("room_acl", "room_acl"), LEFT] },
        {
          ...{ subjects: "rooms", optional: true },
          anyOf: [{ ...eitherWay("room_acl_at_retained", "room_acl"), vantage: "retained_server" }],
        },
      ),
      absence: { observation: byOperator("rooms_shared", absent("homeserver", "no_room_in_scope")) },
    },
  ],
  border: [
    inForce("homeserver"),
    condition(
      "policy_admits_partner",
      "homeserver",
      { subjects: "partner", anyOf: [byOperator("policy_check", open(["border"], [null], [200]))] },
      { subjects: "none", anyOf: [byOperator("policy_in_force", open(["border"], [null], [200]))] },
    ),
  ],
  card: [
    inForce("gateway", "bridge"),
    {
      ...condition("agent_card_verified", "bridge", {
        subjects: "pins",
        anyOf: [
          byOperator("card_trust", open(["bridge"], ["agent_card_verified"]), { checks: ["current_pin"] }),
        ],
      }),
      absence: { observation: byOperator("agents_consumed", absent("registry", "no_agent_consumed")) },
    },
    {
      ...condition(
        "card_published",
        "gateway",
        { subjects: "agents", anyOf: [byOperator("card_fetch", PUBLIC), byOperator("card_fetch", NEVER)] },
        tried("agents", "card_fetch", PUBLIC, { ...NEVER, reasons: ["no_route"] }),
      ),
      absence: { observation: byOperator("agents_offered", absent("registry", "no_agent_offered")) },
    },
  ],
  gateway: [
    inForce("gateway"),
    {
      ...condition(
        "may_invoke",
        "gateway",
        { subjects: "caller", anyOf: [byOperator("callers_in_force", open(["gateway"], ["azp_admitted"]))] },
        { subjects: "caller", anyOf: [byOperator("issuer_client", open(["issuer"], ["client_enabled"]))] },
        tried("caller", "token_request", open(["issuer"], ["token_issued"], [200])),
      ),
      absence: { observation: byOperator("agents_offered", absent("registry", "no_agent_offered")) },
    },
  ],
};
