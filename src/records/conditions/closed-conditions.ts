// What shows that a plane is closed to a partner, and that the data duties are done. Pure data.
import type { RecordPlane } from "../format/stages.ts";
import type { Answer, Condition, Observation, Requirement } from "./condition.ts";
import { absent, answer, asPartner, byOperator, inForce, LEFT } from "./observations.ts";

/** An answer that stops the partner. */
function closed(
  layers: readonly string[],
  reasons: readonly (string | null)[],
  statuses?: readonly (number | null)[],
): Answer {
  return answer("closed", layers, reasons, statuses);
}

const NO_AGENT = absent("agents_offered", "registry", "no_agent_offered");

const GATEWAY: readonly Condition[] = [
  inForce("closed", ["gateway"]),
  {
    name: "partner_not_rendered",
    parts: ["gateway"],
    requirements: [
      {
        subjects: "clients",
        anyOf: [
          byOperator("render", closed(["registry"], ["azp_not_rendered"]), { checks: ["names_revision"] }),
        ],
      },
      {
        subjects: "clients",
        anyOf: [
          byOperator(
            "callers_in_force",
            closed(["gateway"], ["azp_not_admitted", "azp_not_admitted_by_older_file"]),
          ),
        ],
      },
    ],
  },
  {
    name: "token_refused",
    parts: ["gateway"],
    requirements: [
      {
        subjects: "clients",
        anyOf: [byOperator("issuer_client", closed(["issuer"], ["client_disabled", "client_unknown"]))],
      },
      {
        subjects: "caller",
        byAttempt: true,
        anyOf: [
          asPartner(
            "token_request",
            closed(["issuer"], ["invalid_client", "unauthorized_client", "access_denied"], [400, 401]),
          ),
        ],
      },
      {
        subjects: "clients",
        anyOf: [byOperator("live_tokens", closed(["issuer"], ["no_new_tokens"]))],
        optional: true,
      },
    ],
  },
  {
    name: "invoke_refused",
    parts: ["gateway"],
    requirements: [
      {
        subjects: "agents",
        byAttempt: true,
        anyOf: [
          asPartner(
            "invoke",
            closed(["gateway"], ["no_route"], [404]),
            closed(["gateway"], ["jwt_missing", "jwt_expired", "jwt_refused", "unauthorized"], [401]),
            closed(["gateway"], ["rbac_access_denied", "jwt_refused", "forbidden"], [403]),
          ),
        ],
      },
    ],
    absence: { observation: NO_AGENT },
  },
];

/** A card is public for everybody or for nobody: one that others consume stays, and its use is refused. */
const STAYS: Answer = {
  verdict: "open",
  layers: ["gateway"],
  statuses: [200],
  reasons: ["published_always", "consumed_by_others"],
};

const CARD: readonly Condition[] = [
  inForce("closed", ["gateway", "bridge"]),
  {
    name: "card_gone_or_refused",
    parts: ["gateway"],
    requirements: [
      {
        subjects: "agents",
        anyOf: [
          byOperator("card_fetch", closed(["gateway"], ["card_withdrawn", "never_published"], [404])),
          byOperator("card_fetch", STAYS, {
            with: byOperator("card_use", closed(["gateway"], ["use_refused"])),
          }),
        ],
      },
      {
        subjects: "agents",
        anyOf: [asPartner("card_fetch", closed(["gateway"], ["no_route"], [404]))],
        optional: true,
      },
    ],
    absence: { observation: NO_AGENT },
  },
  {
    name: "agent_card_untrusted",
    parts: ["bridge"],
    requirements: [
      {
        subjects: "pins",
        anyOf: [byOperator("card_trust", closed(["bridge"], ["agent_card_untrusted", "not_in_agents_file"]))],
      },
    ],
    absence: {
      observation: absent("agents_consumed", "registry", "no_agent_consumed"),
    },
  },
  {
    name: "people_may_not_ask",
    parts: ["bridge"],
    requirements: [
      {
        subjects: "partner",
        anyOf: [byOperator("may_ask", closed(["bridge"], ["not_in_agents_file"]))],
      },
    ],
  },
];

function perRoom(...anyOf: readonly Observation[]): Requirement {
  return { subjects: "rooms", anyOf, waivable: true };
}

/** The server is refused where a join is prepared, or it has no member left through whom it could write. */
const KEPT_OUT: readonly Answer[] = [
  closed(["room_acl"], ["server_banned"], [403]),
  closed(["room_ban"], ["user_banned"], [403]),
  closed(["room_membership"], ["not_in_room"], [404]),
  closed(["room_membership"], ["no_member"], [403]),
  closed(["homeserver"], ["room_blocked"], [403]),
  closed(["transport"], ["federation_denied"], [403]),
  closed(["border"], ["not_allowed"], [403]),
];

/** What was sent did not arrive, and a refusal explains it, or what the witness sent after it did arrive. */
const NOT_TAKEN_IN: readonly Answer[] = [
  closed(["room_acl"], ["server_banned"]),
  closed(["room_membership"], ["no_member", "target_has_left"]),
  closed(["border"], ["server_not_allowed"]),
  closed(["transport"], ["federation_denied"]),
  closed(["not_seen"], ["not_arrived"]),
];

const IN_ROOM: readonly Requirement[] = ["message_to_target", "state_to_target"].map((probe) => ({
  subjects: "rooms",
  anyOf: [asPartner(probe, ...NOT_TAKEN_IN)],
  optional: true,
  ignoresUnknown: true,
}));

const NO_ROOM = {
  observation: absent("rooms_shared", "homeserver", "no_room_in_scope"),
} as const;

const ROOMS: readonly Condition[] = [
  // A room may be another's: the reconciler names what it could not close, and each of them is waived by name.
  inForce("closed", ["homeserver"], { waivable: true }),
  {
    name: "acl_excludes_partner",
    parts: ["homeserver"],
    requirements: [perRoom(byOperator("room_acl", closed(["room_acl"], [null], [200])), LEFT)],
    absence: NO_ROOM,
  },
  {
    name: "enforcement_holds",
    parts: ["homeserver"],
    requirements: [perRoom(byOperator("room_enforcement", closed(["homeserver"], [null], [200])), LEFT)],
    absence: NO_ROOM,
  },
  {
    name: "members_gone",
    parts: ["homeserver"],
    requirements: [
      perRoom(
        byOperator("room_members", closed(["homeserver"], [null], [200]), { checks: ["nobody_present"] }),
        LEFT,
      ),
    ],
    absence: NO_ROOM,
  },
  {
    name: "retained_servers_told",
    parts: ["homeserver"],
    requirements: [
      {
        subjects: "rooms",
        anyOf: [
          {
            probe: "room_acl_at_retained",
            vantage: "retained_server",
            answers: [closed(["room_acl"], [null], [200])],
          },
        ],
        optional: true,
        waivable: true,
      },
    ],
    optional: true,
  },
  {
    name: "kept_out_of_rooms",
    parts: ["homeserver"],
    requirements: [
      {
        subjects: "rooms",
        anyOf: [asPartner("make_join", ...KEPT_OUT)],
        optional: true,
        ignoresUnknown: true,
      },
      ...IN_ROOM,
    ],
    optional: true,
  },
];

/** The module has a policy in force that leaves the partner out, and not the one from before the removal. */
const POLICY_IN_FORCE = byOperator("policy_in_force", closed(["border"], [null], [200]), {
  checks: ["another_policy"],
});
const POLICY_CHECK = byOperator("policy_check", closed(["border"], ["server_not_allowed"], [200]), {
  checks: ["another_policy"],
});
/** Where the transport was closed before the border, nothing reaches the border that it could deny. */
const INVITE_AT_TRANSPORT = asPartner("invite", closed(["transport"], ["federation_denied"], [403]));

const BORDER: readonly Condition[] = [
  inForce("closed", ["homeserver"]),
  {
    name: "policy_digest_changed",
    parts: ["homeserver"],
    requirements: [
      { subjects: "none", anyOf: [POLICY_IN_FORCE] },
      { subjects: "partner", anyOf: [POLICY_CHECK] },
    ],
  },
  {
    name: "server_not_allowed",
    parts: ["homeserver"],
    requirements: [
      {
        subjects: "any",
        anyOf: [byOperator("violation", closed(["border"], ["server_not_allowed"])), INVITE_AT_TRANSPORT],
        ignoresUnknown: true,
        byAttempt: true,
      },
      {
        subjects: "any",
        anyOf: [
          asPartner("invite", closed(["border"], ["not_allowed", "dropped", "invite_refused"], [403])),
          INVITE_AT_TRANSPORT,
        ],
        optional: true,
        ignoresUnknown: true,
      },
    ],
  },
  {
    name: "no_restart",
    parts: ["homeserver"],
    requirements: [{ subjects: "none", anyOf: [{ ...POLICY_IN_FORCE, checks: ["same_process"] }] }],
  },
];

const TRANSPORT: readonly Condition[] = [
  inForce("closed", ["homeserver"]),
  {
    name: "whitelist_excludes_partner",
    parts: ["homeserver"],
    requirements: [
      {
        subjects: "partner",
        anyOf: [byOperator("whitelist", closed(["homeserver"], ["not_in_whitelist"], [200]))],
      },
    ],
  },
  {
    name: "send_refused",
    parts: ["homeserver"],
    requirements: [
      {
        subjects: "self",
        byAttempt: true,
        anyOf: [asPartner("federation_send", closed(["transport"], ["federation_denied"], [403]))],
      },
    ],
  },
];

export const CLOSED_CONDITIONS: Readonly<Record<RecordPlane, readonly Condition[]>> = {
  transport: TRANSPORT,
  rooms: ROOMS,
  border: BORDER,
  card: CARD,
  gateway: GATEWAY,
};

const ACCOUNTS: readonly Observation[] = ["rows_before", "rows_after", "history_kept"].map((probe) => ({
  probe,
  vantage: "operator",
  answers: [{ verdict: "closed", layers: ["database", "homeserver"] }],
}));
const DELETIONS = ["purge_media", "purge_room", "purge_history"] as const;

export const DUTIES_CONDITIONS: readonly Condition[] = [
  {
    name: "deletion_recorded",
    parts: ["homeserver"],
    requirements: [
      {
        subjects: "any",
        anyOf: DELETIONS.map((probe) => byOperator(probe, closed(["homeserver"], [null]))),
      },
      {
        subjects: "any",
        anyOf: [byOperator("purge_media", closed(["homeserver"], ["kept_by_contract"])), ...ACCOUNTS],
        optional: true,
      },
      // Rows that no interface of the homeserver deletes: each is waived by name.
      {
        subjects: "any",
        anyOf: [{ probe: "rows_left", vantage: "operator", answers: [] }],
        optional: true,
        waivable: true,
      },
    ],
    absence: {
      observation: {
        probe: "purge_waived",
        vantage: "operator",
        answers: [{ verdict: "closed", layers: ["private_record"] }],
      },
      instead: true,
    },
  },
  {
    name: "duties_recorded",
    parts: ["homeserver"],
    requirements: [
      { subjects: "none", anyOf: [byOperator("duties", closed(["private_record"], ["recorded"]))] },
    ],
  },
  {
    name: "static_tests_pass",
    parts: ["homeserver"],
    requirements: [
      { subjects: "none", anyOf: [byOperator("check_federation", closed(["registry"], ["passed"]))] },
    ],
  },
];
