// Plane 4's Kubernetes target: a GET route a public card, ConfigMaps for the bridge and the public keys.
import type { OfferedAgent } from "../../registry/organisation.ts";
import type { Registry } from "../../registry/partner.ts";
import {
  configMapFile,
  exactRule,
  httpRoute,
  type Resource,
  resourceFile,
  resourceName,
  upstreamBackend,
} from "../kubernetes.ts";
import type { RenderedFiles } from "../plane.ts";

export function cardKubernetes(
  registry: Registry,
  {
    agents,
    keys,
    published,
  }: {
    readonly agents: string;
    readonly keys: string;
    readonly published: readonly (readonly [string, OfferedAgent])[];
  },
): RenderedFiles {
  const routes = published.flatMap(([agent, { upstream, upstreamCardPath, cardPath }]): Resource[] => {
    const name = resourceName("card", agent);
    const rule = {
      method: "GET",
      path: cardPath,
      rewrite: upstreamCardPath,
      backend: name,
      upstream,
    } as const;
    return [
      httpRoute(registry, "card", name, [exactRule(rule)]),
      ...upstreamBackend(registry, "card", name, upstream),
    ];
  });
  return new Map([
    ...configMapFile(registry, "card/agents.yaml", "drawbridge-agents", { "agents.yaml": agents }),
    ...configMapFile(registry, "card/card-keys.yaml", "drawbridge-card-keys", { "card-keys.json": keys }),
    ...resourceFile(registry, "card/routes.yaml", routes),
  ]);
}
