// Stage 5 closes plane 1: the running homeserver's whitelist excludes the counterparty, and what its server
// sends, signed with its key, is refused.
import type { Observation, Rule } from "./observation.ts";

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
