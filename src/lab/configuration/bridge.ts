// A bridge's configuration as its operator would write it: bridge.yaml and agents.yaml. Pure.
import type { z } from "zod";
import type { AgentsFile, PublicEs256Jwk } from "../../admission/agents-file.ts";
import type { BridgeConfigFile } from "../../bridge/config.ts";
import { agentsOf, GHOST_PREFIX, homeserverEndpoints, serviceEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { type CompleteOrganisation, clientIds, partnerOf } from "../organisations.ts";

/** Files below the bridge's own folder, as its configuration names them. */
export const BRIDGE_SECRETS = {
  asToken: "as-token",
  hsToken: "hs-token",
  contentKeys: "content-keys",
  databaseUrl: "database-url",
  /** What the issuer of `publisher` gave this bridge's client. */
  clientSecretFor: (publisher: CompleteOrganisation) => `client-secret-${publisher}`,
} as const;

const secret = (name: string) => ({ file: `secrets/${name}` });

export function bridgeConfig(lab: Lab, organisation: CompleteOrganisation): z.input<typeof BridgeConfigFile> {
  const ports = lab.ports.organisations[organisation];
  return {
    version: 1,
    homeserver: {
      serverName: lab.serverNames[organisation],
      url: homeserverEndpoints(lab, organisation).clientUrl,
    },
    appservice: {
      id: "drawbridge",
      url: serviceEndpoints(lab, organisation).bridgeUrl,
      senderLocalpart: "drawbridge",
      ghostPrefix: GHOST_PREFIX,
      asToken: secret(BRIDGE_SECRETS.asToken),
      hsToken: secret(BRIDGE_SECRETS.hsToken),
    },
    listen: { port: ports.bridge },
    observe: { port: ports.observe },
    database: { url: secret(BRIDGE_SECRETS.databaseUrl) },
    contentKeys: secret(BRIDGE_SECRETS.contentKeys),
    agentsFile: "agents.yaml",
    audit: { file: "audit.jsonl" },
    log: { file: "bridge.log" },
  };
}

export type PinnedCardKeys = Readonly<
  Record<CompleteOrganisation, { readonly keyId: string; readonly jwk: z.input<typeof PublicEs256Jwk> }>
>;

/** Both organisations' agents, each pinned to its signer's key, open to the users of both. */
export function agentsFile(
  lab: Lab,
  organisation: CompleteOrganisation,
  cardKeys: PinnedCardKeys,
): z.input<typeof AgentsFile> {
  const servers = [lab.serverNames[organisation], lab.serverNames[partnerOf(organisation)]];
  return {
    version: 1,
    agents: Object.fromEntries(
      agentsOf(organisation).map(({ agentId, publisher }) => {
        const endpoints = serviceEndpoints(lab, publisher);
        return [
          agentId,
          {
            cardUrl: endpoints.cardUrl,
            cardIdentity: cardKeys[publisher],
            allowedServers: servers,
            allowedSenders: servers.map((server) => `*:${server}`),
            credentials: {
              tokenEndpoint: endpoints.tokenEndpoint,
              clientId: clientIds.bridgeOf(organisation),
              clientSecret: secret(BRIDGE_SECRETS.clientSecretFor(publisher)),
              resource: endpoints.audience,
            },
            rate: { perMinute: 600, burst: 60 },
          },
        ];
      }),
    ),
  };
}
