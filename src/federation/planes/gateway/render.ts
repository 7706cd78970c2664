// Plane 5 as files: who may invoke which agent and how often, and the clients that the issuer declares.
// Invariants: a client that is closed, or with which a closed partner had applied, stays declared and disabled, so
// that the issuer gives it no token whoever made it; secrets are references.
import type { InvokedAgent } from "../../../rendered-files/gateway-files.ts";
import type { DeclaredClient } from "../../../rendered-files/issuer-clients.ts";
import { clientsInForce, planeState, type Registry } from "../../registry/partner.ts";
import { type Plain, yamlFile } from "../emit-yaml.ts";
import type { PlaneRender } from "../plane.ts";
import { invocationOf } from "./invocation.ts";
import { gatewayKubernetes } from "./kubernetes.ts";

export const GATEWAY_INVOCATION = "gateway/invocation.yaml";
export const GATEWAY_CLIENTS = "gateway/clients.yaml";

export const gatewayRender: PlaneRender = {
  render(registry) {
    return new Map([
      [GATEWAY_INVOCATION, invocationFile(registry)],
      [GATEWAY_CLIENTS, clientsFile(registry)],
    ]);
  },
  renderKubernetes: gatewayKubernetes,
};

function invocationFile(registry: Registry): string {
  const { agents, quotas } = invocationOf(registry);
  const entries = agents.map(({ name, offered, clients }): [string, Plain] => {
    const { upstream, invokePath, httpJson, forwardToken } = offered;
    const entry = { upstream, invokePath, httpJson, clients, forwardToken };
    return [name, entry satisfies Record<keyof InvokedAgent, Plain>];
  });
  return yamlFile({
    version: 1,
    agents: Object.fromEntries(entries),
    quotas: { default: registry.organisation.quotas.default, clients: Object.fromEntries(quotas) },
  });
}

function clientsFile(registry: Registry): string {
  const own = clientsInForce(registry).map(
    ({ clientId, enabled, secret, applicant }): DeclaredClient => ({
      clientId,
      enabled,
      secret,
      ...(applicant === undefined ? {} : { partner: applicant }),
    }),
  );
  const partners = registry.partners.flatMap(({ partner }): DeclaredClient[] => {
    const { azp, gateway, serverName } = partner;
    const enabled = planeState(partner, "gateway") === "open";
    if (enabled && gateway === undefined) return [];
    return [{ clientId: azp, enabled, secret: gateway?.clientSecret, partner: serverName }];
  });
  return yamlFile({ version: 1, clients: [...own, ...partners] });
}
