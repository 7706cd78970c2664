// Stage 3 closes plane 2: the authenticated ACL state shows the counterparty removed, and the enforcement
// holds in every governed room. An organisation that governs no room shows that by what the reconciler reached.
import type { Observation, Rule } from "./observation.ts";
import { RECONCILED } from "./stated-probes.ts";

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
