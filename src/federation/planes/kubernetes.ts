// What the Kubernetes resources rendered here have in common. Invariants: a resource's name follows from what it
// represents, so that a re-render replaces it; nothing is rendered unless the organisation names a Kubernetes target;
// every rule of a route names one method and one path, but for the tasks of an agent's HTTP+JSON interface.
import { sha256 } from "../../domain/digest.ts";
import type { Registry } from "../registry/partner.ts";
import { type Plain, type PlainMap, yamlDocuments } from "./emit-yaml.ts";
import type { RenderedFiles } from "./plane.ts";

export type Resource = PlainMap;

export function resourceFile(
  { organisation }: Registry,
  path: string,
  resources: readonly Resource[],
): RenderedFiles {
  return organisation.kubernetes === undefined || resources.length === 0
    ? new Map()
    : new Map([[path, yamlDocuments(resources)]]);
}

export function metadata({ organisation }: Registry, name: string, plane: string): Resource {
  return {
    name,
    namespace: organisation.kubernetes?.namespace,
    labels: { "app.kubernetes.io/managed-by": "drawbridge", "drawbridge/plane": plane },
  };
}

/** A file with one ConfigMap of whole files. @param path below `kubernetes/`; its folder is the plane */
export function configMapFile(
  registry: Registry,
  path: string,
  name: string,
  files: Readonly<Record<string, string | undefined>>,
): RenderedFiles {
  const about = metadata(registry, name, path.slice(0, path.indexOf("/")));
  return resourceFile(registry, path, [
    { apiVersion: "v1", kind: "ConfigMap", metadata: about, data: files },
  ]);
}

/** A name as Kubernetes allows it (RFC 1123 subdomain). One that had to change ends in its digest: no two share one. */
export function resourceName(prefix: string, agent: string): string {
  const allowed = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$/;
  if (allowed.test(agent)) return `${prefix}-${agent}`;
  const cleaned = agent.replaceAll(/[^a-z0-9]+/g, "-").replace(/-$/, "");
  return `${prefix}-${cleaned}-${sha256(agent).toString("hex").slice(0, 8)}`;
}

export function httpRoute(
  registry: Registry,
  plane: string,
  name: string,
  rules: readonly Plain[],
): Resource {
  const target = registry.organisation.kubernetes;
  const hostnames = target?.hostnames ?? [];
  const parent = { name: target?.gateway.name, namespace: target?.gateway.namespace };
  return {
    apiVersion: "gateway.networking.k8s.io/v1",
    kind: "HTTPRoute",
    metadata: metadata(registry, name, plane),
    spec: {
      parentRefs: [{ group: "gateway.networking.k8s.io", kind: "Gateway", ...parent }],
      hostnames: hostnames.length === 0 ? undefined : hostnames,
      rules,
    },
  };
}

interface RuleTarget {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly rewrite: string;
  /** Name of the route and of the backend outside the cluster, if it is one. */
  readonly backend: string;
  readonly upstream: string;
}

export function routeRule(kind: "exact" | "prefix", target: RuleTarget): Plain {
  const [type, path] =
    kind === "exact"
      ? ["Exact", { type: "ReplaceFullPath", replaceFullPath: target.rewrite }]
      : ["PathPrefix", { type: "ReplacePrefixMatch", replacePrefixMatch: target.rewrite }];
  return {
    matches: [{ path: { type, value: target.path }, method: target.method }],
    filters: [{ type: "URLRewrite", urlRewrite: { path } }],
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
