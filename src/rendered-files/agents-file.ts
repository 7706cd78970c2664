// agents.yaml: which agents have a ghost, whose card identity is pinned, and who may ask.
// Invariants: unknown keys are refused; identities are compared exactly, never by pattern; an entry with
// no cardIdentity or an empty list parses (it is how a pin is revoked) and is then never trusted.
import { createPublicKey } from "node:crypto";
import * as z from "zod";
import { canonicalize } from "../domain/canonical-json.ts";
import { sha256Tagged } from "../domain/digest.ts";
import { durationMs } from "../domain/duration.ts";
import { AgentName, ServerNameField } from "../domain/identifier-fields.ts";
import { localpartOf, parseServerName, parseUserId, serverOf, type UserId } from "../domain/identifiers.ts";
import { addressIn } from "../runtime/public-addresses.ts";
import { RegistrySecretReference } from "../runtime/secrets.ts";

/** The last digit has two bits that say nothing: with those set, one key had several spellings and thumbprints. */
const Coordinate = z
  .string()
  .regex(/^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$/, { error: "must be 32 bytes in the one form of base64url" });

/** Key IDs go into audit records, which hold no control characters and nothing that looks like two values. */
const KeyId = z
  .string()
  .regex(/^[\x21-\x7e]{1,128}$/, { error: "must be 1 to 128 visible ASCII characters, no spaces" });

/** A public P-256 key (RFC 7517). Private members are unknown keys here, and so refused. */
export const PublicEs256Jwk = z
  .strictObject({
    kty: z.literal("EC"),
    crv: z.literal("P-256"),
    x: Coordinate,
    y: Coordinate,
    kid: KeyId.optional(),
    alg: z.literal("ES256").optional(),
    use: z.literal("sig").optional(),
  })
  .refine(isOnCurve, { error: "x and y are no point on P-256: copy the key again" });

function isOnCurve({ x, y }: { x: string; y: string }): boolean {
  try {
    createPublicKey({ key: { kty: "EC", crv: "P-256", x, y }, format: "jwk" });
    return true;
  } catch {
    return false;
  }
}

/** The pinned identity of a card's signer: the key ID that must be named, and the key that must verify. */
export const CardIdentity = z
  .strictObject({ keyId: KeyId, jwk: PublicEs256Jwk })
  .refine(({ keyId, jwk }) => jwk.kid === undefined || jwk.kid === keyId, {
    error: "keyId and the jwk's own kid differ: pin the key ID that the card's signature names",
    path: ["keyId"],
  });
export type CardIdentity = z.output<typeof CardIdentity>;

const isAllowedSender = (value: string) =>
  (value.startsWith("*:") ? parseServerName(value.slice(2)) : parseUserId(value)) !== undefined;
const AllowedSender = z.string().refine(isAllowedSender, {
  error: "must be a user ID such as @alice:example.org, or *:example.org for all users of one server",
});

// A secret in an address would end in logs.
const AddressWithoutSecret = z
  .url({ protocol: /^https?$/, error: "must be an http or https URL" })
  .refine((value) => /^https?:\/\/[^/?#@]+(?:[/?]|$)/i.test(value), {
    error: "must name a host and no user name or password",
  });

/** Scheme, host and port, the scheme's own port left out, as `new URL(…).origin` writes it. */
const Origin = z.string().refine((value) => URL.canParse(value) && new URL(value).origin === value, {
  error: "must be an origin such as https://agents.example.org or http://10.0.0.5:8080",
});

/** The types of attachments that the bridge can tell by their content. */
export const ATTACHMENT_TYPES = [
  "text/plain",
  "text/markdown",
  "text/csv",
  "application/json",
  "application/pdf",
  "image/png",
  "image/jpeg",
  "image/gif",
  "image/webp",
] as const;

const ATTACHMENT_BYTES_MAX = 16 * 1024 * 1024;
const DEFAULT_ATTACHMENT_BYTES = 4 * 1024 * 1024;

export const AgentEntry = z.strictObject({
  cardUrl: AddressWithoutSecret,
  /**
   * Where questions and tokens may go besides the card's own origin, whatever the card says. A listed origin may be
   * at a private, loopback or link-local address; another one may not, unless `cardUrl` itself names that address.
   */
  allowedOrigins: z.array(Origin).default([]),
  /** Absent: the pin is revoked and the target stays quarantined. */
  cardIdentity: CardIdentity.optional(),
  allowedServers: z.array(ServerNameField),
  allowedSenders: z.array(AllowedSender),
  /** Shown in rooms; the card's own name when absent. */
  displayName: z.string().min(1).max(255).optional(),
  /** OAuth 2.0 client credentials (RFC 6749, section 4.4; RFC 8707 resource). Absent: no token is sent. */
  credentials: z
    .strictObject({
      tokenEndpoint: AddressWithoutSecret,
      clientId: z.string().min(1).max(255),
      clientSecret: RegistrySecretReference,
      resource: z.string().min(1).optional(),
      scope: z.string().min(1).optional(),
    })
    .optional(),
  /** Token bucket of all bridge processes: a question spends one before the first call, and keeps it for its retries. */
  rate: z
    .strictObject({ perMinute: z.number().positive().default(60), burst: z.int().min(1).default(20) })
    .prefault({}),
  /** Which files that people attach to a question go to the agent, if its card accepts them too. Absent: none. */
  attachments: z
    .strictObject({
      types: z.array(z.enum(ATTACHMENT_TYPES)).min(1),
      bytes: z.int().min(1).max(ATTACHMENT_BYTES_MAX).default(DEFAULT_ATTACHMENT_BYTES),
    })
    .optional(),
  /** How a long task is followed when the agent offers no stream. */
  pollInterval: durationMs("2s", { min: "100ms" }),
});
export type AgentEntry = z.output<typeof AgentEntry>;

/** What the localparts of ghosts begin with, as `appservice.ghostPrefix` of a bridge says it. */
export const GhostPrefix = z.string().regex(/^[a-z0-9._=/-]{1,32}$/);

/** The ghosts of a partner's bridge: the users of its server whose localpart begins so. */
export const PartnerGhosts = z.strictObject({ server: ServerNameField, prefix: GhostPrefix });
export type PartnerGhosts = z.output<typeof PartnerGhosts>;

/** Whether a user is a ghost of a partner's bridge: what it says was not said by a person. */
export function isPartnerGhost(partnerGhosts: readonly PartnerGhosts[], user: UserId): boolean {
  return partnerGhosts.some(
    ({ server, prefix }) => serverOf(user) === server && localpartOf(user).startsWith(prefix),
  );
}

export const AgentsFile = z.strictObject({
  version: z.literal(1),
  /** Ghosts of partners, whose messages never ask an agent. */
  partnerGhosts: z.array(PartnerGhosts).default([]),
  agents: z.record(AgentName, AgentEntry),
});
export type AgentsFile = z.output<typeof AgentsFile>;

export type Destinations = Pick<AgentEntry, "cardUrl" | "allowedOrigins">;

/**
 * Whether requests to this URL may be made for the agent: to the card's origin and to those that the operator lists, with
 * no credentials in the URL, and not by plain HTTP when the card came by HTTPS.
 */
export function mayRequest(entry: Destinations, text: string): boolean {
  const url = URL.parse(text);
  const card = new URL(entry.cardUrl);
  if (url === null || (url.origin !== card.origin && !entry.allowedOrigins.includes(url.origin)))
    return false;
  if (url.username !== "" || url.password !== "" || url.hash !== "" || url.hostname === "") return false;
  return url.protocol === "https:" || (url.protocol === "http:" && card.protocol === "http:");
}

/**
 * Whether a request to this URL may go to an address that is not public: the operator has listed its origin, or has
 * written the address itself into `cardUrl`. A name that somebody else can point anywhere is no such address.
 */
export function mayBePrivate(entry: Destinations, url: string): boolean {
  const { origin } = new URL(url);
  if (entry.allowedOrigins.includes(origin)) return true;
  return origin === new URL(entry.cardUrl).origin && addressIn(entry.cardUrl) !== undefined;
}

type Target = Pick<AgentEntry, "cardUrl" | "cardIdentity">;

/** The fingerprint of a target: one agent at one address under one pinned key, however the file is written. */
export function targetFingerprint(agentId: string, { cardUrl, cardIdentity: pinned }: Target): string {
  const cardIdentity =
    pinned === undefined
      ? null
      : { keyId: pinned.keyId, jwk: { kty: "EC", crv: "P-256", x: pinned.jwk.x, y: pinned.jwk.y } };
  return sha256Tagged(canonicalize({ agentId, cardUrl, cardIdentity }));
}
