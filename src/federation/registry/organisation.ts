// registry/organisation.yaml: what this organisation is and offers to its partners.
// Invariants: unknown keys are refused; secrets are named by reference, never written here.
// Published as docs/reference/schemas/registry-organisation.schema.json.
import * as z from "zod";
import { AgentName, ServerNameField } from "../../domain/identifier-fields.ts";
import { AgentEntry, CardIdentity } from "../../rendered-files/agents-file.ts";
import { AbsolutePath, plainUrl, Quota, UpstreamUrl } from "../../rendered-files/gateway-files.ts";
import { DeclaredClientId } from "../../rendered-files/issuer-clients.ts";
import { RegistrySecretReference } from "../../runtime/secrets.ts";
import { RetiredOwn } from "./retired-identities.ts";

export const ORGANISATION_FILE = "registry/organisation.yaml";

export const OfferedAgent = z.strictObject({
  upstream: UpstreamUrl,
  upstreamCardPath: AbsolutePath.default("/.well-known/agent-card.json"),
  cardPath: AbsolutePath,
  invokePath: AbsolutePath,
  httpJson: z.boolean().default(false),
  forwardToken: z.boolean().default(false),
  /** `while_consumed`: the card is public, for everybody, while a partner whose card plane is open may invoke the agent. */
  publish: z.enum(["while_consumed", "always", "never"]).default("while_consumed"),
  /** Public keys that its card is signed with: published as evidence, for partners to pin. */
  cardKeys: z.array(CardIdentity).default([]),
});
export type OfferedAgent = z.output<typeof OfferedAgent>;

/** A client of the issuer that belongs to no partner: the organisation's own bridge, or an applicant. */
export const OwnClient = z.strictObject({
  clientId: DeclaredClientId,
  enabled: z.boolean().default(true),
  secret: RegistrySecretReference,
  /** Server name of the organisation that applied; absent for the organisation's own. */
  applicant: ServerNameField.optional(),
  invokes: z.array(AgentName).default([]),
  quota: Quota.optional(),
});
export type OwnClient = z.output<typeof OwnClient>;

const KubernetesName = z
  .string()
  .regex(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/, { error: "must be a Kubernetes name: a-z, 0-9 and -" });

const ServicePort = z.strictObject({
  name: KubernetesName,
  /** The resources' own when absent. */
  namespace: KubernetesName.optional(),
  port: z.int().min(1).max(65_535),
});

const RateLimitDomain = z.string().regex(/^[a-z0-9-]{1,63}$/);

/** Where Kubernetes resources are rendered to. Absent: none are rendered. */
export const KubernetesTarget = z.strictObject({
  namespace: KubernetesName,
  /** The Gateway (gateway.networking.k8s.io) that routes attach to. */
  gateway: z.strictObject({ name: KubernetesName, namespace: KubernetesName.optional() }),
  /** Public host names of the routes; empty: those of the Gateway's listener. */
  hostnames: z.array(z.string().regex(/^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/)).default([]),
  issuer: z.strictObject({
    /** The `iss` of its tokens. */
    url: plainUrl(/^https?$/),
    /** The `aud` of its tokens. */
    audience: z.string().min(1),
    jwks: z.strictObject({ service: ServicePort, path: AbsolutePath }),
  }),
  /** The rate limit service (envoyproxy/ratelimit) that the gateways share. */
  rateLimit: z.strictObject({ service: ServicePort, domain: RateLimitDomain.default("gateway") }),
});
export type KubernetesTarget = z.output<typeof KubernetesTarget>;

/** An entry of our bridge's agents.yaml; without lists, all users of ours and of every admitted partner may ask it. */
export const AgentConsumption = AgentEntry.partial({ allowedServers: true, allowedSenders: true });

export const Organisation = z.strictObject({
  version: z.literal(1),
  serverName: ServerNameField,
  transport: z
    .strictObject({
      /** Notary servers for signing keys besides the partners'. Empty: each server's own word alone. */
      trustedKeyServers: z.array(ServerNameField).default([]),
    })
    .prefault({}),
  border: z
    .strictObject({
      /** `allow_listed`: invitations from admitted servers; `deny_all`: from nobody outside. */
      inviteRule: z.enum(["allow_listed", "deny_all"]).default("allow_listed"),
    })
    .prefault({}),
  agents: z.record(AgentName, OfferedAgent).default({}),
  /** Agents whose ghosts this organisation's own bridge carries and that no partner publishes. */
  consumes: z.record(AgentName, AgentConsumption).default({}),
  clients: z.array(OwnClient).default([]),
  quotas: z.strictObject({ default: Quota }),
  kubernetes: KubernetesTarget.optional(),
  retired: RetiredOwn.prefault({}),
});
export type Organisation = z.output<typeof Organisation>;
