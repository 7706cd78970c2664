// What the Kubernetes resources rendered here have in common. Invariants: a resource's name follows from what it
// represents, so that a re-render replaces it; nothing is rendered unless the organisation names a Kubernetes target;
// every rule of a route names one method and one path, but for the tasks of an agent's HTTP+JSON interface.
import { sha256 } from "../../domain/digest.ts";
import type { KubernetesTarget } from "../registry/organisation.ts";
import { type Plain, type PlainMap, yamlDocuments } from "./emit-yaml.ts";

export interface Resource {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly data?: PlainMap;
  readonly spec?: PlainMap;
}

export function resourcesText(
  { namespace }: KubernetesTarget,
  plane: string,
  resources: readonly Resource[],
): string {
  const labels = { "app.kubernetes.io/managed-by": "drawbridge", "drawbridge/plane": plane };
  return yamlDocuments(
    resources.map(({ apiVersion, kind, name, ...content }) => {
      return { apiVersion, kind, metadata: { name, namespace, labels }, ...content };
    }),
  );
}

export function configMap(name: string, files: Readonly<Record<string, string | undefined>>): Resource {
  return { apiVersion: "v1", kind: "ConfigMap", name, data: files };
}

/** A name as Kubernetes allows it (RFC 1123 subdomain). One that had to change ends in its digest: no two share one. */
export function resourceName(prefix: string, agent: string): string {
  const allowed = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$/;
  if (allowed.test(agent)) return `${prefix}-${agent}`;
  const cleaned = agent.replaceAll(/[^a-z0-9]+/g, "-").replace(/-$/, "");
  return `${prefix}-${cleaned}-${sha256(agent).toString("hex").slice(0, 8)}`;
}

export function httpRoute({ gateway, hostnames }: KubernetesTarget, name: string, rules: readonly Plain[]) {
  return {
    apiVersion: "gateway.networking.k8s.io/v1",
    kind: "HTTPRoute",
    name,
    spec: {
      parentRefs: [{ group: "gateway.networking.k8s.io", kind: "Gateway", ...gateway }],
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
  /** Headers of the caller that the agent does not get. */
  readonly remove?: readonly string[];
}

export function routeRule(kind: "exact" | "prefix", target: RuleTarget): Plain {
  const [type, path] =
    kind === "exact"
      ? ["Exact", { type: "ReplaceFullPath", replaceFullPath: target.rewrite }]
      : ["PathPrefix", { type: "ReplacePrefixMatch", replacePrefixMatch: target.rewrite }];
  return {
    matches: [{ path: { type, value: target.path }, method: target.method }],
    filters: [
      { type: "URLRewrite", urlRewrite: { path } },
      ...(target.remove === undefined
        ? []
        : [{ type: "RequestHeaderModifier", requestHeaderModifier: { remove: target.remove } }]),
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
    : {
        group: "",
        kind: "Service",
        name: service[1],
        namespace: service[2],
        port: Number(port || 80),
      };
}

export function upstreamBackend(name: string, upstream: string): readonly Resource[] {
  const { hostname, port } = new URL(upstream);
  if (SERVICE.test(hostname)) return [];
  const spec = { static: { host: hostname.replaceAll(/[[\]]/g, ""), port: Number(port || 80) } };
  return [{ apiVersion: "agentgateway.dev/v1alpha1", kind: "AgentgatewayBackend", name, spec }];
}
