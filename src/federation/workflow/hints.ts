// What an operator can do about a condition that does not hold. Data beside the table of conditions, which records share
// and which names no command.
const APPLY = (plane: string) => `drawbridge reconcile --once --plane ${plane}`;
const ROOMS = `${APPLY("rooms")}; what stays out of reach is waived by name.`;
const STATUS = "See drawbridge federation status; then give the same command again.";

const QUARANTINED =
  "The target stays quarantined, and questions to it are refused with a notice. Read the bridge's log, then run this again.";
const NOT_SERVED =
  "Have the publisher serve the card that the new key has signed, then run the same command again; until then the target is quarantined.";
const STALE =
  "The ACL is lifted, and a server goes on denying, or says nothing: run this again; if it stays, load the border module, check border.statusToken, and restart the homeserver.";

export const HINTS: Readonly<Record<string, string>> = {
  in_force: STATUS,
  partner_not_rendered:
    "Render and commit; then see that the gateway runs and follows its files (drawbridge federation status).",
  token_refused: `Disable the client at the issuer: ${APPLY("gateway")}.`,
  invoke_refused: `The gateway still lets it through: ${APPLY("gateway")}.`,
  card_gone_or_refused: `The gateway still publishes it: ${APPLY("card")}. Where others consume it, sign stage 1 first: its use must be observed to be refused.`,
  agent_card_untrusted:
    "See that the bridge runs and follows agents.yaml; its audit must say agent_card_untrusted.",
  people_may_not_ask: "See that the bridge runs and follows agents.yaml.",
  acl_excludes_partner: `A room's ACL still admits it: ${ROOMS}`,
  enforcement_holds: `A server does not enforce the ACL: ${ROOMS}`,
  members_gone: `Its people are still members: ${ROOMS}`,
  retained_servers_told: `A retained server does not show the ACL: ${ROOMS}`,
  kept_out_of_rooms: `It can still come in: ${ROOMS}`,
  policy_digest_changed: `See that the registry closes the border plane; then ${APPLY("border")}.`,
  server_not_allowed:
    "No denial was written yet: run the step again with --probe-config and a probe file that has a signing key and an invitee.",
  no_restart:
    "The homeserver was restarted since the stage was opened. Run drawbridge offboarding next again: it measures from this process on.",
  whitelist_excludes_partner: `The homeserver runs with the old whitelist: ${APPLY("transport")}.`,
  send_refused: `Where its transactions are still accepted: ${APPLY("transport")}. Where the probe reached nobody: see as.federationCaFile and as.federationProxy in the probe file.`,
  deletion_recorded:
    "Run drawbridge offboarding purge PARTNER; or, where nothing is to go, write duties.purge.waiver in the private record.",
  whitelist_admits_partner: `The homeserver runs with the old whitelist: ${APPLY("transport")}.`,
  kept_rooms_hear_it: STALE,
  other_rooms_hear_it: STALE,
  policy_admits_partner: `The border still refuses it: ${APPLY("border")}.`,
  agent_card_verified:
    "Have the partner serve the card that its pinned key has signed; drawbridge agent pin changes the pin. Then run this again.",
  card_published: "See that the gateway runs and the agent serves its signed card.",
  may_invoke: "See that gateway and issuer run, and that its client is declared.",
  old_identity_fails:
    "Where no card of the old key is at hand, run the same command again with --old-card FILE: one that the old key has signed, from the publisher or a copy of one's own. Where such a card verifies against the new pin, do not go on: report that.",
  new_identity_verifies: NOT_SERVED,
  old_key_not_served: NOT_SERVED,
  bridge_has_verified: QUARANTINED,
  bridge_trusts_it_no_more: QUARANTINED,
  agent_withdrawn: "Render and commit the registry, then run this again.",
  duties_recorded:
    "Complete the private record: drawbridge offboarding show --record FILE names what it lacks.",
  static_tests_pass: "Run drawbridge federation check in a work tree, correct what it names, and commit.",
};
