// The paths of a lab: one folder a lab, in it one folder an organisation with the configuration that its
// operator could have written.
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { DrawbridgeError } from "../src/domain/errors.ts";
import type { OrganisationName } from "./organisations.ts";

/** The clone this code runs from. */
export const CLONE = dirname(dirname(fileURLToPath(import.meta.url)));

/** Names a folder to use instead of `.drawbridge` in the clone. */
export const STATE_VARIABLE = "DRAWBRIDGE_STATE";
const LAB_NAME = /^[a-z0-9][a-z0-9-]{0,30}$/;

/**
 * The folder of a lab.
 * @throws DrawbridgeError `usage` when the name could not be one of a folder
 */
export function labDirectory(name: string, environment: NodeJS.ProcessEnv = process.env): string {
  if (!LAB_NAME.test(name)) {
    throw new DrawbridgeError("usage", `${JSON.stringify(name)} is no name for a lab`, {
      hint: "Use lower-case letters, digits and '-', at most 31.",
    });
  }
  const state = environment[STATE_VARIABLE];
  const root = state === undefined || state === "" ? join(CLONE, ".drawbridge") : resolve(state);
  return join(root, "lab", name);
}

/** Absolute paths inside a lab's folder. */
export function labPaths(directory: string) {
  const at = (...parts: string[]) => join(directory, ...parts);
  return {
    directory,
    state: at("lab.json"),
    supervisor: at("supervisor.json"),
    controlToken: at("supervisor.token"),
    processes: at("processes.json"),
    seed: at("seed.json"),
    manifest: at("configuration.json"),
    caCertificate: at("ca", "ca.pem"),
    caKey: at("ca", "ca.key"),
    postgres: at("postgres"),
    /** Where PostgreSQL really keeps its data; it may be elsewhere when its user cannot enter this folder. */
    postgresPlace: at("postgres-place.json"),
    logs: at("logs"),
    log: (unit: string) => at("logs", `${unit.replace("/", "-")}.log`),
    organisation: (organisation: OrganisationName) => organisationPaths(at(organisation)),
  };
}
export type LabPaths = ReturnType<typeof labPaths>;

function organisationPaths(directory: string) {
  const at = (...parts: string[]) => join(directory, ...parts);
  return {
    directory,
    homeserver: at("homeserver"),
    homeserverConfig: at("homeserver", "homeserver.yaml"),
    /** Read by the homeserver after its own file, and put there by federation control alone. */
    homeserverIncludes: at("homeserver", "homeserver.d"),
    transportFile: at("homeserver", "homeserver.d", "federation.yaml"),
    policyFile: at("homeserver", "border", "policy.json"),
    violationsFile: at("homeserver", "border", "violations.jsonl"),
    registration: at("homeserver", "registration.yaml"),
    databasePassword: at("homeserver", "secrets", "database-password"),
    bridge: at("bridge"),
    bridgeConfig: at("bridge", "bridge.yaml"),
    agentsFile: at("bridge", "agents.yaml"),
    auditFile: at("bridge", "audit.jsonl"),
    bridgeLog: at("bridge", "bridge.log"),
    bridgeSecret: (name: string) => at("bridge", "secrets", name),
    /** What this organisation's bridge authenticates with at an issuer. */
    bridgeClientSecret: (name: string) => at("bridge", "client-secrets", name),
    gateway: at("gateway"),
    gatewayConfig: at("gateway", "gateway.yaml"),
    publicationFile: at("gateway", "publication.yaml"),
    invocationFile: at("gateway", "invocation.yaml"),
    gatewayState: at("gateway", "state.json"),
    accessLog: at("gateway", "access.jsonl"),
    issuer: at("issuer"),
    issuerConfig: at("issuer", "issuer.yaml"),
    clientsFile: at("issuer", "clients.yaml"),
    issuerKeys: at("issuer", "secrets", "signing-keys.json"),
    clientSecret: (clientId: string) => at("issuer", "client-secrets", `${clientId}.secret`),
    agent: at("agent"),
    agentConfig: at("agent", "docs-qa.yaml"),
    agentKey: at("agent", "secrets", "card-signing-key.json"),
    agentDocuments: at("agent", "documents"),
    agentIcon: at("agent", "icon.png"),
    /** The control repository, and what the reconciler needs beside it. */
    federation: at("federation"),
    controlRepository: at("federation", "control.git"),
    federationConfig: at("federation", "federation.yaml"),
    federationState: at("federation", "state"),
    operatorToken: at("federation", "secrets", "operator-token"),
    borderStatusToken: at("federation", "secrets", "border-status-token"),
    /** Of a role that may only read the homeserver's database. */
    databaseUrl: at("federation", "secrets", "homeserver-database-url"),
    /** What removals are signed with, and whose signatures are taken. */
    recordsKeys: at("federation", "records"),
    recordsPublicKey: (of: OrganisationName) => at("federation", "records", `${of}.pub.pem`),
    trustFile: at("federation", "records", "trust.yaml"),
    /** The probe file for this organisation from outside, as a partner or as the outsider. */
    probeFile: (as: OrganisationName) => at("federation", `probe-${as}.yaml`),
    userToken: (localpart: string) => at("users", `${localpart}.token`),
    /** Org C's credentials that nobody admits. */
    outsider: at("outsider"),
  };
}
export type OrganisationPaths = ReturnType<typeof organisationPaths>;
