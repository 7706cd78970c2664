// Plane 5 on Kubernetes: for each agent a POST route and one policy, and the rate limit service's configuration.
// Invariants: authorization is one `Require` expression over `jwt.azp`, because a missing `azp` then refuses; the
// limiter fails closed.
import type { KubernetesTarget } from "../../registry/organisation.ts";
import type { Registry } from "../../registry/partner.ts";
import { type Plain, yamlFile } from "../emit-yaml.ts";
import {
  configMapFile,
  httpRoute,
  metadata,
  type Resource,
  resourceFile,
  resourceName,
  routeRule,
  upstreamBackend,
} from "../kubernetes.ts";
import type { RenderedFiles } from "../plane.ts";
import { type InvocableAgent, invocationOf } from "./invocation.ts";

export function gatewayKubernetes(registry: Registry): RenderedFiles {
  const { organisation } = registry;
  const target = organisation.kubernetes;
  if (target === undefined) return new Map();
  const { agents, quotas } = invocationOf(registry);
  const limits = yamlFile({
    domain: target.rateLimit.domain,
    descriptors: [
      ...quotas.map(([clientId, { perMinute }]) => descriptor(perMinute, clientId)),
      // Without a value: each other azp has a window of its own.
      descriptor(organisation.quotas.default.perMinute),
    ],
  });
  return new Map([
    ...resourceFile(
      registry,
      "gateway/routes.yaml",
      agents.flatMap((agent) => agentResources(registry, target, agent)),
    ),
    ...configMapFile(registry, "gateway/rate-limits.yaml", "drawbridge-rate-limits", {
      "gateway.yaml": limits,
    }),
  ]);
}

function descriptor(perMinute: number, value?: string): Plain {
  return { key: "azp", value, rate_limit: { unit: "minute", requests_per_unit: perMinute } };
}

function agentResources(
  registry: Registry,
  target: KubernetesTarget,
  { name: agent, offered, clients }: InvocableAgent,
): Resource[] {
  const { upstream, invokePath, httpJson, forwardToken } = offered;
  const name = resourceName("invoke", agent);
  const base = new URL(upstream).pathname;
  const below = base.replace(/\/$/, "");
  const at = { backend: name, upstream };
  const to = (path: string) => ({ path: `${invokePath}${path}`, rewrite: `${below}${path}`, ...at });
  // The operations of the HTTP+JSON binding (A2A 1.0, section 11).
  const operations = [
    routeRule("exact", { method: "POST", ...to("/message:send") }),
    routeRule("exact", { method: "POST", ...to("/message:stream") }),
    routeRule("prefix", { method: "GET", ...to("/tasks") }),
    routeRule("prefix", { method: "POST", ...to("/tasks") }),
  ];
  const jsonRpc = routeRule("exact", { method: "POST", path: invokePath, rewrite: base, ...at });
  return [
    httpRoute(registry, "gateway", name, httpJson ? [jsonRpc, ...operations] : [jsonRpc]),
    policy(registry, target, name, clients, forwardToken),
    ...upstreamBackend(registry, "gateway", name, upstream),
  ];
}

function policy(
  registry: Registry,
  { issuer, rateLimit }: KubernetesTarget,
  route: string,
  clients: readonly string[],
  forwardToken: boolean,
): Resource {
  return {
    apiVersion: "agentgateway.dev/v1alpha1",
    kind: "AgentgatewayPolicy",
    metadata: metadata(registry, route, "gateway"),
    spec: {
      targetRefs: [{ group: "gateway.networking.k8s.io", kind: "HTTPRoute", name: route }],
      traffic: {
        jwtAuthentication: {
          mode: "Strict",
          providers: [
            {
              issuer: issuer.url,
              audiences: [issuer.audience],
              jwks: {
                remote: {
                  jwksPath: issuer.jwks.path.slice(1),
                  backendRef: { group: "", kind: "Service", ...issuer.jwks.service },
                },
              },
            },
          ],
        },
        authorization: { action: "Require", policy: { matchExpressions: [callers(clients)] } },
        rateLimit: {
          global: {
            domain: rateLimit.domain,
            failureMode: "FailClosed",
            backendRef: { group: "", kind: "Service", ...rateLimit.service },
            descriptors: [{ entries: [{ name: "azp", expression: "jwt.azp" }], unit: "Requests" }],
          },
        },
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
