// The registry of an organisation as its operator would write it: itself, and a file a partner. Pure.
// A and B are partners of each other on every plane; D, the witness, is a partner in rooms alone, whether it
// runs or not. C has no partner file: it has applied and has a client, and no agent admits that client.
import { stringify } from "yaml";
import type * as z from "zod";
import { abuseReportSchema } from "../../src/federation/abuse/report.ts";
import type { AgentConsumption, Organisation } from "../../src/federation/registry/organisation.ts";
import type { Partner } from "../../src/federation/registry/partner.ts";
import { agentName, serviceEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { AGENT, type CompleteOrganisation, clientIds, partnerOf, WITNESS } from "../organisations.ts";
import { bridgeClientSecretFor, type Identities } from "./credentials.ts";

const QUOTA = { perMinute: 600, burst: 60 } as const;
const secret = (name: string) => ({ file: `client-secrets/${name}` });

export function organisationEntry(
  lab: Lab,
  organisation: CompleteOrganisation,
  identities: Identities,
): z.input<typeof Organisation> {
  const endpoints = serviceEndpoints(lab, organisation);
  return {
    version: 1,
    serverName: lab.serverNames[organisation],
    agents: {
      [AGENT]: {
        upstream: endpoints.agentUrl,
        cardPath: endpoints.cardPath,
        invokePath: endpoints.invokePath,
        httpJson: true,
        cardKeys: [identities[organisation].cardKey],
      },
    },
    consumes: {
      // From the agent itself: the public card is withdrawn when no partner may use it.
      [AGENT]: consumption(lab, organisation, organisation, endpoints.agentCardUrl, identities),
    },
    clients: [
      {
        clientId: clientIds.bridgeOf(organisation),
        secret: secret(`${clientIds.bridgeOf(organisation)}.secret`),
        invokes: [AGENT],
      },
      {
        clientId: clientIds.applicant,
        secret: secret(`${clientIds.applicant}.secret`),
        applicant: lab.serverNames["org-c"],
      },
    ],
    quotas: { default: QUOTA },
  };
}

/** The entry of the other complete organisation. */
export function partnerEntry(
  lab: Lab,
  organisation: CompleteOrganisation,
  identities: Identities,
): z.input<typeof Partner> {
  const partner = partnerOf(organisation);
  const endpoints = serviceEndpoints(lab, partner);
  const clientId = clientIds.bridgeOf(partner);
  return {
    version: 1,
    serverName: lab.serverNames[partner],
    classification: "internal",
    azp: clientId,
    issuer: endpoints.issuerUrl,
    keyIds: {
      server: [identities[partner].serverKeyId],
      card: [identities[partner].cardKey.keyId],
    },
    card: {
      consumes: {
        [agentName(organisation, partner)]: consumption(
          lab,
          organisation,
          partner,
          endpoints.cardUrl,
          identities,
        ),
      },
    },
    gateway: { invokes: [AGENT], clientSecret: secret(`${clientId}.secret`) },
  };
}

/** The entry of the witness: rooms are shared with it, agents are not. */
export function witnessEntry(lab: Lab): z.input<typeof Partner> {
  return {
    version: 1,
    serverName: lab.serverNames[WITNESS],
    classification: "public",
    planes: { card: "closed", gateway: "closed" },
    // It has neither client nor issuer; these name what it would have.
    azp: clientIds.bridgeOf(WITNESS),
    issuer: `https://issuer.${WITNESS}.test`,
  };
}

/** The sample agent takes requests of 1 MiB; in base64 a file is longer by a third. */
const ATTACHMENT_BYTES = 512 * 1024;

function consumption(
  lab: Lab,
  organisation: CompleteOrganisation,
  publisher: CompleteOrganisation,
  cardUrl: string,
  identities: Identities,
): z.input<typeof AgentConsumption> {
  const endpoints = serviceEndpoints(lab, publisher);
  return {
    cardUrl,
    // At a loopback address, and another one than that of the agent's own card.
    allowedOrigins: [endpoints.gatewayUrl],
    cardIdentity: identities[publisher].cardKey,
    credentials: {
      tokenEndpoint: endpoints.tokenEndpoint,
      clientId: clientIds.bridgeOf(organisation),
      clientSecret: secret(bridgeClientSecretFor(publisher)),
      resource: endpoints.audience,
    },
    rate: QUOTA,
    attachments: { types: ["text/plain", "text/markdown"], bytes: ATTACHMENT_BYTES },
  };
}

/** No anchors: configuration is refused when it has any. */
const YAML_STYLE = { lineWidth: 0, aliasDuplicateObjects: false } as const;

/** The registry's files by their path in the repository. */
export function registryFiles(
  lab: Lab,
  organisation: CompleteOrganisation,
  identities: Identities,
): ReadonlyMap<string, string> {
  const partner = partnerOf(organisation);
  const file = (title: string, value: unknown) => `# ${title}\n${stringify(value, YAML_STYLE)}`;
  return new Map([
    ["registry/abuse-report.schema.json", abuseReportSchema()],
    [
      "registry/organisation.yaml",
      file(
        `What ${organisation} is and offers, whoever its partners are`,
        organisationEntry(lab, organisation, identities),
      ),
    ],
    [
      `registry/partners/${partner}.yaml`,
      file(`What admits ${partner} at ${organisation}`, partnerEntry(lab, organisation, identities)),
    ],
    [
      `registry/partners/${WITNESS}.yaml`,
      file(`What admits ${WITNESS} at ${organisation}: rooms, and no agent`, witnessEntry(lab)),
    ],
  ]);
}
