// Operator evidence of plane 5 for one partner: does the gateway still admit its `azp`, can it get a token, and until
// when does a token live that it holds.

import type { Clock } from "../../../domain/clock.ts";
import { sha256Tagged } from "../../../domain/digest.ts";
import { DrawbridgeError } from "../../../domain/errors.ts";
import type { EvidenceItem } from "../../../records/format/evidence-item.ts";
import { InvocationFile } from "../../../rendered-files/gateway-files.ts";
import { TOKEN_LIFE_S } from "../../../rendered-files/issuer-clients.ts";
import { parseYaml } from "../../../runtime/load-yaml.ts";
import { applicantsOf, type PartnerEntry, type Registry } from "../../registry/partner.ts";
import { readGatewayState } from "../await-gateway.ts";
import { standingText } from "../file-target.ts";
import { type OperatorFinding, observeInside } from "../plane.ts";
import type { IssuerAdapter } from "./issuer-adapter.ts";

/** Envoy takes a token up to two seconds past its end. */
const SKEW_S = 2;

export interface ProbeOptions {
  readonly partner: PartnerEntry;
  readonly registry: Registry;
  /** Clients with which the partner had applied when its removal was opened. */
  readonly covering: readonly string[];
  readonly stateFile: string;
  readonly invocationFile: string;
  /** As rendered. */
  readonly invocation: string;
  readonly issuer: IssuerAdapter;
  readonly clock: Clock;
}

export async function gatewayEvidence(options: ProbeOptions): Promise<readonly EvidenceItem[]> {
  const { partner } = options.partner;
  const declared = applicantsOf(options.registry, partner).map(({ clientId }) => clientId);
  const items = [...new Set([partner.azp, ...declared, ...options.covering])].map((clientId) =>
    probeClient(options, clientId),
  );
  return (await Promise.all(items)).flat();
}

async function probeClient(options: ProbeOptions, azp: string): Promise<readonly EvidenceItem[]> {
  const { clock, partner } = options;
  const about = { plane: "gateway", partner: partner.partner.serverName, subject: azp } as const;
  const observe = (probe: string, layer: string, find: () => OperatorFinding) =>
    observeInside(clock, { ...about, probe, layer }, find);
  const client = await clientOf(options.issuer, azp);
  return [
    await observe("callers_in_force", "gateway", () => callersInForce(options, azp)),
    await observe("issuer_client", "issuer", () => ({
      verdict: VERDICTS[client],
      reason: client,
      references: [],
    })),
    await observe("live_tokens", "issuer", () => liveTokens(client, clock)),
  ];
}

function callersInForce(
  { stateFile, invocationFile, invocation }: ProbeOptions,
  azp: string,
): OperatorFinding {
  const state = readGatewayState(stateFile);
  if (state === undefined) return { verdict: "unknown", reason: "gateway_not_running", references: [] };
  const references = [state.invocation];
  const text = standingText(invocationFile);
  // Only the file in force says who may call.
  const inForce = [invocation, text].find(
    (one) => one !== undefined && sha256Tagged(one) === state.invocation,
  );
  if (inForce === undefined) return { verdict: "unknown", reason: "not_in_force", references };
  const { agents } = parseYaml(InvocationFile, inForce, invocationFile);
  const isCaller = Object.values(agents).some(({ clients }) => clients.includes(azp));
  if (isCaller) return { verdict: "open", reason: "azp_admitted", references };
  // Closed all the same when an older file is in force, but not by what was declared.
  return {
    verdict: "closed",
    reason: inForce === invocation ? "azp_not_admitted" : "azp_not_admitted_by_older_file",
    references,
  };
}

type ClientState = "client_enabled" | "client_disabled" | "client_unknown" | "issuer_unavailable";

const VERDICTS = {
  client_enabled: "open",
  client_disabled: "closed",
  client_unknown: "closed",
  issuer_unavailable: "unknown",
} as const satisfies Readonly<Record<ClientState, EvidenceItem["verdict"]>>;

async function clientOf(issuer: IssuerAdapter, azp: string): Promise<ClientState> {
  try {
    const client = (await issuer.read()).get(azp);
    if (client === undefined) return "client_unknown";
    return client.enabled ? "client_enabled" : "client_disabled";
  } catch (error) {
    if (error instanceof DrawbridgeError) return "issuer_unavailable";
    throw error;
  }
}

/** When the last token was issued is unknown; it was before this observation, so the bound holds. */
function liveTokens(client: ClientState, clock: Clock): OperatorFinding {
  if (VERDICTS[client] !== "closed") return { verdict: VERDICTS[client], reason: client, references: [] };
  const until = new Date(clock.now() + (TOKEN_LIFE_S + SKEW_S) * 1_000).toISOString();
  return { verdict: "closed", reason: "no_new_tokens", references: [`live_until=${until}`] };
}
