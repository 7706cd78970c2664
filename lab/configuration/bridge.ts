// A bridge's configuration as its operator would write it: bridge.yaml. Its agents.yaml comes from the
// registry. Pure.
import type { z } from "zod";
import type { BridgeConfigFile } from "../../src/bridge/config.ts";
import { GHOST_PREFIX, homeserverEndpoints, serviceEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import type { CompleteOrganisation } from "../organisations.ts";

/** Files below the bridge's own folder, as its configuration names them. */
export const BRIDGE_SECRETS = {
  asToken: "as-token",
  hsToken: "hs-token",
  contentKeys: "content-keys",
  storeKeys: "store-keys",
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
    encryption: { stage: "C", storeKeys: secret(BRIDGE_SECRETS.storeKeys), threads: 1 },
    agentsFile: "agents.yaml",
    audit: { file: "audit.jsonl" },
    log: { file: "bridge.log" },
  };
}
