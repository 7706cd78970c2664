// What `fed:status --json` says: everything that a foreign client or script needs to take part in the lab.
// Published as docs/reference/schemas/fed-status.schema.json. All paths are absolute. It holds passwords,
// access tokens and database URLs: they are the lab's own, made for it and good for nothing else.
import * as z from "zod";
import { PLANE_NAMES } from "../../src/federation/plane-order.ts";
import { OutcomeName } from "../../src/federation/state/plane-records.ts";
import { ORGANISATION_NAMES } from "../organisations.ts";
import { SeededUser } from "../seed/seed-file.ts";
import { UNIT_STATES } from "../supervisor/client.ts";

/** Of the running program; null while there is none. */
const Pid = z.int().nullable();

const ProgramFields = {
  pid: Pid,
  state: z.enum(UNIT_STATES),
  /** Whether it answered as it should when it was asked just now. */
  healthy: z.boolean(),
  configFile: z.string(),
  /** What it wrote to standard output and standard error. */
  outputFile: z.string(),
};

const Room = z.strictObject({
  roomId: z.string(),
  alias: z.string(),
  encrypted: z.boolean(),
  /** How this organisation has left the room, because of a containment or a removal; null while it is in it. */
  left: z.enum(["retired", "left", "replaced"]).nullable(),
  /** The room in which its people are instead; null when there is none. */
  replacedBy: z.string().nullable(),
});

const Client = z.strictObject({
  clientId: z.string(),
  secretFile: z.string(),
  /**
   * Server name of the organisation on the other side: whose client this is, or, among the clients of an
   * outsider, whose issuer gave it. Null for a client of the organisation itself.
   */
  partner: z.string().nullable(),
});

const Gateway = z.strictObject({
  ...ProgramFields,
  /** `pid` is Envoy's; this is the gateway program that configures it and ends with it. */
  programPid: Pid,
  url: z.url(),
  cardUrl: z.url(),
  invokeUrl: z.url(),
  accessLog: z.string(),
});

const Issuer = z.strictObject({
  ...ProgramFields,
  url: z.url(),
  tokenEndpoint: z.url(),
  jwksUrl: z.url(),
  audience: z.string(),
  clientsFile: z.string(),
});

const Agent = z.strictObject({
  ...ProgramFields,
  url: z.url(),
  /** As the gateway publishes it, and as agents.yaml of its own bridge names it. */
  name: z.string(),
  /** As its card names it. */
  title: z.string(),
  documents: z.string(),
});

const Bridge = z.strictObject({
  ...ProgramFields,
  url: z.url(),
  healthUrl: z.url(),
  metricsUrl: z.url(),
  databaseUrl: z.string(),
  agentsFile: z.string(),
  auditFile: z.string(),
  logFile: z.string(),
  ghosts: z.array(z.strictObject({ userId: z.string(), agent: z.string(), cardUrl: z.url() })),
});

const AppliedPlane = z.strictObject({
  /** The revision whose files the reconciler has applied last. */
  revision: z.string(),
  digest: z.string(),
  outcome: OutcomeName,
  /** Why it is deferred, or the code that it failed with. */
  reason: z.string().nullable(),
  at: z.string(),
  /** Differences that the last check for drift found; null when there was none yet. */
  drift: z.int().nullable(),
});

const NamedPartner = z.strictObject({ partner: z.string(), serverName: z.string() });

const Federation = z.strictObject({
  configFile: z.string(),
  /** Bare; `git clone` it to change the registry. */
  repository: z.string(),
  branch: z.string(),
  /** What the branch says; null before there is one. */
  revision: z.string().nullable(),
  /** The last revision that the reconciler has accepted. */
  accepted: z.string().nullable(),
  /** Partners that are contained, by the branch. */
  containment: z.array(NamedPartner),
  /** Partners of which every plane is declared closed, by the branch. */
  removed: z.array(NamedPartner),
  /** Removals and re-admissions that were opened and have not ended, ISO 8601. */
  unfinished: z.array(
    z.strictObject({ what: z.enum(["removal", "re-admission"]), serverName: z.string(), since: z.string() }),
  ),
  /** Null for a plane that was never applied. */
  planes: z.record(z.enum(PLANE_NAMES), AppliedPlane.nullable()),
  stateDirectory: z.string(),
  /** By the organisation as which this one is probed. */
  probeFiles: z.partialRecord(z.enum(ORGANISATION_NAMES), z.string()),
  border: z.strictObject({
    statusUrl: z.url(),
    statusTokenFile: z.string(),
    policyFile: z.string(),
    violationsFile: z.string(),
  }),
  transportFile: z.string(),
  publicationFile: z.string(),
  invocationFile: z.string(),
  gatewayStateFile: z.string(),
});
export type FederationStatus = z.output<typeof Federation>;

export const OrganisationStatus = z.strictObject({
  serverName: z.string(),
  clientUrl: z.url(),
  /** Good for a request without DNS: the certificate names 127.0.0.1 too. */
  federationUrl: z.url(),
  caFile: z.string(),
  /** The CONNECT proxy that reaches the other servers by their names, as this organisation. */
  connectProxy: z.url(),
  dataDirectory: z.string(),
  homeserver: z.strictObject({ ...ProgramFields, signingKeyFile: z.string() }),
  users: z.array(SeededUser),
  rooms: z.array(Room),
  clients: z.array(Client),
  gateway: Gateway.optional(),
  issuer: Issuer.optional(),
  agent: Agent.optional(),
  bridge: Bridge.optional(),
  federation: Federation.optional(),
  /** Follows the registry's branch and applies it. */
  reconciler: z.strictObject(ProgramFields).optional(),
});
export type OrganisationStatus = z.output<typeof OrganisationStatus>;

export const FedStatus = z.strictObject({
  version: z.literal(1),
  name: z.string(),
  directory: z.string(),
  /** All programs run and answer. */
  healthy: z.boolean(),
  supervisor: z.strictObject({
    pid: Pid,
    controlUrl: z.url(),
    tokenFile: z.string(),
    logFile: z.string(),
  }),
  postgres: z.strictObject({
    pid: Pid,
    state: z.enum(UNIT_STATES),
    port: z.int(),
    dataDirectory: z.string().nullable(),
    logFile: z.string().nullable(),
  }),
  /** Links between two organisations' homeservers that are cut now. */
  cutLinks: z.array(z.tuple([z.string(), z.string()])),
  organisations: z.strictObject({
    "org-a": OrganisationStatus,
    "org-b": OrganisationStatus,
    "org-c": OrganisationStatus,
    /** The neutral witness, where it runs. */
    "org-d": OrganisationStatus.exactOptional(),
  }),
});
export type FedStatus = z.output<typeof FedStatus>;
