// The partner's client goes on using a token that it was given before: the issuer cannot take it back, so the
// gateway must refuse it. Invariant: the token is held in memory alone.
import type { Random } from "../../domain/clock.ts";
import { readInvokeAnswer } from "../../federation/probes/answers.ts";
import { ask } from "../../federation/probes/http.ts";
import { serviceEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { type CompleteOrganisation, clientIds } from "../organisations.ts";
import { requestToken } from "../proof/refusals.ts";
import type { WatchedAttempt } from "./watch.ts";

/** Asks `org`'s agent for a task that does not exist, so that it does no work. */
export function heldToken(
  lab: Lab,
  org: CompleteOrganisation,
  partner: CompleteOrganisation,
  random: Random,
): WatchedAttempt {
  const clientId = clientIds.bridgeOf(partner);
  const secretFile = lab.paths.organisation(org).clientSecret(clientId);
  let held: string | undefined;
  return {
    kind: "invocation with a held token",
    plane: "gateway",
    attempt: async () => {
      held ??= (await requestToken(lab, org, clientId, secretFile)).token;
      const id = random.bytes(16).toString("hex");
      const answer = await ask(serviceEndpoints(lab, org).invokeUrl, "POST", {
        headers: {
          "content-type": "application/json",
          "a2a-version": "1.0",
          ...(held === undefined ? {} : { authorization: `Bearer ${held}` }),
        },
        body: JSON.stringify({ jsonrpc: "2.0", id, method: "GetTask", params: { id } }),
      });
      return readInvokeAnswer(answer);
    },
  };
}
