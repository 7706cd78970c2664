// Plane 5 on the real parts: who may invoke, at the gateway; who can get a token, at the issuer.
// Invariants: closing goes through the gateway first, because it refuses at once every token that is held; opening
// goes through the issuer first; neither half is left out because the other could not be reached.
import { resolve } from "node:path";
import type { Clock } from "../../../domain/clock.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import { DrawbridgeError, undefinedFor } from "../../../domain/errors.ts";
import { InvocationFile } from "../../../rendered-files/gateway-files.ts";
import { ClientsFile, TOKEN_LIFE_S } from "../../../rendered-files/issuer-clients.ts";
import { parseYaml } from "../../../runtime/load-yaml.ts";
import type { FederationConfig } from "../../config.ts";
import { applicantsOf } from "../../registry/partner.ts";
import { applyProgramFile, gatewayFile, gatewayState, programDrift, standingText } from "../file-target.ts";
import {
  type DesiredPlane,
  type Finding,
  type Note,
  observer,
  outcomeOf,
  type PartOutcome,
  type PlaneRuntime,
  renderedFile,
  renderedText,
  unmanagedPlane,
} from "../plane.ts";
import { declaredClientsAdapter, type IssuerIntent, keycloakAdapter } from "./issuers.ts";
import { GATEWAY_CLIENTS, GATEWAY_INVOCATION } from "./render.ts";

export function gatewayRuntime(config: FederationConfig, clock: Clock): PlaneRuntime {
  const { gateway } = config;
  if (gateway === undefined) return unmanagedPlane("gateway");
  const stateFile = resolve(config.directory, gateway.stateFile);
  const issuer =
    gateway.issuer.adapter === "keycloak"
      ? keycloakAdapter(gateway.issuer, config.directory)
      : declaredClientsAdapter(resolve(config.directory, gateway.issuer.clientsFile));
  const file = gatewayFile("invocation", GATEWAY_INVOCATION, gateway, config.directory, clock);

  async function applyIssuer(intent: IssuerIntent, note: Note): Promise<PartOutcome> {
    try {
      const { changed, failures } = await issuer.apply(intent);
      const partnerOf = new Map(intent.clients.map(({ clientId, partner }) => [clientId, partner]));
      note(`the issuer declares ${intent.clients.length} clients, ${failures.size} not as they should be`);
      const outOfReach = [...failures].map(([subject, reason]) => {
        return { partner: partnerOf.get(subject) ?? intent.owner, subject, reason, hint: HINTS[reason] };
      });
      return { changed, outOfReach };
    } catch (error) {
      if (!(error instanceof DrawbridgeError && error.code === "issuer_unavailable")) throw error;
      note(error.message);
      return { changed: false, deferred: error.code };
    }
  }

  function callersInForce(invocation: string, azp: string): Finding {
    const state = gatewayState(stateFile);
    if (state === undefined) return { verdict: "unknown", reason: "gateway_not_running" };
    const references = [state.invocation];
    const texts = [invocation, standingText(file.target) ?? ""];
    const inForce = texts.find((one) => sha256Tagged(one) === state.invocation);
    if (inForce === undefined) return { verdict: "unknown", reason: "not_in_force", references };
    const { agents } = parseYaml(InvocationFile, inForce, file.target);
    const isCaller = Object.values(agents).some(({ clients }) => clients.includes(azp));
    if (isCaller) return { verdict: "open", reason: "azp_admitted", references };
    // Closed all the same when an older file is in force, but not by what was declared.
    const reason = inForce === invocation ? "azp_not_admitted" : "azp_not_admitted_by_older_file";
    return { verdict: "closed", reason, references };
  }

  async function clientOf(azp: string): Promise<ClientState> {
    const clients = await issuer.read().catch(undefinedFor());
    if (clients === undefined) return "issuer_unavailable";
    const client = clients.get(azp);
    if (client === undefined) return "client_unknown";
    return client.enabled ? "client_enabled" : "client_disabled";
  }

  return {
    async apply(desired, note) {
      const { invocation, intent } = desiredOf(desired);
      const halves = [() => applyProgramFile(file, invocation, note), () => applyIssuer(intent, note)];
      if (!closesAnybody(standingText(file.target), invocation)) halves.reverse();
      const begun: Promise<PartOutcome>[] = [];
      // The second is applied also when the first fails; then the first error is thrown.
      for (const half of halves) {
        begun.push(half());
        await Promise.allSettled(begun);
      }
      return outcomeOf(await Promise.all(begun));
    },

    async drift(desired) {
      const { intent } = desiredOf(desired);
      return programDrift([file], desired, () => issuer.drift(intent));
    },

    async probe(desired, { partner }, covering = []) {
      const invocation = renderedText(desired, GATEWAY_INVOCATION);
      const observe = observer(clock, "gateway", partner.serverName);
      const declared = applicantsOf(desired.registry, partner).map(({ clientId }) => clientId);
      // The partner's clients when its removal was opened are covered.
      const clients = [...new Set([partner.azp, ...declared, ...covering])].map(async (azp) => {
        const client = await clientOf(azp);
        const issued = { verdict: VERDICTS[client], reason: client };
        return [
          await observe("callers_in_force", "gateway", azp, async () => callersInForce(invocation, azp)),
          await observe("issuer_client", "issuer", azp, async () => issued),
          await observe("live_tokens", "issuer", azp, async () => liveTokens(client, clock)),
        ];
      });
      return (await Promise.all(clients)).flat();
    },
  };
}

const HINTS = {
  secret_unavailable: "Put the client's secret where the registry's reference says, readable by this user.",
  issuer_refused: "Compare the client in Keycloak with docs/operating/keycloak.md; its own log says why.",
} as const;

/** Whether the standing file admits a caller whom the desired one does not. One that cannot be read may. */
function closesAnybody(standing: string | undefined, desired: string): boolean {
  if (standing === undefined) return false;
  try {
    const wanted = callers(desired);
    return [...callers(standing)].some((caller) => !wanted.has(caller));
  } catch {
    return true;
  }
}

function callers(text: string): Set<string> {
  const { agents } = parseYaml(InvocationFile, text, GATEWAY_INVOCATION);
  const all = Object.entries(agents);
  return new Set(all.flatMap(([agent, { clients }]) => clients.map((client) => `${agent} ${client}`)));
}

function desiredOf(desired: DesiredPlane): { readonly invocation: string; readonly intent: IssuerIntent } {
  const invocation = renderedText(desired, GATEWAY_INVOCATION);
  const { text, value } = renderedFile(desired, GATEWAY_CLIENTS, ClientsFile);
  const owner = desired.registry.organisation.serverName;
  return { invocation, intent: { owner, clients: value.clients, text } };
}

/** Envoy takes a token up to two seconds past its end. */
const SKEW_S = 2;

const VERDICTS = {
  client_enabled: "open",
  client_disabled: "closed",
  client_unknown: "closed",
  issuer_unavailable: "unknown",
} as const;
type ClientState = keyof typeof VERDICTS;

/** When the last token was issued is unknown; it was before this observation, so the bound holds. */
function liveTokens(client: ClientState, clock: Clock): Finding {
  if (VERDICTS[client] !== "closed") return { verdict: VERDICTS[client], reason: client };
  const until = new Date(clock.now() + (TOKEN_LIFE_S + SKEW_S) * 1_000).toISOString();
  return { verdict: "closed", reason: "no_new_tokens", references: [`live_until=${until}`] };
}
