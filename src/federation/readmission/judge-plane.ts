// Whether a plane is open to the partner. Pure. Invariants: state is not enforcement: what the parts enforce is
// asked for; what nobody observed open is not open; an item that says closed is enough to say no; a rule names what
// was found and what to do.
import type { EvidenceItem } from "../../records/format/evidence-item.ts";
import type { PlaneName } from "../plane-order.ts";
import { wasNotTried } from "../probes/finding.ts";
import type { Judged } from "../probes/judge.ts";
import type { TouchedRoom } from "./readmission.ts";

export interface OpenCondition {
  readonly condition: string;
  readonly verdict: "met" | "not_met" | "unknown" | "not_applicable";
  readonly found: string;
  readonly hint: string;
}

export interface OpenObservation {
  readonly plane: PlaneName;
  /** The reconciler's outcome, and why it is not better. */
  readonly outcome: string;
  readonly reason: string | null;
  readonly inside: readonly EvidenceItem[];
  /** What was tried from outside, compared with the registry. */
  readonly outside: readonly Judged[];
  /** Rooms that the partner was closed out of. */
  readonly touched: readonly TouchedRoom[];
  /** The partner's agents here, by the fingerprint of what is pinned; undefined where nothing is. */
  readonly targets: ReadonlyMap<string, string | undefined>;
  /** Agents of ours that it may invoke. */
  readonly invokes: readonly string[];
  /** Whether this organisation runs a bridge, and a gateway. */
  readonly hasBridge: boolean;
  readonly hasGateway: boolean;
}

export function judgeOpen(observed: OpenObservation): readonly OpenCondition[] {
  const { plane, outcome, reason } = observed;
  const inForce: OpenCondition = {
    condition: "in_force",
    verdict: outcome === "in_force" ? "met" : "not_met",
    found: reason ?? outcome,
    hint: `See drawbridge federation status; then run this again: it applies the ${plane} plane once more.`,
  };
  return [inForce, ...enforced(observed), ...fromOutside(observed)];
}

function enforced(observed: OpenObservation): readonly OpenCondition[] {
  switch (observed.plane) {
    case "rooms":
      return roomsEnforced(observed);
    case "card":
      return [...trusted(observed), ...published(observed)];
    case "gateway":
      return invocable(observed);
    default:
      return [
        allOpen("enforced", observed.inside, "Examine the part that it names: it still refuses the partner."),
      ];
  }
}

/** Every item says open, and there is one. */
function allOpen(condition: string, items: readonly EvidenceItem[], hint: string): OpenCondition {
  const closed = items.find(({ verdict }) => verdict === "closed");
  if (closed !== undefined) return { condition, verdict: "not_met", found: foundIn(closed), hint };
  const unclear = items.find(({ verdict }) => verdict === "unknown");
  if (unclear !== undefined) return { condition, verdict: "unknown", found: foundIn(unclear), hint };
  if (items.length === 0) return { condition, verdict: "unknown", found: "nothing was observed", hint };
  return { condition, verdict: "met", found: `${items.length} open`, hint: "" };
}

function none(condition: string, found: string): OpenCondition {
  return { condition, verdict: "not_applicable", found, hint: "" };
}

/** Probes that say whether a room lets the partner's events in; who is a member is up to people. */
const HEARD: ReadonlySet<string> = new Set(["room_acl", "room_enforcement", "room_acl_at_retained"]);
const STALE =
  "The ACL is lifted, and a server goes on denying: run this again; if it stays, restart the homeserver.";

function roomsEnforced({ inside, touched }: OpenObservation): readonly OpenCondition[] {
  const kept = new Set(touched.filter(({ state }) => state === "kept").map(({ room }) => room));
  const about = inside.filter(({ probe }) => HEARD.has(probe));
  const reopened = about.filter(({ subject }) => subject !== null && kept.has(subject));
  // The room's state does not show enforcement, so an answer of the enforcing cache is required for each room.
  const silent = [...kept].find(
    (room) => !reopened.some(({ subject, probe }) => subject === room && probe === "room_enforcement"),
  );
  const rest = inside.filter((item) => !(item.subject !== null && kept.has(item.subject)));
  const spoken = rest.filter(({ probe }) => HEARD.has(probe) || !probe.startsWith("room_"));
  // Another organisation's room that is closed to the partner does not count: its owner opens it.
  const stale = spoken.find(({ verdict, reason }) => verdict === "unknown" || reason === "stale_at_home");
  const closed = spoken.find(({ verdict, subject }) => verdict === "closed" && subject === null);
  const others =
    stale !== undefined || closed !== undefined
      ? allOpen(
          "other_rooms_hear_it",
          [stale ?? closed].filter((one) => one !== undefined),
          STALE,
        )
      : spoken.length === 0
        ? none("other_rooms_hear_it", "no other room was observed")
        : met("other_rooms_hear_it", `${spoken.length} observed`);
  const first =
    kept.size === 0
      ? none("kept_rooms_hear_it", "no room was kept")
      : silent === undefined
        ? allOpen("kept_rooms_hear_it", reopened, STALE)
        : {
            condition: "kept_rooms_hear_it",
            verdict: "unknown" as const,
            found: `${silent}: nobody said what is enforced`,
            hint: "Load the border module and check border.statusToken, then run this again.",
          };
  return [first, others];
}

function met(condition: string, found: string): OpenCondition {
  return { condition, verdict: "met", found, hint: "" };
}

function trusted({ inside, targets, hasBridge }: OpenObservation): readonly OpenCondition[] {
  const condition = "agent_card_verified";
  if (!hasBridge || targets.size === 0) return [none(condition, "our bridge carries none of its agents")];
  return [...targets].map(([agent, fingerprint]): OpenCondition => {
    const hint =
      "Have the partner serve the card that its new key has signed; drawbridge agent pin changes the pin. Then run this again.";
    if (fingerprint === undefined) {
      return { condition, verdict: "not_met", found: `${agent} has no pin`, hint };
    }
    const item = inside.find(({ probe, subject }) => probe === "card_trust" && subject === agent);
    if (item?.verdict === "open" && item.references.includes(fingerprint)) {
      return met(condition, `${agent} ${item.reason ?? ""}`.trim());
    }
    const isAboutIt = item?.references.includes(fingerprint) === true;
    const verdict = isAboutIt && item?.verdict === "closed" ? "not_met" : "unknown";
    const found = isAboutIt ? (item?.reason ?? "unknown") : "not decided about the new pin";
    return { condition, verdict, found: `${agent}: ${found}`, hint };
  });
}

function published({ inside, invokes, hasGateway }: OpenObservation): readonly OpenCondition[] {
  const condition = "card_published";
  if (!hasGateway || invokes.length === 0) return [none(condition, "it consumes none of our agents")];
  const fetched = inside.filter(({ probe }) => probe === "card_fetch");
  return [allOpen(condition, fetched, "See that the gateway runs and the agent serves its signed card.")];
}

function invocable({ inside, invokes, hasGateway }: OpenObservation): readonly OpenCondition[] {
  const condition = "may_invoke";
  if (!hasGateway || invokes.length === 0) return [none(condition, "it may invoke none of our agents")];
  return [
    allOpen(condition, inside, "See that gateway and issuer run, and that the new client is declared."),
  ];
}

function fromOutside({ outside, plane }: OpenObservation): readonly OpenCondition[] {
  const found = outside.filter(({ item }) => item.plane === plane && !wasNotTried(item));
  const tried = found.filter((one) => one.outcome === "as_wanted" || !isUpToPartner(one.item));
  const left = found.length - tried.length;
  const condition = "from_outside";
  if (tried.length === 0)
    return left === 0 ? [] : [none(condition, `${left} up to the partner's own planes`)];
  const hint = "It was tried as the partner: compare with what the partner's operator sees.";
  const wrong = tried.find(({ outcome }) => outcome === "otherwise");
  if (wrong !== undefined) return [{ condition, verdict: "not_met", found: foundIn(wrong.item), hint }];
  const unclear = tried.find(({ outcome }) => outcome === "unclear");
  if (unclear !== undefined) return [{ condition, verdict: "unknown", found: foundIn(unclear.item), hint }];
  const rest = left === 0 ? "" : `, ${left} up to the partner's own planes`;
  return [met(condition, `${tried.length} as wanted${rest}`)];
}

/**
 * What we sent has not arrived, and nothing of ours refused it: the partner opens its planes in the same order,
 * and its border comes after its rooms. Were both sides to wait for that, neither would go on.
 */
function isUpToPartner({ probe, layer }: EvidenceItem): boolean {
  return probe.startsWith("message_to_partner") && layer === "not_seen";
}

function foundIn({ probe, subject, verdict, reason }: EvidenceItem): string {
  return `${probe}${subject === null ? "" : ` ${subject}`}: ${verdict}${reason === null ? "" : ` (${reason})`}`;
}

export function isMet({ verdict }: OpenCondition): boolean {
  return verdict === "met" || verdict === "not_applicable";
}
