// The exit conditions of every stage, in their order: which probes are about each, and which of them must be
// observed closed. Pure.

import { type EvidenceItem, showsPurge } from "../../../records/format/evidence-item.ts";
import { DELETION_RECORDED, type StageName } from "../../../records/format/stages.ts";
import { isPublicForOthers } from "../../probes/finding.ts";
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

export const STAGE_RULES: Readonly<Record<StageName, (observed: Observation) => readonly Rule[]>> = {
  a2a_stop: stopRules,
  a2a_discovery: discoveryRules,
  room: roomRules,
  policy_border: borderRules,
  transport: () => [
    rule(
      "whitelist_excludes_partner",
      ["whitelist"],
      "The homeserver runs with the old whitelist: drawbridge reconcile --once --plane transport.",
    ),
    rule(
      "send_refused",
      ["federation_send"],
      "Its transactions are still accepted: drawbridge reconcile --once --plane transport.",
    ),
  ],
  data_duties: dutiesRules,
};

/** Each of the probes must be observed closed, unless `more` says otherwise. */
function rule(condition: string, probes: readonly string[], hint: string, more: Partial<Rule> = {}): Rule {
  return { condition, probes, needs: probes, hint, ...more };
}

function absentIf(isAbsent: boolean, shownAbsentBy: string): Partial<Rule> {
  return isAbsent ? { shownAbsentBy } : {};
}

function objectionIf(isObjected: boolean, found: string, hint: string): Partial<Rule> {
  return isObjected ? { objection: { found, hint } } : {};
}

/** Plane 5: neither `azp` nor route is rendered, the client gets no token, and the exact POST is refused. */
function stopRules({ partner, runs, items }: Observation): readonly Rule[] {
  // A client may be at the issuer although the registry lets it invoke nothing: what is seen open is not absent.
  const isSeen = items.some(({ plane, verdict }) => plane === "gateway" && verdict === "open");
  const absent = absentIf((partner?.gateway === undefined || !runs.gateway) && !isSeen, NOTHING_THERE);
  return [
    rule(
      "partner_not_rendered",
      [RENDER, "callers_in_force"],
      "Render and commit; then see that the gateway runs and follows its files (drawbridge federation status).",
      absent,
    ),
    rule(
      "token_refused",
      ["token_request", "issuer_client", "live_tokens"],
      "Disable the client at the issuer: drawbridge reconcile --once --plane gateway.",
      { needs: ["issuer_client", "token_request"], ...absent },
    ),
    rule(
      "invoke_refused",
      ["invoke"],
      "The gateway still lets it through: drawbridge reconcile --once --plane gateway.",
      absent,
    ),
  ];
}

/** Agents of ours whose card lawfully stays public, as the operator observed it. */
export function publicForOthers(items: readonly EvidenceItem[]): ReadonlySet<string> {
  const staying = items.filter(
    (item) => item.probe === "card_fetch" && item.vantage === "operator" && isPublicForOthers(item),
  );
  return new Set(staying.flatMap(({ subject }) => subject ?? []));
}

/**
 * Plane 4: the public card is gone, and our bridge trusts the counterparty's no more. A card is public or not for
 * everybody: one that others lawfully consume stays, and the counterparty's use of it must be refused instead.
 */
function discoveryRules({ partner, runs, items }: Observation): readonly Rule[] {
  const invokes = partner?.gateway?.invokes ?? [];
  const hasCards = runs.gateway && invokes.length > 0;
  const hasPins = runs.bridge && Object.keys(partner?.card.consumes ?? {}).length > 0;
  const staying = publicForOthers(items);
  const allStay = hasCards && invokes.every((agent) => staying.has(agent));
  const useRefused = rule(
    "use_refused",
    [CARD_USE],
    "Sign stage 1 first: the card stays public, so its use must be observed to be refused.",
  );
  return [
    rule(
      "card_gone",
      ["card_fetch"],
      "The gateway still publishes it: drawbridge reconcile --once --plane card.",
      {
        excused: ({ subject }) => staying.has(subject ?? ""),
        ...absentIf(!hasCards, NOTHING_THERE),
        ...absentIf(allStay, CARD_USE),
      },
    ),
    ...(staying.size === 0 ? [] : [useRefused]),
    rule(
      "agent_card_untrusted",
      ["card_trust"],
      "See that the bridge runs and follows agents.yaml; its audit must say agent_card_untrusted.",
      absentIf(!hasPins, NO_PINS),
    ),
  ];
}

/**
 * Plane 2: the authenticated ACL state shows the counterparty removed, and the enforcement holds in every governed
 * room. An organisation that governs no room shows that by what the reconciler reached.
 */
function roomRules({ items, outOfReach }: Observation): readonly Rule[] {
  const aclProbes = ["room_acl", "room_left"];
  const hasRooms = items.some(({ probe }) => aclProbes.includes(probe)) || outOfReach.length > 0;
  const beyond = new Set(outOfReach.map(({ subject }) => subject));
  const again = "drawbridge reconcile --once --plane rooms; what stays out of reach is waived by name.";
  const whereObserved = (condition: string, probe: string, found: string) =>
    rule(condition, [probe], `${found}: ${again}`, { optional: !items.some((item) => item.probe === probe) });
  return [
    rule(
      "acl_excludes_partner",
      hasRooms ? aclProbes : [RECONCILED],
      `A room's ACL still admits it: ${again}`,
      hasRooms ? { needs: [] } : {},
    ),
    whereObserved("enforcement_holds", "room_enforcement", "A server does not enforce the ACL"),
    whereObserved("members_gone", "room_members", "Its people are still members"),
    whereObserved("retained_servers_told", "room_acl_at_retained", "A retained server does not show the ACL"),
    // What third servers relay does not belong to this condition: it stays, and the residual statement says so.
    rule(
      "kept_out_of_rooms",
      ["make_join", "message_to_target", "state_to_target"],
      `It can still come in: ${again}`,
      {
        needs: ["make_join"],
        ignoresUnclear: true,
        optional: !items.some(
          ({ probe, verdict, subject }) =>
            probe === "make_join" && verdict !== "unknown" && !beyond.has(subject ?? probe),
        ),
      },
    ),
  ];
}

const STARTED = "started_at=";

/** When the homeserver that answers was started, if its border module says so. */
export function startedAtIn(items: readonly EvidenceItem[]): string | null {
  const references = items
    .filter(({ probe }) => probe === "policy_in_force")
    .flatMap((item) => item.references);
  return references.find((reference) => reference.startsWith(STARTED))?.slice(STARTED.length) ?? null;
}

/**
 * Where the transport was closed before the border, nothing reaches the border that it could deny: then its answer
 * about the counterparty stands for a denial, beside the transport's refusal.
 */
function isTransportClosedFirst(items: readonly EvidenceItem[]): boolean {
  const isRefused = items.some(
    ({ probe, verdict, layer }) => probe === "invite" && verdict === "closed" && layer === "transport",
  );
  return isRefused && !items.some(({ probe }) => probe === VIOLATION);
}

/** Plane 3: another policy is in force, a denial by it was observed, and nothing was restarted. */
export function borderRules({ items, policyBefore, startedBefore }: Observation): readonly Rule[] {
  const inForce = items.find(({ probe, verdict }) => probe === "policy_in_force" && verdict === "closed");
  const policy = inForce?.references.find((reference) => reference.startsWith("sha256:"));
  const isOld = policy !== undefined && policy === policyBefore.digest && !policyBefore.excluded;
  const startedNow = startedAtIn(items);
  const isMeasured = startedBefore !== null && startedNow !== null;
  const reload = "drawbridge reconcile --once --plane border.";
  return [
    rule(
      "policy_digest_changed",
      ["policy_in_force", "policy_check"],
      `The border still admits it: ${reload}`,
      objectionIf(
        isOld,
        `the policy in force is the one from before: ${policy}`,
        `See that the registry closes the border plane, then ${reload}`,
      ),
    ),
    rule(
      "server_not_allowed",
      isTransportClosedFirst(items) ? ["policy_check", "invite"] : [VIOLATION, "invite"],
      "No denial was written yet: run the step again with --probe-config and a probe file that has a signing key and an invitee.",
      isTransportClosedFirst(items) ? {} : { needs: [VIOLATION] },
    ),
    rule("no_restart", ["policy_in_force"], reload, {
      optional: !isMeasured,
      ...objectionIf(
        isMeasured && startedBefore !== startedNow,
        `the homeserver was restarted at ${startedNow}`,
        "Run drawbridge offboarding next again: it measures from this process on.",
      ),
    }),
  ];
}

const HOW_TO_PURGE =
  "Run drawbridge offboarding purge PARTNER; or, where nothing is to go, drawbridge offboarding set duties.purge.waiver WORD --record FILE.";

/**
 * No plane: what was deleted is recorded, or waived by name; retention and the backups' end are written down; the
 * declared state passes every test that needs no server.
 */
function dutiesRules({ items, duties, staticProblems = [] }: Observation): readonly Rule[] {
  const isWaived = duties?.known === true && duties.purgeWaived;
  const stated = new Set([PURGE_WAIVED, DUTIES, STATIC_TESTS]);
  const purges = [...new Set(items.map(({ probe }) => probe).filter((probe) => !stated.has(probe)))];
  const isShown = items.some(showsPurge);
  const [firstProblem] = staticProblems;
  return [
    rule(DELETION_RECORDED, purges, HOW_TO_PURGE, {
      needs: [],
      // A purge that has deleted nothing, because the record keeps everything, rests on the waiver too.
      ...absentIf(isWaived && !isShown, PURGE_WAIVED),
      ...objectionIf(!isWaived && !isShown, "no purge is recorded, and none is waived", HOW_TO_PURGE),
    }),
    rule(
      "duties_recorded",
      [DUTIES],
      "Complete the private record: drawbridge offboarding set FIELD VALUE --record FILE.",
      duties?.known === true
        ? {}
        : { needs: [], ...(duties !== undefined && objectionIf(true, duties.found, duties.hint)) },
    ),
    rule(
      "static_tests_pass",
      [STATIC_TESTS],
      "Run drawbridge federation check in a work tree.",
      firstProblem === undefined
        ? {}
        : {
            needs: [],
            ...objectionIf(
              true,
              firstProblem,
              "Run drawbridge federation check in a work tree, correct what it names, and commit.",
            ),
          },
    ),
  ];
}
