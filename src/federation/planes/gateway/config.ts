// The gateway's configuration: which agents are published, who may call them, how often.
// Envoy's own files are rendered from it; nothing else is configured by hand.
// Published as docs/reference/schemas/gateway.schema.json.
import { z } from "zod";
import { parseAgentId } from "../../../domain/identifiers.ts";

const Port = z.int().min(1).max(65_535);
const ExactPath = z.string().regex(/^\/[A-Za-z0-9._~/-]*[A-Za-z0-9._~-]$/, {
  error: "must be an absolute path of letters, digits and . _ ~ - /, not ending in /",
});

/** Requests a client may make: `perMinute` on average, `burst` at once. */
const Quota = z.strictObject({ perMinute: z.int().min(1), burst: z.int().min(1) });

export const PublishedAgent = z.strictObject({
  /** Where the agent listens, reached by the gateway alone. */
  upstream: z.url({ protocol: /^http$/ }),
  /** Public, GET, no token. */
  cardPath: ExactPath,
  /** JSON-RPC by POST on exactly this path; HTTP+JSON below it when `httpJson` is set. */
  invokePath: ExactPath,
  httpJson: z.boolean().default(false),
  /** Client IDs (`azp`) that may invoke it. Empty: nobody. */
  clients: z.array(z.string().min(1).max(255)),
});

export const GatewayConfigFile = z.strictObject({
  version: z.literal(1),
  listen: z.strictObject({ host: z.string().default("127.0.0.1"), port: Port }),
  /** Envoy's admin interface, loopback only. */
  adminPort: Port,
  issuer: z.strictObject({
    url: z.url({ protocol: /^https?$/ }),
    jwksUrl: z.url({ protocol: /^https?$/ }),
    /** The `aud` a token must carry. */
    audience: z.string().min(1),
  }),
  agents: z.record(
    z.string().refine((value) => parseAgentId(value) !== undefined, { error: "not an agent name" }),
    PublishedAgent,
  ),
  /** Per `azp`; a client without its own gets `default`. */
  quotas: z.strictObject({ default: Quota, clients: z.record(z.string(), Quota).default({}) }),
  /** JSON lines without path, query, body or token. */
  accessLog: z.string().min(1).default("access.jsonl"),
  envoy: z
    .strictObject({
      /** The envoy program; found in PATH when absent. */
      binary: z.string().min(1).optional(),
      /** Where the rendered files are written. */
      directory: z.string().min(1).default("envoy"),
    })
    .prefault({}),
});
export type GatewayConfig = z.output<typeof GatewayConfigFile>;
