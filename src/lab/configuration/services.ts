// The configuration of gateway, issuer and sample agent as their operator would write it. Pure.
import type { z } from "zod";
import type { ClientsFile } from "../../admission/clients-file.ts";
import type { InvocationFile } from "../../admission/invocation-file.ts";
import type { PublicationFile } from "../../admission/publication-file.ts";
import type { DocsQaConfigFile } from "../../docs-qa/config.ts";
import type { GatewayConfigFile } from "../../gateway/config.ts";
import type { IssuerConfigFile } from "../../issuer/config.ts";
import { serviceEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { AGENT, type CompleteOrganisation, clientIds, partnerOf, TRAITS } from "../organisations.ts";

/** Clients that may call the organisation's agent: its own bridge, and its partner's. */
export function admittedClients(organisation: CompleteOrganisation): string[] {
  return [clientIds.bridgeOf(organisation), clientIds.bridgeOf(partnerOf(organisation))];
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

/** The organisation's agent has a public card. */
export function publicationFile(
  lab: Lab,
  organisation: CompleteOrganisation,
): z.input<typeof PublicationFile> {
  const { agentUrl, cardPath } = serviceEndpoints(lab, organisation);
  return { version: 1, cards: { [AGENT]: { upstream: agentUrl, cardPath } } };
}

/** Who may call the organisation's agent: its own bridge, and its partner's. */
export function invocationFile(lab: Lab, organisation: CompleteOrganisation): z.input<typeof InvocationFile> {
  const { agentUrl, invokePath } = serviceEndpoints(lab, organisation);
  return {
    version: 1,
    agents: {
      [AGENT]: { upstream: agentUrl, invokePath, httpJson: true, clients: admittedClients(organisation) },
    },
    quotas: { default: { perMinute: 600, burst: 60 } },
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

/** The declared clients: own bridge, partner's bridge, and org C's, which applied and was never admitted. */
export function clientsFile(lab: Lab, organisation: CompleteOrganisation): z.input<typeof ClientsFile> {
  const client = (clientId: string, partner?: string) => ({
    clientId,
    secret: { file: `secrets/${clientId}.secret` },
    ...(partner === undefined ? {} : { partner }),
  });
  const partner = partnerOf(organisation);
  return {
    version: 1,
    clients: [
      client(clientIds.bridgeOf(organisation)),
      client(clientIds.bridgeOf(partner), lab.serverNames[partner]),
      client(clientIds.applicant, lab.serverNames["org-c"]),
    ],
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
