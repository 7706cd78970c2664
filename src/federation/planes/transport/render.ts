// Plane 1 as files: the homeserver's include with its whitelist and key servers.
// Invariant: containment never changes it, so that it never costs a restart at night.
import { admittedServers, oncePerRegistry, openPartners } from "../admitted.ts";
import { yamlFile } from "../emit-yaml.ts";
import { configMapFile } from "../kubernetes.ts";
import type { PlaneRender } from "../plane.ts";

export const TRANSPORT_INCLUDE = "transport/homeserver.yaml";

const includeOf = oncePerRegistry((registry): string => {
  const open = openPartners(registry, "transport").map(({ partner }) => partner);
  const admitted = new Set(open.map(({ serverName }) => serverName));
  const partners = new Set(registry.partners.map(({ partner }) => partner.serverName));
  const trusted = new Set([
    // A partner that is cut is asked for nobody's keys, wherever it is named.
    ...registry.organisation.transport.trustedKeyServers.filter(
      (server) => admitted.has(server) || !partners.has(server),
    ),
    ...open.filter(({ transport }) => transport.keyServer).map(({ serverName }) => serverName),
  ]);
  return yamlFile({
    federation_domain_whitelist: admittedServers(registry, "transport"),
    federation_whitelist_endpoint_enabled: true,
    trusted_key_servers: [...trusted].sort().map((server) => ({ server_name: server })),
    suppress_key_server_warning: true,
  });
});

export const transportRender: PlaneRender = {
  name: "transport",
  render: (registry) => new Map([[TRANSPORT_INCLUDE, includeOf(registry)]]),
  // Mounted beside homeserver.yaml.
  renderKubernetes: (registry) =>
    configMapFile(registry, "transport/homeserver.yaml", "drawbridge-homeserver", {
      "homeserver.yaml": includeOf(registry),
    }),
};
