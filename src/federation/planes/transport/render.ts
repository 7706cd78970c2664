// Plane 1 as a file: the homeserver's include with its whitelist and key servers, rendered and read back.
// Invariant: containment never changes it, so that a containment never restarts the homeserver.
import * as z from "zod";
import type { Registry } from "../../registry/partner.ts";
import { yamlFile } from "../emit-yaml.ts";
import { configMap } from "../kubernetes.ts";
import { admittedServers, openPartners, type PlaneRender } from "../plane.ts";

export const TRANSPORT_INCLUDE = "transport/homeserver.yaml";

function includeOf(registry: Registry): string {
  const open = openPartners(registry, "transport").map(({ partner }) => partner);
  const admitted = new Set(open.map(({ serverName }) => serverName));
  const partners = new Set(registry.partners.map(({ partner }) => partner.serverName));
  // A partner that is closed is no key server, wherever it is named.
  const isTrusted = (server: string) => admitted.has(server) || !partners.has(server);
  const trusted = new Set([
    ...registry.organisation.transport.trustedKeyServers.filter(isTrusted),
    ...open.filter(({ transport }) => transport.keyServer).map(({ serverName }) => serverName),
  ]);
  return yamlFile({
    federation_domain_whitelist: admittedServers(registry, "transport"),
    federation_whitelist_endpoint_enabled: true,
    trusted_key_servers: [...trusted].sort().map((server) => ({ server_name: server })),
    suppress_key_server_warning: true,
  });
}

export const transportRender: PlaneRender = {
  render: (registry) => new Map([[TRANSPORT_INCLUDE, includeOf(registry)]]),
  kubernetes: (files) => {
    const content = { "homeserver.yaml": files.get(TRANSPORT_INCLUDE) };
    return { "transport/homeserver.yaml": [configMap("drawbridge-homeserver", content)] };
  },
};

/** The keys of the include: another one would be a setting of the homeserver that nobody reviewed. */
export const TransportInclude = z.strictObject({
  federation_domain_whitelist: z.array(z.string()),
  federation_whitelist_endpoint_enabled: z.literal(true),
  trusted_key_servers: z.array(z.strictObject({ server_name: z.string() })),
  suppress_key_server_warning: z.literal(true).optional(),
});
