// The exit conditions of every stage, in their order.

import { DELETION_RECORDED, showsPurge } from "../../../records/format/duties.ts";
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import type { StageName } from "../../../records/format/stages.ts";
import {
  CARD_USE,
  DUTIES,
  NO_PINS,
  NOTHING_THERE,
  type Observation,
  PURGE_WAIVED,
  RECONCILED,
  RENDER,
  type Rule,
  STATIC_TESTS,
  VIOLATION,
} from "./observation.ts";

export const STAGE_RULES: Readonly<Record<StageName, (seen: Observation) => readonly Rule[]>> = {
  a2a_stop: stopRules,
  a2a_discovery: discoveryRules,
  room: roomRules,
  policy_border: borderRules,
  transport: transportRules,
  data_duties: dutiesRules,
};

// Stage 1 closes plane 5: the render omits the counterparty's `azp` and route, its client gets no token, and
// the exact POST is refused.

export function stopRules({ partner, runs }: Observation): readonly Rule[] {
  const absent =
    partner?.gateway === undefined || !runs.gateway ? { shownAbsentBy: NOTHING_THERE } : undefined;
  return [
    {
      condition: "partner_not_rendered",
      probes: [RENDER, "callers_in_force"],
      needs: [RENDER, "callers_in_force"],
      hint: "Render and commit; then see that the gateway runs and follows its files (drawbridge federation status).",
      ...absent,
    },
    {
      condition: "token_refused",
      probes: ["token_request", "issuer_client", "live_tokens"],
      needs: ["issuer_client", "token_request"],
      hint: "Disable the client at the issuer: drawbridge reconcile --once --plane gateway.",
      ...absent,
    },
    {
      condition: "invoke_refused",
      probes: ["invoke"],
      needs: ["invoke"],
      hint: "The gateway still lets it through: drawbridge reconcile --once --plane gateway.",
      ...absent,
    },
  ];
}

// Stage 2 closes plane 4: the public card is gone, and our bridge trusts the counterparty's no more.
// Invariant: a card is public or not for everybody. One that others lawfully consume stays; then what must
// hold is that the counterparty's use of it is refused.

const FOR_OTHERS: ReadonlySet<string | null> = new Set(["published_always", "consumed_by_others"]);

/** Agents of ours whose card lawfully stays public, as the operator's own look says. */
export function publicForOthers(items: readonly EvidenceItem[]): ReadonlySet<string> {
  const staying = items.filter(
    ({ probe, vantage, verdict, reason }) =>
      probe === "card_fetch" && vantage === "operator" && verdict === "open" && FOR_OTHERS.has(reason),
  );
  return new Set(staying.flatMap(({ subject }) => subject ?? []));
}

export function discoveryRules({ partner, runs, items }: Observation): readonly Rule[] {
  const invokes = partner?.gateway?.invokes ?? [];
  const hasCards = runs.gateway && invokes.length > 0;
  const hasPins = runs.bridge && Object.keys(partner?.card.consumes ?? {}).length > 0;
  const staying = publicForOthers(items);
  const allStay = hasCards && invokes.every((agent) => staying.has(agent));
  return [
    {
      condition: "card_gone",
      probes: ["card_fetch"],
      needs: ["card_fetch"],
      hint: "The gateway still publishes it: drawbridge reconcile --once --plane card.",
      excused: ({ subject }) => staying.has(subject ?? ""),
      ...(!hasCards && { shownAbsentBy: NOTHING_THERE }),
      ...(allStay && { shownAbsentBy: CARD_USE }),
    },
    ...(staying.size === 0
      ? []
      : [
          {
            condition: "use_refused",
            probes: [CARD_USE],
            needs: [CARD_USE],
            hint: "Sign stage 1 first: the card stays public, so its use has to be seen refused.",
          },
        ]),
    {
      condition: "agent_card_untrusted",
      probes: ["card_trust"],
      needs: ["card_trust"],
      hint: "See that the bridge runs and follows agents.yaml; its audit must say agent_card_untrusted.",
      ...(!hasPins && { shownAbsentBy: NO_PINS }),
    },
  ];
}

// Stage 3 closes plane 2: the authenticated ACL state shows the counterparty removed, and the enforcement
// holds in every governed room. An organisation that governs no room shows that by what the reconciler reached.

const ACL_PROBES = ["room_acl", "room_left"];

export function roomRules({ items, outOfReach }: Observation): readonly Rule[] {
  const hasRooms = items.some(({ probe }) => ACL_PROBES.includes(probe)) || outOfReach.length > 0;
  const beyond = new Set(outOfReach.map(({ subject }) => subject));
  const again = "drawbridge reconcile --once --plane rooms; what stays out of reach is waived by name.";
  return [
    {
      condition: "acl_excludes_partner",
      probes: hasRooms ? ACL_PROBES : [RECONCILED],
      needs: hasRooms ? [] : [RECONCILED],
      hint: `A room's ACL still admits it: ${again}`,
    },
    {
      condition: "enforcement_holds",
      probes: ["room_enforcement"],
      needs: ["room_enforcement"],
      hint: `A server does not enforce the ACL: ${again}`,
      optional: !items.some(({ probe }) => probe === "room_enforcement"),
    },
    {
      condition: "members_gone",
      probes: ["room_members"],
      needs: ["room_members"],
      hint: `Its people are still members: ${again}`,
      optional: !items.some(({ probe }) => probe === "room_members"),
    },
    {
      condition: "retained_servers_told",
      probes: ["room_acl_at_retained"],
      needs: ["room_acl_at_retained"],
      hint: `A retained server does not show the ACL: ${again}`,
      optional: !items.some(({ probe }) => probe === "room_acl_at_retained"),
    },
    {
      // What third servers relay is no matter of this condition: it stays, and the residual statement says so.
      condition: "kept_out_of_rooms",
      probes: ["make_join", "message_to_target", "state_to_target"],
      needs: ["make_join"],
      hint: `It can still come in: ${again}`,
      ignoresUnclear: true,
      optional: !items.some(
        ({ probe, verdict, subject }) =>
          probe === "make_join" && verdict !== "unknown" && !beyond.has(subject ?? probe),
      ),
    },
  ];
}

// Stage 4 closes plane 3: another policy is in force, a denial by it was seen, and nothing was restarted.

const STARTED = "started_at=";

/** When the homeserver that answers was started, if its border module says so. */
export function startedAtIn(items: readonly EvidenceItem[]): string | null {
  for (const { probe, references } of items) {
    if (probe !== "policy_in_force") continue;
    const found = references.find((reference) => reference.startsWith(STARTED));
    if (found !== undefined) return found.slice(STARTED.length);
  }
  return null;
}

function policyIn(items: readonly EvidenceItem[]): string | undefined {
  const inForce = items.find(({ probe, verdict }) => probe === "policy_in_force" && verdict === "closed");
  return inForce?.references.find((reference) => reference.startsWith("sha256:"));
}

/**
 * Where the transport was cut before the border, nothing reaches it that it could deny: what it answers about
 * the counterparty when it is asked stands for a denial then, beside the transport's.
 */
function wasCutBefore(items: readonly EvidenceItem[]): boolean {
  const isRefused = items.some(
    ({ probe, verdict, layer }) => probe === "invite" && verdict === "closed" && layer === "transport",
  );
  return isRefused && !items.some(({ probe }) => probe === VIOLATION);
}

export function borderRules({ items, policyBefore, startedBefore }: Observation): readonly Rule[] {
  const policy = policyIn(items);
  const isOld = policy !== undefined && policy === policyBefore.digest && !policyBefore.excluded;
  const startedNow = startedAtIn(items);
  const restarted = startedBefore !== null && startedNow !== null && startedBefore !== startedNow;
  const isCutBefore = wasCutBefore(items);
  const reload = "drawbridge reconcile --once --plane border.";
  return [
    {
      condition: "policy_digest_changed",
      probes: ["policy_in_force", "policy_check"],
      needs: ["policy_in_force", "policy_check"],
      hint: `The border still admits it: ${reload}`,
      ...(isOld && {
        objection: {
          verdict: "not_met" as const,
          found: `the policy in force is the one from before: ${policy}`,
          hint: `See that the registry closes the border plane, then ${reload}`,
        },
      }),
    },
    {
      condition: "server_not_allowed",
      ...(isCutBefore
        ? { probes: ["policy_check", "invite"], needs: ["policy_check", "invite"] }
        : { probes: [VIOLATION, "invite"], needs: [VIOLATION] }),
      hint: "No denial was written yet: run the step again with --probe-config and a probe file that has a signing key and an invitee.",
    },
    {
      condition: "no_restart",
      probes: ["policy_in_force"],
      needs: ["policy_in_force"],
      hint: reload,
      optional: startedBefore === null || startedNow === null,
      ...(restarted && {
        objection: {
          verdict: "not_met" as const,
          found: `the homeserver was restarted at ${startedNow}`,
          hint: "Run drawbridge offboarding next again: it is measured anew, from this process on.",
        },
      }),
    },
  ];
}

// Stage 5 closes plane 1: the running homeserver's whitelist excludes the counterparty, and what its server
// sends, signed with its key, is refused.

export function transportRules(_seen: Observation): readonly Rule[] {
  return [
    {
      condition: "whitelist_excludes_partner",
      probes: ["whitelist"],
      needs: ["whitelist"],
      hint: "The homeserver runs with the old whitelist: drawbridge reconcile --once --plane transport.",
    },
    {
      condition: "send_refused",
      probes: ["federation_send"],
      needs: ["federation_send"],
      hint: "Its transactions are still taken in: drawbridge reconcile --once --plane transport.",
    },
  ];
}

// Stage 6 closes no plane: what was deleted is recorded, or waived by name; retention and the backups' end are
// written down; the declared state passes every test that needs no server.

const HOW_TO_PURGE =
  "Run drawbridge offboarding purge PARTNER; or, where nothing is to go, drawbridge offboarding set duties.purge.waiver WORD --record FILE.";

const OWN: ReadonlySet<string> = new Set([PURGE_WAIVED, DUTIES, STATIC_TESTS]);

export function dutiesRules({ items, duties, staticProblems = [] }: Observation): readonly Rule[] {
  const waived = duties?.known === true && duties.purgeWaived;
  const purges = [...new Set(items.map(({ probe }) => probe).filter((probe) => !OWN.has(probe)))];
  const isShown = items.some(showsPurge);
  const [firstProblem] = staticProblems;
  return [
    {
      condition: DELETION_RECORDED,
      probes: purges,
      needs: [],
      hint: HOW_TO_PURGE,
      // Also behind a purge that was run and has deleted nothing, because the record keeps everything.
      ...(waived && !isShown && { shownAbsentBy: PURGE_WAIVED }),
      ...(!waived &&
        !isShown && {
          objection: {
            verdict: "not_met" as const,
            found: "no purge is recorded, and none is waived",
            hint: HOW_TO_PURGE,
          },
        }),
    },
    {
      condition: "duties_recorded",
      probes: [DUTIES],
      needs: duties?.known === true ? [DUTIES] : [],
      hint: "Complete the private record: drawbridge offboarding set FIELD VALUE --record FILE.",
      ...(duties?.known === false && {
        objection: { verdict: "not_met" as const, found: duties.found, hint: duties.hint },
      }),
    },
    {
      condition: "static_tests_pass",
      probes: [STATIC_TESTS],
      needs: firstProblem === undefined ? [STATIC_TESTS] : [],
      hint: "Run drawbridge federation check in a work tree.",
      ...(firstProblem !== undefined && {
        objection: {
          verdict: "not_met" as const,
          found: firstProblem,
          hint: "Run drawbridge federation check in a work tree, correct what it names, and commit.",
        },
      }),
    },
  ];
}
