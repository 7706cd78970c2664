// Plane 4's Kubernetes target: a GET route a public card, ConfigMaps for the bridge and the public keys.
import type { OfferedAgent } from "../../registry/organisation.ts";
import type { Registry } from "../../registry/partner.ts";
import { configMap, type Resource, resourceFile, resourceName } from "../kubernetes.ts";
import type { RenderedFiles } from "../plane.ts";
import { exactRule, httpRoute, upstreamBackend } from "../routes.ts";

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
    ...resourceFile(registry, "card/agents.yaml", [
      configMap(registry, "card", "drawbridge-agents", { "agents.yaml": agents }),
    ]),
    ...resourceFile(registry, "card/card-keys.yaml", [
      configMap(registry, "card", "drawbridge-card-keys", { "card-keys.json": keys }),
    ]),
    ...resourceFile(registry, "card/routes.yaml", routes),
  ]);
}
