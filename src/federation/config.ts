// federation.yaml: where the parts of one deployment are that the registry's planes are applied to.
// The file is this machine's own and lies outside the repository; only the registry says who is admitted.
// Invariants: unknown keys are refused; secrets are references; relative paths start at the file's folder.
// Published as docs/reference/schemas/federation.schema.json.
import { resolve } from "node:path";
import * as z from "zod";
import { durationMs } from "../domain/duration.ts";
import { GitRevision } from "../records/format/fields.ts";
import { type InFolder, ListenAddress, loadConfig } from "../runtime/load-yaml.ts";
import { SecretReference } from "../runtime/secrets.ts";

export const Url = z.url({ protocol: /^https?$/ });
export const Path = z.string().min(1);

const Homeserver = z.strictObject({
  url: Url,
  /** Access token of an administrator of the homeserver; the rooms plane acts with it. */
  operatorToken: SecretReference,
  /** Signed requests to retained servers are made with the homeserver's own key (server-server API). */
  signingKeyFile: Path,
  federationProxy: Url.optional(),
  /** PEM bundle for federation requests; the system's when absent. */
  federationCaFile: Path.optional(),
  /** Connection URL of a PostgreSQL role that may only select: for counting what a purge leaves. */
  databaseUrl: SecretReference.optional(),
});

const Restart = z.strictObject({
  /** Program and arguments, run without a shell. It ends when the restart has begun. */
  command: z.array(z.string().min(1)).min(1),
  /** Restarts beyond this wait; the transport plane is then reported as deferred. */
  maxPerHour: z.int().min(1).max(60).default(6),
  timeout: durationMs("60s", { min: "1s" }),
});

const Issuer = z.discriminatedUnion("adapter", [
  z.strictObject({ adapter: z.literal("declared_clients"), clientsFile: Path }),
  z.strictObject({
    adapter: z.literal("keycloak"),
    url: Url,
    realm: z.string().min(1),
    /** A confidential client with the realm-management role manage-clients. */
    adminClientId: z.string().min(1),
    adminClientSecret: SecretReference,
    adminRealm: z.string().min(1).default("master"),
    /** The `aud` that tokens of declared clients carry. */
    audience: z.string().min(1),
    /** PEM bundle that an https `url` is verified against; the system's when absent. */
    caFile: Path.optional(),
    /** Where relative secret references of the registry start. */
    secretsDirectory: Path.default("."),
  }),
]);

export const FederationConfigFile = z.strictObject({
  version: z.literal(1),
  repository: z.strictObject({
    /** A bare repository. People edit in clones of it and push. */
    path: Path,
    branch: z
      .string()
      .regex(/^[A-Za-z0-9][A-Za-z0-9._/-]*$/)
      .default("main"),
    /** OpenSSH allowed signers (ssh-keygen(1)): only commits signed by one of them are applied. */
    allowedSignersFile: Path.optional(),
    /** Commits that must be signed: `every` new one, or the `first_parent` line, which answers for what it merges. */
    signedCommits: z.enum(["every", "first_parent"]).default("every"),
    /** A commit that is trusted with all its ancestors, from before commits were signed. */
    trustedBase: GitRevision.optional(),
    /** Private SSH key that this machine's own commits are signed with. */
    signingKeyFile: Path.optional(),
    author: z
      .strictObject({ name: z.string().min(1), email: z.string().min(3) })
      .default({ name: "Drawbridge", email: "drawbridge@localhost" }),
  }),
  state: Path.default("state"),
  reconcile: z
    .strictObject({
      interval: durationMs("1s", { min: "100ms" }),
      driftInterval: durationMs("30s", { min: "1s" }),
      /** `GET /metrics`; not served when absent. */
      observe: ListenAddress.optional(),
    })
    .prefault({}),
  homeserver: Homeserver,
  transport: z.strictObject({
    /** The include file that the homeserver reads beside homeserver.yaml. */
    includeFile: Path,
    restart: Restart,
  }),
  border: z.strictObject({
    policyFile: Path,
    /** The bearer token of the module's status resource on the homeserver. */
    statusToken: SecretReference,
    /** Where the module writes violations, a JSON line each. */
    violationsFile: Path,
  }),
  /** Absent: this organisation runs no bridge. */
  card: z.strictObject({ agentsFile: Path, bridgeAuditFile: Path, bridgeHealthUrl: Url }).optional(),
  /** Absent: this organisation publishes no agent. */
  gateway: z
    .strictObject({
      publicationFile: Path,
      invocationFile: Path,
      stateFile: Path,
      accessLog: Path,
      url: Url,
      issuer: Issuer,
    })
    .optional(),
  /** Absent: this organisation signs no removal. */
  offboarding: z
    .strictObject({
      /** What statements are signed with: a PKCS #8 file, or a program that holds the key elsewhere. */
      signingKey: z.union([
        z.strictObject({ file: Path }),
        z.strictObject({ command: z.array(z.string().min(1)).min(1), publicKeyFile: Path }),
      ]),
      /** Both organisations' public keys; see docs/reference/offboarding-records.md. */
      trustFile: Path,
    })
    .optional(),
});
export type FederationConfig = InFolder<z.output<typeof FederationConfigFile>> & { readonly file: string };

/** Paths are left as written, relative to `directory`. @throws ConfigError, DrawbridgeError `config_unreadable` */
export function loadFederationConfig(file: string): FederationConfig {
  return { ...loadConfig(FederationConfigFile, file), file: resolve(file) };
}
