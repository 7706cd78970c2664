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

export function resourcesText(target: KubernetesTarget, plane: string, resources: readonly Resource[]) {
  const { namespace } = target;
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

/** `NAME.NAMESPACE.svc`, with or without the cluster's domain. */
const SERVICE = /^([a-z0-9-]{1,63})\.([a-z0-9-]{1,63})\.svc(?:\.[a-z0-9.-]+)?$/;

interface Rule {
  readonly type: "exact" | "prefix";
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly rewrite: string;
  /** Headers of the caller that the agent does not get. */
  readonly remove?: readonly string[];
}

/** An agent's route, and the backend that it leads to where that is outside the cluster. */
export function agentRoute(target: KubernetesTarget, name: string, upstream: string, rules: readonly Rule[]) {
  const { gateway, hostnames } = target;
  const { hostname, port: named } = new URL(upstream);
  const port = Number(named || 80);
  const service = SERVICE.exec(hostname);
  const [group, kind] = ["agentgateway.dev", "AgentgatewayBackend"];
  const inside = { group: "", kind: "Service", name: service?.[1], namespace: service?.[2], port };
  const backend = service === null ? { group, kind, name } : inside;
  const route: Resource = {
    apiVersion: "gateway.networking.k8s.io/v1",
    kind: "HTTPRoute",
    name,
    spec: {
      parentRefs: [{ group: "gateway.networking.k8s.io", kind: "Gateway", ...gateway }],
      hostnames: hostnames.length === 0 ? undefined : hostnames,
      rules: rules.map((rule) => ruleOf(rule, backend)),
    },
  };
  const spec = { static: { host: hostname.replaceAll(/[[\]]/g, ""), port } };
  const outside: Resource = { apiVersion: `${group}/v1alpha1`, kind, name, spec };
  return { route, backends: service === null ? [outside] : [] };
}

function ruleOf({ type, method, path, rewrite, remove }: Rule, backend: Plain): Plain {
  const [matched, rewritten] =
    type === "exact"
      ? ["Exact", { type: "ReplaceFullPath", replaceFullPath: rewrite }]
      : ["PathPrefix", { type: "ReplacePrefixMatch", replacePrefixMatch: rewrite }];
  const url = { type: "URLRewrite", urlRewrite: { path: rewritten } };
  const headers = { type: "RequestHeaderModifier", requestHeaderModifier: { remove } };
  return {
    matches: [{ path: { type: matched, value: path }, method }],
    filters: remove === undefined ? [url] : [url, headers],
    backendRefs: [backend],
  };
}
