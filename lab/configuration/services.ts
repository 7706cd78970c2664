// The configuration of gateway, issuer and sample agent as their operator would write it. Pure.
import type { z } from "zod";
import type { DocsQaConfigFile } from "../../examples/docs-qa/config.ts";
import type { GatewayConfigFile } from "../../src/gateway/config.ts";
import type { IssuerConfigFile } from "../../src/issuer/config.ts";
import { serviceEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { type CompleteOrganisation, TRAITS } from "../organisations.ts";

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
    documents: "documents",
    publicUrl: endpoints.invokeUrl,
    httpJson: true,
    tokenEndpoint: endpoints.tokenEndpoint,
    signing: { keyId: signingKeyId, key: { file: "secrets/card-signing-key.json" } },
    store: "tasks",
  };
}
