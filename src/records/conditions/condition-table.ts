// The table of conditions: what shows that a plane is closed or open to a partner, that the data duties are done, or that
// one agent's identity was changed. Pure data: evaluate.ts judges by it, and docs/reference/conditions.md is generated from
// it. Invariants: a probe that an answer leaves out is no evidence; each condition of a plane has at least one requirement
// that the organisation's own operator must have observed.
import { DELETIONS, type Vantage } from "../format/evidence-item.ts";
import type { Part } from "../format/fields.ts";
import type { PlaneName } from "../format/removal-stages.ts";
import type { Answer, Check, Condition, Direction, Observation, Requirement, Subjects } from "./condition.ts";

/** One's own parts have no HTTP status unless one is named. */
function answer(
  verdict: Direction,
  layer: string,
  reasons?: readonly (string | null)[],
  statuses: readonly (number | null)[] = [null],
): Answer {
  return { verdict, layers: [layer], statuses, ...(reasons !== undefined && { reasons }) };
}
const open = answer.bind(undefined, "open");
const closed = answer.bind(undefined, "closed");

function observed(vantage: Vantage, probe: string, ...answers: readonly Answer[]): Observation {
  return { probe, vantage, answers };
}
const byOperator = observed.bind(undefined, "operator");
const asPartner = observed.bind(undefined, "partner");

const checked = (observation: Observation, check: Check) => ({ ...observation, checks: [check] });

/** What the homeserver says of a room: any of these verdicts. */
function ofRoom(probe: string, layer: string, ...verdicts: readonly Direction[]): Observation {
  return byOperator(probe, ...verdicts.map((verdict) => answer(verdict, layer, [null], [200])));
}

function retained(...verdicts: readonly Direction[]): Observation {
  return { ...ofRoom("room_acl_at_retained", "room_acl", ...verdicts), vantage: "retained_server" };
}

/** One's own part says that it stops the partner. */
function ownPart(probe: string, ...answered: Parameters<typeof closed>): Observation {
  return byOperator(probe, closed(...answered));
}

function condition(part: Part, name: string, ...requirements: readonly Requirement[]): Condition {
  return { name, parts: [part], requirements };
}
const atHomeserver = condition.bind(undefined, "homeserver");
const atBridge = condition.bind(undefined, "bridge");
const atGateway = condition.bind(undefined, "gateway");

function need(subjects: Subjects, by: Observation | readonly Observation[], more: Partial<Requirement> = {}) {
  return { subjects, anyOf: "probe" in by ? [by] : by, ...more };
}

/** What only an attempt of the partner's shows. */
function attempt(subjects: Subjects, probe: string, ...answers: readonly Answer[]): Requirement {
  return need(subjects, asPartner(probe, ...answers), { byAttempt: true });
}

/** What the partner may try besides: it need not, and an attempt without an answer counts neither way. */
function tried(subjects: Subjects, probe: string, ...answers: readonly Answer[]): Requirement {
  return need(subjects, asPartner(probe, ...answers), { optional: true, ignoresUnknown: true });
}

/** The reconciler has reached the declared state; or, where that is waivable, it names what it has not reached. */
function inForce(verdict: Direction, parts: readonly Part[], more: Partial<Requirement> = {}): Condition {
  const reached = byOperator("reconciled", answer(verdict, "reconciler", ["in_force"]));
  return { name: "in_force", parts, requirements: [need("none", checked(reached, "names_revision"), more)] };
}

const LEFT = ownPart("room_left", "homeserver", ["retired", "left", "replaced"], [200]);

function absent(probe: string, layer: string, reason: string): Pick<Condition, "absence"> {
  return { absence: { observation: ownPart(probe, layer, [reason]) } };
}
const NO_AGENT_CONSUMED = absent("agents_consumed", "registry", "no_agent_consumed");
const NO_ROOM_SHARED = absent("rooms_shared", "homeserver", "no_room_in_scope");

/** Of the agents that are offered to the partner, where there is any. */
function ofAgents(name: string, ...requirements: readonly Requirement[]): Condition {
  const absence = absent("agents_offered", "registry", "no_agent_offered");
  return { ...atGateway(name, ...requirements), ...absence };
}

const OPTIONAL = { optional: true } as const;
const WAIVABLE = { waivable: true } as const;
const OPTIONAL_AND_WAIVABLE = { ...OPTIONAL, ...WAIVABLE };
const ATTEMPTED = { ignoresUnknown: true, byAttempt: true } as const;

function ifObserved(name: string, ...requirements: readonly Requirement[]): Condition {
  return { ...atHomeserver(name, ...requirements), ...OPTIONAL };
}

/** A card is public for everybody or for nobody: one that others consume stays, and its use is refused. */
const STAYS = open("gateway", ["published_always", "consumed_by_others"], [200]);
const UNTRUSTED = ownPart("card_trust", "bridge", ["agent_card_untrusted", "not_in_agents_file"]);
const DENIED = closed("transport", ["federation_denied"], [403]);

/** The server is refused where a join is prepared, or it has no member left through whom it could write. */
const KEPT_OUT: readonly Answer[] = [
  closed("room_acl", ["server_banned"], [403]),
  closed("room_ban", ["user_banned"], [403]),
  closed("room_membership", ["not_in_room"], [404]),
  closed("room_membership", ["no_member"], [403]),
  closed("homeserver", ["room_blocked"], [403]),
  DENIED,
  closed("border", ["not_allowed"], [403]),
];

/** What was sent did not arrive, and a refusal explains it, or what the witness sent after it did arrive. */
const NOT_TAKEN_IN: readonly Answer[] = [
  closed("room_acl", ["server_banned"]),
  closed("room_membership", ["no_member", "target_has_left"]),
  closed("border", ["server_not_allowed"]),
  closed("transport", ["federation_denied"]),
  closed("not_observed", ["not_arrived"]),
];

function inEachRoom(name: string, observation: Observation): Condition {
  return { ...atHomeserver(name, need("rooms", [observation, LEFT], WAIVABLE)), ...NO_ROOM_SHARED };
}

/** The module has a policy in force that leaves the partner out, and not the one from before the removal. */
const POLICY_IN_FORCE = ownPart("policy_in_force", "border", [null], [200]);
const POLICY_CHECK = ownPart("policy_check", "border", ["server_not_allowed"], [200]);
/** Where the transport was closed before the border, nothing reaches the border that it could deny. */
const AT_TRANSPORT = asPartner("invite", DENIED);
const AT_BORDER = asPartner("invite", closed("border", ["not_allowed", "dropped", "invite_refused"], [403]));
const CLOSED = inForce("closed", ["homeserver"]);
const NOT_LISTED = ownPart("whitelist", "homeserver", ["not_in_whitelist"], [200]);
const NO_TOKEN = closed("issuer", ["invalid_client", "unauthorized_client", "access_denied"], [400, 401]);

const CLOSED_CONDITIONS: Readonly<Record<PlaneName, readonly Condition[]>> = {
  transport: [
    CLOSED,
    atHomeserver("whitelist_excludes_partner", need("partner", NOT_LISTED)),
    atHomeserver("send_refused", attempt("self", "federation_send", DENIED)),
  ],
  rooms: [
    // A room may be another's: the reconciler names what it could not close, and each of them is waived by name.
    inForce("closed", ["homeserver"], WAIVABLE),
    inEachRoom("acl_excludes_partner", ofRoom("room_acl", "room_acl", "closed")),
    inEachRoom("enforcement_holds", ofRoom("room_enforcement", "homeserver", "closed")),
    inEachRoom("members_gone", checked(ofRoom("room_members", "homeserver", "closed"), "nobody_present")),
    ifObserved("retained_servers_notified", need("rooms", retained("closed"), OPTIONAL_AND_WAIVABLE)),
    ifObserved(
      "kept_out_of_rooms",
      tried("rooms", "make_join", ...KEPT_OUT),
      tried("rooms", "message_to_target", ...NOT_TAKEN_IN),
      tried("rooms", "state_to_target", ...NOT_TAKEN_IN),
    ),
  ],
  border: [
    CLOSED,
    atHomeserver(
      "policy_digest_changed",
      need("none", checked(POLICY_IN_FORCE, "another_policy")),
      need("partner", checked(POLICY_CHECK, "another_policy")),
    ),
    atHomeserver(
      "server_not_allowed",
      need("any", [ownPart("violation", "border", ["server_not_allowed"]), AT_TRANSPORT], ATTEMPTED),
      need("any", [AT_BORDER, AT_TRANSPORT], { optional: true, ignoresUnknown: true }),
    ),
    atHomeserver("no_restart", need("none", checked(POLICY_IN_FORCE, "same_process"))),
  ],
  card: [
    inForce("closed", ["gateway", "bridge"]),
    ofAgents(
      "card_gone_or_refused",
      need("agents", [
        ownPart("card_fetch", "gateway", ["card_withdrawn", "never_published"], [404]),
        { ...byOperator("card_fetch", STAYS), with: ownPart("card_use", "gateway", ["use_refused"]) },
      ]),
      need("agents", asPartner("card_fetch", closed("gateway", ["no_route"], [404])), OPTIONAL),
    ),
    { ...atBridge("agent_card_untrusted", need("pins", UNTRUSTED)), ...NO_AGENT_CONSUMED },
    atBridge("people_may_not_ask", need("partner", ownPart("may_ask", "bridge", ["not_in_agents_file"]))),
  ],
  gateway: [
    inForce("closed", ["gateway"]),
    atGateway(
      "partner_not_rendered",
      need("clients", checked(ownPart("render", "registry", ["azp_not_rendered"]), "names_revision")),
      need(
        "clients",
        ownPart("callers_in_force", "gateway", ["azp_not_admitted", "azp_not_admitted_by_older_file"]),
      ),
    ),
    atGateway(
      "token_refused",
      need("clients", ownPart("issuer_client", "issuer", ["client_disabled", "client_unknown"])),
      attempt("caller", "token_request", NO_TOKEN),
      need("clients", ownPart("live_tokens", "issuer", ["no_new_tokens"]), OPTIONAL),
    ),
    ofAgents(
      "invoke_refused",
      attempt(
        "agents",
        "invoke",
        closed("gateway", ["no_route"], [404]),
        closed("gateway", ["jwt_missing", "jwt_expired", "jwt_refused", "unauthorized"], [401]),
        closed("gateway", ["rbac_access_denied", "jwt_refused", "forbidden"], [403]),
      ),
    ),
  ],
};

/** What a purge counts; it counts for nothing by itself. */
const ACCOUNTS = ["rows_before", "rows_after", "history_kept"].map((probe) =>
  byOperator(probe, { ...closed("database"), layers: ["database", "homeserver"] }),
);
const PURGED = DELETIONS.map((probe) => ownPart(probe, "homeserver", [null]));

export const DUTIES_CONDITIONS: readonly Condition[] = [
  {
    ...atHomeserver(
      "deletion_recorded",
      need("any", PURGED),
      need("any", [ownPart("purge_media", "homeserver", ["kept_by_contract"]), ...ACCOUNTS], OPTIONAL),
      // Rows that no interface of the homeserver deletes: each is waived by name.
      need("any", byOperator("rows_left"), OPTIONAL_AND_WAIVABLE),
    ),
    absence: { observation: ownPart("purge_waived", "private_record"), instead: true },
  },
  atHomeserver("duties_recorded", need("none", ownPart("duties", "private_record", ["recorded"]))),
  atHomeserver("static_tests_pass", need("none", ownPart("check_federation", "registry", ["passed"]))),
];

const TRUSTED = checked(byOperator("card_trust", open("bridge", ["agent_card_verified"])), "current_pin");
const PUBLIC = open("gateway", undefined, [200]);
const NEVER = closed("gateway", ["never_published"], [404]);

const OPEN_CONDITIONS: Readonly<Record<PlaneName, readonly Condition[]>> = {
  transport: [
    inForce("open", ["homeserver"]),
    atHomeserver(
      "whitelist_admits_partner",
      need("partner", byOperator("whitelist", open("homeserver", undefined, [200]))),
      tried("self", "federation_send", open("homeserver", ["accepted"], [200])),
    ),
  ],
  rooms: [
    inForce("open", ["homeserver"]),
    {
      // A room's state does not show what is enforced: the homeserver's own cache is required for each room.
      ...atHomeserver(
        "kept_rooms_hear_it",
        need("kept", ofRoom("room_enforcement", "homeserver", "open")),
        need("kept", ofRoom("room_acl", "room_acl", "open")),
        need("kept", retained("open"), OPTIONAL),
      ),
      ...absent("rooms_kept", "journal", "no_room_kept"),
    },
    {
      // Other rooms may be closed to the partner, by their owners or on purpose; what they enforce is their state.
      ...atHomeserver(
        "other_rooms_hear_it",
        need("rooms", [ofRoom("room_enforcement", "homeserver", "open", "closed"), LEFT]),
        need("rooms", [ofRoom("room_acl", "room_acl", "open", "closed"), LEFT]),
        need("rooms", retained("open", "closed"), OPTIONAL),
      ),
      ...NO_ROOM_SHARED,
    },
  ],
  border: [
    inForce("open", ["homeserver"]),
    atHomeserver(
      "policy_admits_partner",
      need("partner", byOperator("policy_check", open("border", [null], [200]))),
      need("none", byOperator("policy_in_force", open("border", [null], [200]))),
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
      need("caller", byOperator("callers_in_force", open("gateway", ["azp_admitted"]))),
      need("caller", byOperator("issuer_client", open("issuer", ["client_enabled"]))),
      tried("caller", "token_request", open("issuer", ["token_issued"], [200])),
    ),
  ],
};

function ofAgent(name: string, part: Part, by: Observation, more: Partial<Condition> = {}): Condition {
  return { ...condition(part, name, need("pins", by)), ...more };
}

function withdrawn(probe: string, layer: string, ...reasons: readonly string[]): Condition {
  return ofAgent("agent_withdrawn", "homeserver", ownPart(probe, layer, reasons));
}

const AGENT_CONDITIONS: Record<Direction, Partial<Record<PlaneName, readonly Condition[]>>> = {
  open: {
    card: [
      inForce("open", ["homeserver"]),
      // Cards are verified against a pin, by this machine, and the reason is the verifier's. There is no old identity where
      // an agent is pinned for the first time.
      ofAgent("old_identity_fails", "homeserver", ownPart("old_identity", "card"), OPTIONAL),
      ofAgent("new_identity_verifies", "homeserver", byOperator("new_identity", open("card"))),
      ofAgent("old_key_not_served", "homeserver", ownPart("served_by_old_pin", "card"), OPTIONAL),
      ofAgent("bridge_has_verified", "bridge", TRUSTED),
    ],
  },
  closed: {
    gateway: [CLOSED, withdrawn("callers_of_agent", "gateway", "no_route", "azp_not_admitted")],
    card: [
      CLOSED,
      withdrawn("agents_file", "bridge", "not_in_agents_file"),
      ofAgent("bridge_trusts_it_no_more", "bridge", UNTRUSTED),
    ],
  },
};

/** The conditions of one plane. An agent's identity is a matter of planes 4 and 5; elsewhere there are none. */
export function conditionsOf(plane: PlaneName, wanted: Direction, extent: "partner" | "agent" = "partner") {
  if (extent === "agent") return AGENT_CONDITIONS[wanted][plane] ?? [];
  return wanted === "closed" ? CLOSED_CONDITIONS[plane] : OPEN_CONDITIONS[plane];
}

/** What of them the organisation's own parts show by themselves, without an attempt of the partner's. */
export function fromInside(conditions: readonly Condition[]): readonly Condition[] {
  return conditions.flatMap((condition) => {
    const requirements = condition.requirements.filter(({ byAttempt }) => byAttempt !== true);
    // What is left with optional requirements alone would be met without any evidence.
    return requirements.every(({ optional }) => optional === true) ? [] : [{ ...condition, requirements }];
  });
}
