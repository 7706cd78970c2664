// Which of a card's interfaces the bridge calls, and the SDK's client transport for one call of it.
// Invariants: JSON-RPC and HTTP+JSON only, protocol 1.0 before 0.3, the card's own order otherwise; only URLs that
// `mayRequest` allows, so that no token goes to another origin or in the clear; a transport serves one call.
import { AgentCard as SdkAgentCard, StreamResponse } from "@a2a-js/sdk";
import { JsonRpcTransportFactory, RestTransportFactory, TenantTransportDecorator } from "@a2a-js/sdk/client";
import type { AgentCard } from "../../../cards/card-fields.ts";
import { type Destinations, mayRequest } from "../../../rendered-files/agents-file.ts";
import type { Exchange } from "./http-exchange.ts";

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

/** The interface to call; undefined when the card offers none that the bridge speaks. */
export function chooseInterface(card: PeerCard, entry: Destinations): ChosenInterface | undefined {
  const usable = card.supportedInterfaces.flatMap(
    ({ url, protocolBinding, protocolVersion, tenant = "" }): ChosenInterface[] => {
      const binding = protocolBinding.toUpperCase();
      const version = versionOf(protocolVersion);
      if (binding !== "JSONRPC" && binding !== "HTTP+JSON") return [];
      return version !== undefined && mayRequest(entry, url) ? [{ url, binding, version, tenant }] : [];
    },
  );
  return usable.find((offered) => offered.version === "1.0") ?? usable[0];
}

/** A transport for the interface; 0.3 peers get the SDK's compatibility transport. */
export async function openTransport({ url, binding, version, tenant }: ChosenInterface, exchange: Exchange) {
  const options = { fetchImpl: exchange.fetch, legacyCompat: { enabled: true } };
  const factory =
    binding === "JSONRPC" ? new JsonRpcTransportFactory(options) : new RestTransportFactory(options);
  // The factory reads nothing of a card but the version that its interface declares.
  const supportedInterfaces = [{ url, protocolBinding: binding, protocolVersion: version }];
  const transport = await factory.create(url, SdkAgentCard.fromJSON({ supportedInterfaces }));
  return tenant === "" ? transport : new TenantTransportDecorator(transport, tenant);
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
