// The SDK's client transport for one interface and one exchange. Invariant: a transport serves one call;
// its `fetch` is that call's exchange, so what was seen on the wire belongs to exactly that call.
import { AgentCard, StreamResponse } from "@a2a-js/sdk";
import {
  JsonRpcTransportFactory,
  RestTransportFactory,
  TenantTransportDecorator,
  type Transport,
} from "@a2a-js/sdk/client";
import type { Exchange } from "./exchange.ts";
import type { ChosenInterface } from "./interfaces.ts";

/** A transport for the interface; 0.3 peers get the SDK's compatibility transport. */
export async function openTransport(chosen: ChosenInterface, exchange: Exchange): Promise<Transport> {
  const options = { fetchImpl: exchange.fetch, legacyCompat: { enabled: true } };
  const factory =
    chosen.binding === "JSONRPC" ? new JsonRpcTransportFactory(options) : new RestTransportFactory(options);
  // The factory reads nothing of a card but the version that its interface declares.
  const card = AgentCard.fromJSON({
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
