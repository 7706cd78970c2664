// What every Kubernetes resource rendered here has in common: names, labels, ConfigMaps.
// Invariants: a resource's name follows from what it stands for, so that a re-render replaces and never
// piles up; nothing is rendered unless the organisation names a Kubernetes target.
import { sha256 } from "../../domain/digest.ts";
import type { Registry } from "../registry/partner.ts";
import { type Plain, yamlDocuments } from "./emit-yaml.ts";
import type { RenderedFiles } from "./plane.ts";

/** A Kubernetes resource as plain data. */
export type Resource = { readonly [key: string]: Plain | undefined };

/** A file of resources; no file when there are none or no target is named. */
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

/** A ConfigMap of whole files. */
export function configMap(
  registry: Registry,
  plane: string,
  name: string,
  files: Readonly<Record<string, string>>,
): Resource {
  return { apiVersion: "v1", kind: "ConfigMap", metadata: metadata(registry, name, plane), data: files };
}

/**
 * A name as Kubernetes allows it (RFC 1123 subdomain) for an agent's, which may have underscores and may
 * end in a dot. Two agents never share one: a name that had to change ends in its digest.
 */
export function resourceName(prefix: string, agent: string): string {
  const allowed = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$/;
  if (allowed.test(agent)) return `${prefix}-${agent}`;
  const cleaned = agent.replaceAll(/[^a-z0-9]+/g, "-").replace(/-$/, "");
  return `${prefix}-${cleaned}-${sha256(agent).toString("hex").slice(0, 8)}`;
}
