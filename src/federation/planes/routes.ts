// HTTPRoutes (gateway.networking.k8s.io/v1) to agents, and the backends of agents outside the cluster.
// Invariants: every rule names one method; a path is matched exactly, but for the tasks of an agent's
// HTTP+JSON interface; nothing routes to an agent but these.
import type { Registry } from "../registry/partner.ts";
import type { Plain } from "./emit-yaml.ts";
import { metadata, type Resource } from "./kubernetes.ts";

/** A route that attaches to the organisation's Gateway. */
export function httpRoute(
  registry: Registry,
  plane: string,
  name: string,
  rules: readonly Plain[],
): Resource {
  const target = registry.organisation.kubernetes;
  const hostnames = target?.hostnames ?? [];
  return {
    apiVersion: "gateway.networking.k8s.io/v1",
    kind: "HTTPRoute",
    metadata: metadata(registry, name, plane),
    spec: {
      parentRefs: [
        {
          group: "gateway.networking.k8s.io",
          kind: "Gateway",
          name: target?.gateway.name,
          namespace: target?.gateway.namespace,
        },
      ],
      hostnames: hostnames.length === 0 ? undefined : hostnames,
      rules,
    },
  };
}

interface RuleTarget {
  readonly method: "GET" | "POST";
  readonly path: string;
  /** The path at the agent itself. */
  readonly rewrite: string;
  /** Name of the route and of the backend outside the cluster, if it is one. */
  readonly backend: string;
  readonly upstream: string;
}

export function exactRule(target: RuleTarget): Plain {
  return {
    matches: [{ path: { type: "Exact", value: target.path }, method: target.method }],
    filters: [
      {
        type: "URLRewrite",
        urlRewrite: { path: { type: "ReplaceFullPath", replaceFullPath: target.rewrite } },
      },
    ],
    backendRefs: [backendRef(target)],
  };
}

/** A path and everything below it. */
export function prefixRule(target: RuleTarget): Plain {
  return {
    matches: [{ path: { type: "PathPrefix", value: target.path }, method: target.method }],
    filters: [
      {
        type: "URLRewrite",
        urlRewrite: { path: { type: "ReplacePrefixMatch", replacePrefixMatch: target.rewrite } },
      },
    ],
    backendRefs: [backendRef(target)],
  };
}

/** `NAME.NAMESPACE.svc`, with or without the cluster's domain. */
const SERVICE = /^([a-z0-9-]{1,63})\.([a-z0-9-]{1,63})\.svc(?:\.[a-z0-9.-]+)?$/;

function backendRef({ backend, upstream }: RuleTarget): Plain {
  const { hostname, port } = new URL(upstream);
  const service = SERVICE.exec(hostname);
  return service === null
    ? { group: "agentgateway.dev", kind: "AgentgatewayBackend", name: backend }
    : { group: "", kind: "Service", name: service[1], namespace: service[2], port: portOf(port) };
}

/** The backend of an agent that is no Service of the cluster. */
export function upstreamBackend(
  registry: Registry,
  plane: string,
  name: string,
  upstream: string,
): readonly Resource[] {
  const { hostname, port } = new URL(upstream);
  if (SERVICE.test(hostname)) return [];
  return [
    {
      apiVersion: "agentgateway.dev/v1alpha1",
      kind: "AgentgatewayBackend",
      metadata: metadata(registry, name, plane),
      spec: { static: { host: hostname.replaceAll(/[[\]]/g, ""), port: portOf(port) } },
    },
  ];
}

function portOf(port: string): number {
  return port === "" ? 80 : Number(port);
}
