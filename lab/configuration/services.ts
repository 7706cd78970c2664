// The configuration of bridge, gateway, issuer and sample agent as their operator would write it. Pure.
// The bridge's agents.yaml and the issuer's clients come from the registry.
import type * as z from "zod";
import type { DocsQaConfigFile } from "../../examples/docs-qa/config.ts";
import type { BridgeConfigFile } from "../../src/bridge/config.ts";
import type { GatewayConfigFile } from "../../src/gateway/config.ts";
import type { IssuerConfigFile } from "../../src/issuer/config.ts";
import { GHOST_PREFIX, homeserverEndpoints, serviceEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { type CompleteOrganisation, TRAITS } from "../organisations.ts";
import { BRIDGE_SECRETS } from "./credentials.ts";

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
    encryption: { mode: "on", storeKeys: secret(BRIDGE_SECRETS.storeKeys), threads: 1 },
    agentsFile: "agents.yaml",
    audit: { file: "audit.jsonl" },
    log: { file: "bridge.log" },
  };
}

export function gatewayConfig(
  lab: Lab,
  organisation: CompleteOrganisation,
  envoyBinary: string,
): z.input<typeof GatewayConfigFile> {
  const ports = lab.ports.organisations[organisation];
  const endpoints = serviceEndpoints(lab, organisation);
  return {
    version: 1,
    listen: { port: ports.gateway },
    adminPort: ports.gatewayAdmin,
    issuer: { url: endpoints.issuerUrl, jwksUrl: endpoints.jwksUrl, audience: endpoints.audience },
    accessLog: "access.jsonl",
    envoy: { binary: envoyBinary, directory: "envoy" },
  };
}

export function issuerConfig(lab: Lab, organisation: CompleteOrganisation): z.input<typeof IssuerConfigFile> {
  const endpoints = serviceEndpoints(lab, organisation);
  return {
    version: 1,
    listen: { port: lab.ports.organisations[organisation].issuer },
    url: endpoints.issuerUrl,
    audience: endpoints.audience,
    signingKeys: { file: "secrets/signing-keys.json" },
    clientsFile: "clients.yaml",
  };
}

export function agentConfig(
  lab: Lab,
  organisation: CompleteOrganisation,
  signingKeyId: string,
): z.input<typeof DocsQaConfigFile> {
  const endpoints = serviceEndpoints(lab, organisation);
  const traits = TRAITS[organisation];
  return {
    version: 1,
    listen: { port: lab.ports.organisations[organisation].agent },
    name: traits.agentTitle,
    description: traits.agentDescription,
    organisation: traits.title,
    icon: "icon.png",
    documents: "documents",
    publicUrl: endpoints.invokeUrl,
    httpJson: true,
    tokenEndpoint: endpoints.tokenEndpoint,
    signing: { keyId: signingKeyId, key: { file: "secrets/card-signing-key.json" } },
    store: "tasks",
  };
}
