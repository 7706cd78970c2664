// Who may invoke what, as both targets of plane 5 render it.
// Invariants: a client is in the list of an agent only if the registry lets it invoke exactly that agent and
// its plane is open; an agent without clients is not there at all.
import { clientsInForce, type Registry } from "../../registry/partner.ts";
import { openPartners } from "../plane.ts";

export type InvocableAgent = ReturnType<typeof invocationOf>["agents"][number];

export function invocationOf(registry: Registry) {
  const { organisation } = registry;
  const callers = [
    ...clientsInForce(registry).filter(({ enabled }) => enabled),
    ...openPartners(registry, "gateway").flatMap(({ partner }) =>
      partner.gateway === undefined ? [] : [{ ...partner.gateway, clientId: partner.azp }],
    ),
  ].filter(({ invokes }) => invokes.length > 0);

  const rights = callers.flatMap(({ clientId, invokes }) => invokes.map((agent) => ({ agent, clientId })));
  return {
    agents: [...Map.groupBy(rights, ({ agent }) => agent)]
      .flatMap(([name, some]) => {
        const offered = organisation.agents[name];
        const clients = some.map(({ clientId }) => clientId).sort();
        return offered === undefined ? [] : [{ name, offered, clients }];
      })
      .sort((a, b) => (a.name < b.name ? -1 : 1)),
    quotas: callers
      .flatMap(({ clientId, quota }) => (quota === undefined ? [] : [[clientId, quota] as const]))
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  };
}
