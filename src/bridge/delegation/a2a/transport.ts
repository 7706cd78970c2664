// Which of a card's interfaces the bridge calls, and the SDK's client transport for one call of it.
// Invariants: JSON-RPC and HTTP+JSON only, protocol 1.0 before 0.3, the card's own order otherwise; never an
// origin that is neither the card's own nor listed by the operator, never a URL with credentials in it, and never plain HTTP for an agent whose card came by HTTPS, where the bearer token would
// travel in the clear; a transport serves one call, and its `fetch` is that call's exchange.
import { AgentCard as SdkAgentCard, StreamResponse } from "@a2a-js/sdk";
import {
  JsonRpcTransportFactory,
  RestTransportFactory,
  TenantTransportDecorator,
  type Transport,
} from "@a2a-js/sdk/client";
import type { AgentCard } from "../../../cards/card-fields.ts";
import { type Destinations, mayRequest } from "../../../rendered-files/agents-file.ts";
import type { Exchange } from "./http-exchange.ts";

/** What the bridge reads of a verified card. */
export type PeerCard = Pick<AgentCard, "supportedInterfaces" | "capabilities">;

export interface ChosenInterface {
  readonly url: string;
  readonly binding: "JSONRPC" | "HTTP+JSON";
  readonly version: "1.0" | "0.3";
  readonly tenant: string;
}

function versionOf(declared: string): ChosenInterface["version"] | undefined {
  if (/^1(\.[0-9]{1,3}){0,2}$/.test(declared)) return "1.0";
  return /^0\.3(\.[0-9]{1,3})?$/.test(declared) ? "0.3" : undefined;
}

function bindingOf(declared: string): ChosenInterface["binding"] | undefined {
  const upper = declared.toUpperCase();
  return upper === "JSONRPC" || upper === "HTTP+JSON" ? upper : undefined;
}

/** The interface to call; undefined when the card offers none that the bridge speaks. */
export function chooseInterface(card: PeerCard, entry: Destinations): ChosenInterface | undefined {
  const usable: ChosenInterface[] = [];
  for (const offered of card.supportedInterfaces) {
    const binding = bindingOf(offered.protocolBinding);
    const version = versionOf(offered.protocolVersion);
    if (binding === undefined || version === undefined || !mayRequest(entry, offered.url)) continue;
    usable.push({ url: offered.url, binding, version, tenant: offered.tenant ?? "" });
  }
  return usable.find((offered) => offered.version === "1.0") ?? usable[0];
}

/** A transport for the interface; 0.3 peers get the SDK's compatibility transport. */
export async function openTransport(chosen: ChosenInterface, exchange: Exchange): Promise<Transport> {
  const options = { fetchImpl: exchange.fetch, legacyCompat: { enabled: true } };
  const factory =
    chosen.binding === "JSONRPC" ? new JsonRpcTransportFactory(options) : new RestTransportFactory(options);
  // The factory reads nothing of a card but the version that its interface declares.
  const card = SdkAgentCard.fromJSON({
    supportedInterfaces: [
      { url: chosen.url, protocolBinding: chosen.binding, protocolVersion: chosen.version },
    ],
  });
  const transport = await factory.create(chosen.url, card);
  return chosen.tenant === "" ? transport : new TenantTransportDecorator(transport, chosen.tenant);
}

/** Whether a stream's event can be decoded. The HTTP+JSON transport would print one that cannot. */
export function isSoundEvent(chosen: ChosenInterface): (data: unknown) => boolean {
  if (chosen.binding === "JSONRPC" || chosen.version === "0.3") return () => true;
  return (data) => {
    try {
      StreamResponse.fromJSON(data);
      return true;
    } catch {
      return false;
    }
  };
}
