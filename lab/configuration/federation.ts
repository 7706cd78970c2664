// The files that federation control of one organisation needs beside the registry: federation.yaml, a trust file with
// both parties' record keys, and a probe file for each vantage. Pure.
import { join, relative } from "node:path";
import type * as z from "zod";
import type { FederationConfigFile } from "../../src/federation/config.ts";
import type { ProbeFile } from "../../src/federation/probes/config.ts";
import type { TrustFile } from "../../src/records/format/trust.ts";
import { homeserverEndpoints, serviceEndpoints } from "../endpoints.ts";
import type { Lab } from "../lab.ts";
import { CLONE } from "../layout.ts";
import {
  ADMITTED_ORGANISATIONS,
  AGENT,
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  clientIds,
  isComplete,
  type OrganisationName,
  USERS,
  unitName,
  WITNESS,
} from "../organisations.ts";
import type { LabPrograms } from "../programs.ts";
import { outsiderFiles, RECORDS_PRIVATE_KEY } from "./credentials.ts";
import { HOMESERVER_FILES } from "./synapse-config.ts";

/** Restarts a unit by way of the supervisor; a real operator would name systemctl(1) here. */
function restartCommand(lab: Lab, organisation: CompleteOrganisation, programs: LabPrograms): string[] {
  const program = join(CLONE, "lab", "supervisor", "restart-unit.ts");
  return [programs.node, program, lab.paths.directory, unitName(organisation, "homeserver")];
}

export function federationConfig(
  lab: Lab,
  organisation: CompleteOrganisation,
  programs: LabPrograms,
): z.input<typeof FederationConfigFile> {
  const paths = lab.paths.organisation(organisation);
  const at = (file: string) => relative(paths.federation, file);
  const homeserver = homeserverEndpoints(lab, organisation);
  const services = serviceEndpoints(lab, organisation);
  return {
    version: 1,
    repository: {
      path: at(paths.controlRepository),
      author: { name: `Operator of ${organisation}`, email: `operator@${organisation}.test` },
    },
    state: at(paths.federationState),
    // The lab shows what happens within seconds.
    reconcile: { interval: "250ms", driftInterval: "10s" },
    homeserver: {
      url: homeserver.clientUrl,
      operatorToken: { file: at(paths.operatorToken) },
      signingKeyFile: at(join(paths.homeserver, HOMESERVER_FILES.signingKey)),
      federationProxy: homeserver.connectProxy,
      federationCaFile: at(lab.paths.caCertificate),
      databaseUrl: { file: at(paths.databaseUrl) },
    },
    transport: {
      includeFile: at(paths.transportFile),
      restart: { command: restartCommand(lab, organisation, programs), maxPerHour: 30 },
    },
    border: {
      policyFile: at(paths.policyFile),
      statusToken: { file: at(paths.borderStatusToken) },
      violationsFile: at(paths.violationsFile),
    },
    card: {
      agentsFile: at(paths.agentsFile),
      bridgeAuditFile: at(paths.auditFile),
      bridgeHealthUrl: services.healthUrl,
    },
    gateway: {
      publicationFile: at(paths.publicationFile),
      invocationFile: at(paths.invocationFile),
      stateFile: at(paths.gatewayState),
      accessLog: at(paths.accessLog),
      url: services.gatewayUrl,
      issuer: { adapter: "declared_clients", clientsFile: at(paths.clientsFile) },
    },
    offboarding: {
      signingKey: { file: at(join(paths.recordsKeys, RECORDS_PRIVATE_KEY)) },
      trustFile: at(paths.trustFile),
    },
  };
}

/** The organisations as which one is probed from outside: all others that run. */
export function vantagesOf(lab: Lab, organisation: CompleteOrganisation): readonly OrganisationName[] {
  return lab.organisations.filter((name) => name !== organisation);
}

/** How `organisation` is probed as `as`, with the witness where it runs and is another one. */
export function probeConfig(
  lab: Lab,
  organisation: CompleteOrganisation,
  as: OrganisationName,
): z.input<typeof ProbeFile> {
  const { federation } = lab.paths.organisation(organisation);
  const at = (file: string) => relative(federation, file);
  const services = serviceEndpoints(lab, organisation);
  const user = (name: OrganisationName, { localpart }: (typeof USERS)[number]) => ({
    serverName: lab.serverNames[name],
    homeserverUrl: homeserverEndpoints(lab, name).clientUrl,
    userId: `@${localpart}:${lab.serverNames[name]}`,
    accessToken: { file: at(lab.paths.organisation(name).userToken(localpart)) },
  });
  const [person, other] = USERS;
  const hasWitness = lab.organisations.includes(WITNESS);
  const client = clientOf(lab, organisation, as);
  return {
    version: 1,
    target: {
      serverName: lab.serverNames[organisation],
      // The observer, so that every invitation that comes through is declined again.
      invitee: `@${person.localpart}:${lab.serverNames[organisation]}`,
      agents: [{ name: AGENT, cardUrl: services.cardUrl, invokeUrl: services.invokeUrl }],
      tokenEndpoint: services.tokenEndpoint,
      audience: services.audience,
      rooms: ADMITTED_ORGANISATIONS.filter((name) => lab.organisations.includes(name)).map(
        (name) => `#shared:${lab.serverNames[name]}`,
      ),
    },
    as: {
      serverName: lab.serverNames[as],
      signingKeyFile: at(join(lab.paths.organisation(as).homeserver, HOMESERVER_FILES.signingKey)),
      federationProxy: homeserverEndpoints(lab, as).connectProxy,
      federationCaFile: at(lab.paths.caCertificate),
      ...(client === undefined
        ? {}
        : { client: { clientId: client.clientId, clientSecret: { file: at(client.secretFile) } } }),
      user: user(as, person),
      otherUser: user(as, other),
    },
    ...(hasWitness && as !== WITNESS ? { witness: user(WITNESS, person) } : {}),
    observer: user(organisation, person),
    arrivalTimeout: "5s",
  };
}

/** The client that an organisation holds at another's issuer: the partner's own, C's from its application. */
function clientOf(
  lab: Lab,
  issuer: CompleteOrganisation,
  holder: OrganisationName,
): { clientId: string; secretFile: string } | undefined {
  if (holder === WITNESS) return undefined;
  if (!isComplete(holder)) {
    return { clientId: clientIds.applicant, secretFile: outsiderFiles(lab).applicantSecret(issuer) };
  }
  const clientId = clientIds.bridgeOf(holder);
  return { clientId, secretFile: lab.paths.organisation(issuer).clientSecret(clientId) };
}

/** Both parties' keys, as an organisation pins them. */
export function trustFile(lab: Lab, organisation: CompleteOrganisation): z.input<typeof TrustFile> {
  const { recordsKeys, recordsPublicKey } = lab.paths.organisation(organisation);
  return {
    version: 1,
    parties: COMPLETE_ORGANISATIONS.map((of) => ({
      organisation: lab.serverNames[of],
      keys: [{ file: relative(recordsKeys, recordsPublicKey(of)) }],
    })),
  };
}
