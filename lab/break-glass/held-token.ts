// The partner's client goes on using a token that it was given before: the issuer cannot take it back, so the
// gateway must refuse it. Invariants: the token is held in memory alone; the client is that of the probe file,
// which a readmission changes, because the one before is refused for ever.
import type { Random } from "../../src/domain/clock.ts";
import { invoke, requestToken } from "../../src/federation/probes/at-gateway.ts";
import type { ProbeConfig } from "../../src/federation/probes/config.ts";
import type { WatchedAttempt } from "./watch.ts";

/** @param config how the organisation that breaks the glass is looked at, as the partner */
export function heldToken(config: ProbeConfig, random: Random): WatchedAttempt {
  const [agent] = config.target.agents;
  if (agent === undefined) throw new TypeError("the lab's probe files name an agent");
  let held: string | undefined;
  return {
    kind: "invocation with a held token",
    plane: "gateway",
    attempt: async () => {
      held ??= (await requestToken(config)).token;
      return invoke(agent, held, { random });
    },
  };
}
