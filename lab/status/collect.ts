// Collects the lab's status from the supervisor, from the lab's files, and from a readiness probe of each program.
// Invariant: collecting the status changes nothing.
import { join, resolve } from "node:path";
import * as z from "zod";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import {
  journaledPartners,
  journalIn,
  type RoomRecord,
} from "../../src/federation/planes/rooms/undo-journal.ts";
import { ClientsFile, type DeclaredClient } from "../../src/rendered-files/issuer-clients.ts";
import { parseYaml } from "../../src/runtime/load-yaml.ts";
import { readIfPresent } from "../../src/runtime/write-file.ts";
import { carriedAgents } from "../agents.ts";
import { BRIDGE_SECRETS, outsiderFiles } from "../configuration/credentials.ts";
import { HOMESERVER_FILES } from "../configuration/synapse-config.ts";
import { homeserverEndpoints, serviceEndpoints } from "../endpoints.ts";
import { readJson } from "../files.ts";
import type { Lab } from "../lab.ts";
import {
  ADMITTED_ORGANISATIONS,
  AGENT,
  COMPLETE_ORGANISATIONS,
  type CompleteOrganisation,
  clientIds,
  isComplete,
  type OrganisationName,
  POSTGRES,
  type ProgramName,
  partnerOf,
  TRAITS,
  unitName,
  WITNESS,
} from "../organisations.ts";
import { childrenOf } from "../processes.ts";
import { readSeed, type Seed } from "../seed/seed-file.ts";
import { type SupervisorStatus, supervisorClient } from "../supervisor/client.ts";
import { isReady, readinessProbe } from "../supervisor/unit-specs.ts";
import { federationStatus } from "./federation.ts";
import type { FedStatus, OrganisationStatus } from "./schema.ts";

const PROBE_TIMEOUT_MS = 3_000;
const PostgresPlace = z.object({ dataDirectory: z.string(), logFile: z.string() });

interface Sources {
  readonly lab: Lab;
  readonly seed: Seed | undefined;
  readonly supervisor: SupervisorStatus | undefined;
}

/** The status of a lab, running or not. */
export async function collectStatus(lab: Lab): Promise<FedStatus> {
  const supervisor = await supervisorClient(lab)
    .status()
    .catch(() => undefined);
  const sources = { lab, seed: readSeed(lab), supervisor };
  const organisations = Object.fromEntries(
    await Promise.all(lab.organisations.map(async (name) => [name, await organisationStatus(sources, name)])),
  ) as FedStatus["organisations"];
  const postgres = unitOf(sources, POSTGRES);
  const place = readJson(PostgresPlace, lab.paths.postgresPlace);
  const programs = Object.values(organisations).flatMap((organisation) => programsOf(organisation));
  return {
    version: 1,
    name: lab.name,
    directory: lab.paths.directory,
    healthy: postgres.state === "ready" && programs.every((program) => program.healthy),
    supervisor: {
      pid: supervisor?.pid ?? null,
      controlUrl: `http://127.0.0.1:${lab.ports.control}`,
      tokenFile: lab.paths.controlToken,
      logFile: lab.paths.log("supervisor"),
    },
    postgres: {
      ...postgres,
      port: lab.ports.postgres,
      dataDirectory: place?.dataDirectory ?? null,
      logFile: place?.logFile ?? null,
    },
    cutLinks: supervisor?.cutLinks ?? [],
    organisations,
  };
}

/** The programs of an organisation by name. */
export function programsOf(organisation: OrganisationStatus) {
  const { homeserver, issuer, agent, gateway, bridge, reconciler } = organisation;
  return Object.entries({ homeserver, issuer, agent, gateway, bridge, reconciler }).flatMap(
    ([name, program]) => (program === undefined ? [] : [{ ...program, name }]),
  );
}

function unitOf({ supervisor }: Sources, name: string) {
  const unit = supervisor?.units.find((candidate) => candidate.name === name);
  return { pid: unit?.pid ?? null, state: unit?.state ?? ("stopped" as const) };
}

async function programStatus(sources: Sources, organisation: OrganisationName, program: ProgramName) {
  const { lab } = sources;
  const name = unitName(organisation, program);
  const unit = unitOf(sources, name);
  const probe = readinessProbe(lab, organisation, program);
  const paths = lab.paths.organisation(organisation);
  const configFiles = {
    homeserver: paths.homeserverConfig,
    issuer: paths.issuerConfig,
    agent: paths.agentConfig,
    gateway: paths.gatewayConfig,
    bridge: paths.bridgeConfig,
    reconciler: paths.federationConfig,
  };
  return {
    ...unit,
    healthy: unit.pid !== null && (probe === undefined || (await isReady(probe, PROBE_TIMEOUT_MS))),
    configFile: configFiles[program],
    outputFile: lab.paths.log(name),
  };
}

async function organisationStatus(sources: Sources, name: OrganisationName): Promise<OrganisationStatus> {
  const { lab, seed } = sources;
  const paths = lab.paths.organisation(name);
  return {
    serverName: lab.serverNames[name],
    ...homeserverEndpoints(lab, name),
    caFile: lab.paths.caCertificate,
    dataDirectory: paths.directory,
    homeserver: {
      ...(await programStatus(sources, name, "homeserver")),
      signingKeyFile: join(paths.homeserver, HOMESERVER_FILES.signingKey),
    },
    users: seed?.users[name] ?? [],
    rooms: await roomsOf(lab, seed, name),
    clients: clientsOf(lab, name),
    ...(isComplete(name) ? await serviceStatus(sources, name) : {}),
  };
}

function clientsOf(lab: Lab, name: OrganisationName): OrganisationStatus["clients"] {
  if (isComplete(name)) return declaredClients(lab, name);
  return name === WITNESS ? [] : outsiderClients(lab);
}

/** The clients that its issuer has in force, which a re-admission changes; its own first, then the partner's. */
function declaredClients(lab: Lab, name: CompleteOrganisation): OrganisationStatus["clients"] {
  const { clientsFile, issuer } = lab.paths.organisation(name);
  const counterparty: string = lab.serverNames[partnerOf(name)];
  const placeOf = (partner: string | undefined) =>
    partner === undefined ? 0 : partner === counterparty ? 1 : 2;
  return clientsIn(clientsFile)
    .toSorted((one, other) => placeOf(one.partner) - placeOf(other.partner))
    .flatMap(({ clientId, secret, partner }) =>
      secret !== undefined && "file" in secret
        ? [{ clientId, secretFile: resolve(issuer, secret.file), partner: partner ?? null }]
        : [],
    );
}

/** None before the lab was first started, nor while the file cannot be used. */
function clientsIn(file: string): readonly DeclaredClient[] {
  try {
    return parseYaml(ClientsFile, readIfPresent(file) ?? "", file).clients;
  } catch (error) {
    if (error instanceof DrawbridgeError) return [];
    throw error;
  }
}

function outsiderClients(lab: Lab): OrganisationStatus["clients"] {
  const files = outsiderFiles(lab);
  return [
    { clientId: clientIds.bridgeOf("org-c"), secretFile: files.unknownClientSecret, partner: null },
    ...COMPLETE_ORGANISATIONS.map((issuer) => ({
      clientId: clientIds.applicant,
      secretFile: files.applicantSecret(issuer),
      partner: lab.serverNames[issuer],
    })),
  ];
}

async function serviceStatus(sources: Sources, name: CompleteOrganisation) {
  const { lab } = sources;
  const paths = lab.paths.organisation(name);
  const endpoints = serviceEndpoints(lab, name);
  const [gateway, issuer, agent, bridge, reconciler] = await Promise.all([
    programStatus(sources, name, "gateway"),
    programStatus(sources, name, "issuer"),
    programStatus(sources, name, "agent"),
    programStatus(sources, name, "bridge"),
    programStatus(sources, name, "reconciler"),
  ]);
  return {
    gateway: {
      ...gateway,
      pid: gateway.pid === null ? null : (childrenOf(gateway.pid)[0] ?? null),
      programPid: gateway.pid,
      url: endpoints.gatewayUrl,
      cardUrl: endpoints.cardUrl,
      invokeUrl: endpoints.invokeUrl,
      accessLog: paths.accessLog,
    },
    issuer: {
      ...issuer,
      url: endpoints.issuerUrl,
      tokenEndpoint: endpoints.tokenEndpoint,
      jwksUrl: endpoints.jwksUrl,
      audience: endpoints.audience,
      clientsFile: paths.clientsFile,
    },
    agent: {
      ...agent,
      url: endpoints.agentUrl,
      name: AGENT,
      title: TRAITS[name].agentTitle,
      documents: paths.agentDocuments,
    },
    bridge: {
      ...bridge,
      url: endpoints.bridgeUrl,
      healthUrl: endpoints.healthUrl,
      metricsUrl: endpoints.metricsUrl,
      databaseUrl: (readIfPresent(paths.bridgeSecret(BRIDGE_SECRETS.databaseUrl)) ?? "").trim(),
      agentsFile: paths.agentsFile,
      auditFile: paths.auditFile,
      logFile: paths.bridgeLog,
      ghosts: carriedAgents(lab, name).map(({ ghost, agentId, cardUrl }) => ({
        ...{ userId: ghost, agent: agentId, cardUrl },
      })),
    },
    federation: await federationStatus(lab, name),
    reconciler,
  };
}

/**
 * The shared rooms as one organisation has them now, by the journal of the rooms plane: its own first, then the
 * others', then the same in their encrypted form.
 */
export async function roomsOf(
  lab: Lab,
  seed: Seed | undefined,
  name: OrganisationName,
): Promise<OrganisationStatus["rooms"]> {
  if (seed === undefined || !ADMITTED_ORGANISATIONS.includes(name)) return [];
  const left = isComplete(name)
    ? await leftRooms(join(lab.paths.organisation(name).federationState, "rooms"))
    : NONE;
  return seed.rooms
    .toSorted(
      (a, b) =>
        Number(a.encrypted) - Number(b.encrypted) ||
        Number(b.createdBy === name) - Number(a.createdBy === name),
    )
    .map(({ roomId, alias, encrypted }) => {
      const record = left.get(roomId);
      return {
        ...{ roomId, alias, encrypted },
        left: record === undefined ? null : (record.gone?.how ?? "replaced"),
        replacedBy: record?.replacement?.to ?? null,
      };
    });
}

const NONE: ReadonlyMap<string, RoomRecord> = new Map();

async function leftRooms(folder: string): Promise<ReadonlyMap<string, RoomRecord>> {
  const found = new Map<string, RoomRecord>();
  try {
    for (const partner of await journaledPartners(folder)) {
      for (const record of journalIn(folder, partner).rooms) {
        if (record.gone !== undefined || record.replacement !== undefined) found.set(record.room, record);
      }
    }
  } catch (error) {
    // The reconciler reports a journal that cannot be read.
    if (!(error instanceof DrawbridgeError)) throw error;
  }
  return found;
}
