// Stage 1 closes plane 5: the render omits the counterparty's `azp` and route, its client gets no token, and
// the exact POST is refused.
import type { Observation, Rule } from "./observation.ts";
import { NOTHING_THERE, RENDER } from "./stated-probes.ts";

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
