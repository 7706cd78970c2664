// The two files that tell a gateway whom it serves: publication.yaml (whose cards are public, plane 4) and
// invocation.yaml (who may invoke which agent, and how often, plane 5). Invariants: an agent that is not listed has no
// card route, and one without clients no invocation route; a client is named in full, never by a pattern.
import * as z from "zod";
import { AgentName, Sha256Digest } from "../domain/identifier-fields.ts";

/** Envoy is told to compile expressions of such paths (gateway/render/render.ts). */
export const PATH_LENGTH_MAX = 512;

export const AbsolutePath = z
  .string()
  .regex(/^(?:\/[A-Za-z0-9_~-][A-Za-z0-9._~-]*|\/\.[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$/, {
    error: "must be an absolute path of letters, digits and . _ ~ - /, without empty or dot segments",
  })
  .max(PATH_LENGTH_MAX, { error: `must be ${PATH_LENGTH_MAX} characters at most` });

/** Whether a path is one of an agent's HTTP+JSON operations, which lie below where it is invoked (A2A 1.0, section 11). */
export const isOperationOf = (invokePath: string, path: string): boolean =>
  `${path}/`.startsWith(`${invokePath}/tasks/`);

/** An OAuth client ID as tokens carry it. Printable, so that it can stand in an access log line. */
export const ClientId = z
  .string()
  .regex(/^[\x21-\x7e]{1,255}$/, { error: "must be 1 to 255 printable characters" });

/** A URL without credentials, which would land in a file, and without a fragment. */
export const plainUrl = (protocol: RegExp) =>
  z.url({ protocol }).refine(
    (value) => {
      const url = URL.parse(value);
      return url !== null && url.username === "" && url.password === "" && url.hash === "";
    },
    { error: "must have no user, password or fragment" },
  );

/** Where an agent itself is reached by its gateway. */
export const UpstreamUrl = plainUrl(/^http$/).refine((value) => URL.parse(value)?.search === "", {
  error: "must have no query",
});

/** Requests a client may make: `perMinute` on average, `burst` at once. */
export const Quota = z.strictObject({
  perMinute: z.int().min(1).max(1_000_000),
  burst: z.int().min(1).max(1_000_000),
});
export type Quota = z.output<typeof Quota>;

export const PublishedCard = z.strictObject({
  /** The agent, reached by the gateway alone; its card is fetched from this origin. */
  upstream: UpstreamUrl,
  upstreamCardPath: AbsolutePath.default("/.well-known/agent-card.json"),
  /** Public, GET, no token. */
  cardPath: AbsolutePath,
});
export type PublishedCard = z.output<typeof PublishedCard>;

export const PublicationFile = z.strictObject({
  version: z.literal(1),
  cards: z.record(AgentName, PublishedCard),
});
export type PublicationFile = z.output<typeof PublicationFile>;

export const InvokedAgent = z.strictObject({
  /** The agent's JSON-RPC endpoint, reached by the gateway alone. Its HTTP+JSON interface, if any, is below it. */
  upstream: UpstreamUrl,
  /** JSON-RPC by POST on exactly this path; HTTP+JSON below it when `httpJson` is set. */
  invokePath: AbsolutePath,
  httpJson: z.boolean().default(false),
  /** Client IDs (`azp`) that may invoke it. Empty: nobody, and the path answers 404. */
  clients: z.array(ClientId),
  /** Pass the caller's token on to the agent. The agent learns the caller from `x-azp` either way. */
  forwardToken: z.boolean().default(false),
});
export type InvokedAgent = z.output<typeof InvokedAgent>;

export const InvocationFile = z.strictObject({
  version: z.literal(1),
  agents: z.record(AgentName, InvokedAgent),
  /** Per `azp`; a client without its own gets `default`. */
  quotas: z.strictObject({ default: Quota, clients: z.record(ClientId, Quota).default({}) }),
});
export type InvocationFile = z.output<typeof InvocationFile>;

// state.json: what a gateway has in force, written by the gateway for federation control (planes 4 and 5).
// Invariants: a digest stands here only after Envoy has reported every version that came of it; the file is
// replaced whole. Published as docs/reference/schemas/gateway-state.schema.json.

export const RefusalReason = z.enum(["unreadable", "invalid", "refused_by_envoy", "needs_restart"]);
export type RefusalReason = z.output<typeof RefusalReason>;

/** In the order in which a gateway tries changed files, and reports those that it refuses. */
export const FollowedFile = z.enum(["invocation", "publication", "gateway"]);
export type FollowedFile = z.output<typeof FollowedFile>;

export const GatewayState = z.strictObject({
  version: z.literal(1),
  /** SHA-256, tagged, of the bytes of the file in force. */
  publication: Sha256Digest,
  invocation: Sha256Digest,
  since: z.iso.datetime(),
  /** A file that is there and not in force; the last good one is. Of several, the first. */
  refused: z
    .strictObject({
      file: FollowedFile,
      /** Of the refused bytes; null when they could not be read. */
      digest: Sha256Digest.nullable(),
      reason: RefusalReason,
      at: z.iso.datetime(),
    })
    .nullable(),
});
export type GatewayState = z.output<typeof GatewayState>;
