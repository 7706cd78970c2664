// Where an organisation's services are reached. Pure: of ports and names alone.
import { type AgentId, type GhostMxid, ghostOf } from "../src/domain/identifiers.ts";
import type { Lab } from "./lab.ts";
import { AGENT, type CompleteOrganisation, type OrganisationName, partnerOf } from "./organisations.ts";

export const GHOST_PREFIX = "agent_";

const local = (port: number, path = "") => `http://127.0.0.1:${port}${path}`;

export function homeserverEndpoints(lab: Lab, organisation: OrganisationName) {
  const ports = lab.ports.organisations[organisation];
  return {
    clientUrl: local(ports.client),
    federationUrl: `https://127.0.0.1:${ports.federation}`,
    connectProxy: local(ports.proxy),
  };
}

export function serviceEndpoints(lab: Lab, organisation: CompleteOrganisation) {
  const ports = lab.ports.organisations[organisation];
  const cardPath = `/agents/${AGENT}/.well-known/agent-card.json`;
  const invokePath = `/api/a2a/${organisation}/${AGENT}`;
  return {
    issuerUrl: local(ports.issuer),
    tokenEndpoint: local(ports.issuer, "/token"),
    jwksUrl: local(ports.issuer, "/jwks"),
    /** A name, not an address: it stays the same wherever the gateway listens. */
    audience: `https://agents.${organisation}.test`,
    gatewayUrl: local(ports.gateway),
    /** Where a gateway that serves answers 404, whatever it admits and publishes. */
    nowhereUrl: local(ports.gateway, "/"),
    cardPath,
    cardUrl: local(ports.gateway, cardPath),
    invokePath,
    invokeUrl: local(ports.gateway, invokePath),
    agentUrl: local(ports.agent),
    /** Where the agent itself serves its card, to its own organisation. */
    agentCardUrl: local(ports.agent, "/.well-known/agent-card.json"),
    bridgeUrl: local(ports.bridge),
    healthUrl: local(ports.observe, "/readyz"),
    metricsUrl: local(ports.observe, "/metrics"),
  };
}

/** How an organisation's bridge calls the agent that `publisher` publishes. */
export function agentName(organisation: CompleteOrganisation, publisher: CompleteOrganisation): AgentId {
  return (organisation === publisher ? AGENT : `${publisher}-${AGENT}`) as AgentId;
}

/** The agents that have a ghost in an organisation: its own, and its partner's under the partner's name. */
export function agentsOf(
  organisation: CompleteOrganisation,
): readonly { readonly agentId: AgentId; readonly publisher: CompleteOrganisation }[] {
  return [organisation, partnerOf(organisation)].map((publisher) => ({
    agentId: agentName(organisation, publisher),
    publisher,
  }));
}

/** The ghost by which an organisation's rooms reach the agent that `publisher` publishes. */
export function ghostFor(
  lab: Lab,
  organisation: CompleteOrganisation,
  publisher: CompleteOrganisation,
): GhostMxid {
  return ghostOf(GHOST_PREFIX, agentName(organisation, publisher), lab.serverNames[organisation]);
}
