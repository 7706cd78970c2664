// Plane 5 as files: who may invoke which agent and how often, and the clients that the issuer declares. Invariants: a
// client that is closed, or with which a closed partner had applied, stays declared and disabled, so that the issuer
// gives it no token whoever made it; secrets are references. On Kubernetes authorization is one `Require` expression
// over `jwt.azp`, because a missing `azp` then refuses; the limiter fails closed.
import type { InvokedAgent } from "../../../rendered-files/gateway-files.ts";
import type { DeclaredClient } from "../../../rendered-files/issuer-clients.ts";
import type { KubernetesTarget } from "../../registry/organisation.ts";
import { clientsInForce, planeState, type Registry } from "../../registry/partner.ts";
import { type Plain, yamlFile } from "../emit-yaml.ts";
import { agentRoute, configMap, type Resource, resourceName } from "../kubernetes.ts";
import { openPartners, type PlaneRender, type RenderedFiles } from "../plane.ts";

export const GATEWAY_INVOCATION = "gateway/invocation.yaml";
export const GATEWAY_CLIENTS = "gateway/clients.yaml";

export const gatewayRender: PlaneRender = {
  render: (registry) =>
    new Map([
      [GATEWAY_INVOCATION, invocationFile(registry)],
      [GATEWAY_CLIENTS, clientsFile(registry)],
    ]),
  kubernetes: gatewayKubernetes,
};

/** Who may invoke what: a client is listed for exactly those agents; an agent without clients is not there at all. */
function invocationOf(registry: Registry) {
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
      .flatMap(({ clientId: id, quota }) => (quota === undefined ? [] : [[id, quota] as const]))
      .sort(([a], [b]) => (a < b ? -1 : 1)),
  };
}

function invocationFile(registry: Registry): string {
  const { agents, quotas } = invocationOf(registry);
  const entries = agents.map(({ name, offered, clients }) => {
    const { upstream, invokePath, httpJson, forwardToken } = offered;
    const entry = { upstream, invokePath, httpJson, clients, forwardToken };
    return [name, entry satisfies Record<keyof InvokedAgent, Plain>] as const;
  });
  const limits = { default: registry.organisation.quotas.default, clients: Object.fromEntries(quotas) };
  return yamlFile({ version: 1, agents: Object.fromEntries(entries), quotas: limits });
}

function clientsFile(registry: Registry): string {
  const own = clientsInForce(registry).map(
    ({ clientId, enabled, secret, applicant: partner }) =>
      ({ clientId, enabled, secret, partner }) satisfies Record<keyof DeclaredClient, Plain | undefined>,
  );
  const partners = registry.partners.flatMap(({ partner }): DeclaredClient[] => {
    const { azp, gateway, serverName } = partner;
    const enabled = planeState(partner, "gateway") === "open";
    if (enabled && gateway === undefined) return [];
    return [{ clientId: azp, enabled, secret: gateway?.clientSecret, partner: serverName }];
  });
  return yamlFile({ version: 1, clients: [...own, ...partners] });
}

function gatewayKubernetes(_files: RenderedFiles, registry: Registry, target: KubernetesTarget) {
  const { agents, quotas } = invocationOf(registry);
  const limits = yamlFile({
    domain: target.rateLimit.domain,
    descriptors: [
      ...quotas.map(([clientId, { perMinute }]) => descriptor(perMinute, clientId)),
      // Without a value: each other azp has a window of its own.
      descriptor(registry.organisation.quotas.default.perMinute),
    ],
  });
  return {
    "gateway/routes.yaml": agents.flatMap((agent) => agentResources(target, agent)),
    "gateway/rate-limits.yaml": [configMap("drawbridge-rate-limits", { "gateway.yaml": limits })],
  };
}

function descriptor(perMinute: number, value?: string): Plain {
  return { key: "azp", value, rate_limit: { unit: "minute", requests_per_unit: perMinute } };
}

type Invoked = ReturnType<typeof invocationOf>["agents"][number];

function agentResources(target: KubernetesTarget, { name: agent, offered, clients }: Invoked): Resource[] {
  const { upstream, invokePath, httpJson, forwardToken } = offered;
  const name = resourceName("invoke", agent);
  const base = new URL(upstream).pathname;
  const below = base.replace(/\/$/, "");
  const to = (path: string) => ({ path: `${invokePath}${path}`, rewrite: `${below}${path}` });
  // The operations of the HTTP+JSON binding (A2A 1.0, section 11).
  const operations = [
    { type: "exact", method: "POST", ...to("/message:send") },
    { type: "exact", method: "POST", ...to("/message:stream") },
    { type: "prefix", method: "GET", ...to("/tasks") },
    { type: "prefix", method: "POST", ...to("/tasks") },
  ] as const;
  const jsonRpc = { type: "exact", method: "POST", path: invokePath, rewrite: base } as const;
  const rules = httpJson ? [jsonRpc, ...operations] : [jsonRpc];
  const { route, backends } = agentRoute(target, name, upstream, rules);
  return [route, policy(target, name, clients, forwardToken), ...backends];
}

function policy(target: KubernetesTarget, route: string, clients: readonly string[], forwardToken: boolean) {
  const { issuer, rateLimit } = target;
  const reference = (service: object) => ({ group: "", kind: "Service", ...service });
  const remote = { jwksPath: issuer.jwks.path.slice(1), backendRef: reference(issuer.jwks.service) };
  const provider = { issuer: issuer.url, audiences: [issuer.audience], jwks: { remote } };
  const global = {
    domain: rateLimit.domain,
    failureMode: "FailClosed",
    backendRef: reference(rateLimit.service),
    descriptors: [{ entries: [{ name: "azp", expression: "jwt.azp" }], unit: "Requests" }],
  };
  return {
    apiVersion: "agentgateway.dev/v1alpha1",
    kind: "AgentgatewayPolicy",
    name: route,
    spec: {
      targetRefs: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", name: route }],
      traffic: {
        jwtAuthentication: { mode: "Strict", providers: [provider] },
        authorization: { action: "Require", policy: { matchExpressions: [callers(clients)] } },
        rateLimit: { global },
        transformation: {
          request: {
            // The agent learns the caller from the verified token; a header of the caller's own is replaced.
            set: [{ name: "x-azp", value: "jwt.azp" }],
            remove: forwardToken ? undefined : ["authorization"],
          },
        },
      },
    },
  };
}

/** A CEL expression that holds for exactly these clients. Client IDs need no escaping beyond JSON's. */
function callers(clients: readonly string[]): string {
  const [only] = clients;
  return clients.length === 1
    ? `jwt.azp == ${JSON.stringify(only)}`
    : `jwt.azp in [${clients.map((client) => JSON.stringify(client)).join(", ")}]`;
}
