// The gateway's configuration: which agents are published, who may call them, how often.
// Envoy's own files are rendered from it; nothing else is configured by hand.
// Invariants: every public path is exact and belongs to one agent; a client is named in full, never by a
// pattern. Published as docs/reference/schemas/gateway.schema.json.
import { dirname, resolve } from "node:path";
import { z } from "zod";
import { parseAgentId } from "../domain/identifiers.ts";
import { loadYaml } from "../runtime/load-yaml.ts";

const Port = z.int().min(1).max(65_535);
const AbsolutePath = z
  .string()
  .regex(/^(?:\/[A-Za-z0-9_~-][A-Za-z0-9._~-]*|\/\.[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+$/, {
    error: "must be an absolute path of letters, digits and . _ ~ - /, without empty or dot segments",
  });
/** An OAuth client ID as tokens carry it. Printable, so that it can stand in an access log line. */
const ClientId = z.string().regex(/^[\x21-\x7e]{1,255}$/, { error: "must be 1 to 255 printable characters" });
/** Everything Envoy's JWKS and agent clusters need of a URL; credentials in one would land in a file. */
const plainUrl = (protocol: RegExp) =>
  z.url({ protocol }).refine(
    (value) => {
      const url = URL.parse(value);
      return url !== null && url.username === "" && url.password === "" && url.hash === "";
    },
    { error: "must have no user, password or fragment" },
  );

/** Requests a client may make: `perMinute` on average, `burst` at once. */
export const Quota = z.strictObject({
  perMinute: z.int().min(1).max(1_000_000),
  burst: z.int().min(1).max(1_000_000),
});
export type Quota = z.output<typeof Quota>;

export const PublishedAgent = z.strictObject({
  /**
   * The agent's own JSON-RPC endpoint, reached by the gateway alone. Its HTTP+JSON interface, if it has
   * one, is below it.
   */
  upstream: plainUrl(/^http$/).refine((value) => URL.parse(value)?.search === "", {
    error: "must have no query",
  }),
  /** Where the agent itself serves its card. */
  upstreamCardPath: AbsolutePath.default("/.well-known/agent-card.json"),
  /** Public, GET, no token. */
  cardPath: AbsolutePath,
  /** JSON-RPC by POST on exactly this path; HTTP+JSON below it when `httpJson` is set. */
  invokePath: AbsolutePath,
  httpJson: z.boolean().default(false),
  /** Client IDs (`azp`) that may invoke it. Empty: nobody. */
  clients: z.array(ClientId),
  /** Pass the caller's token on to the agent. The agent learns the caller from `x-azp` either way. */
  forwardToken: z.boolean().default(false),
});
export type PublishedAgent = z.output<typeof PublishedAgent>;

/** Two agents on one path would make the answer depend on the order of routes: refused. */
function refuseSharedPaths(agents: Readonly<Record<string, PublishedAgent>>, context: z.RefinementCtx): void {
  const owners = new Map<string, string>();
  for (const [name, agent] of Object.entries(agents)) {
    for (const key of ["cardPath", "invokePath"] as const) {
      const owner = owners.get(agent[key]);
      if (owner !== undefined) {
        context.addIssue({ code: "custom", path: [name, key], message: `already used by ${owner}` });
      }
      owners.set(agent[key], `${name}.${key}`);
    }
  }
  for (const [name, agent] of Object.entries(agents)) {
    if (!agent.httpJson) continue;
    for (const [path, owner] of owners) {
      if (path.startsWith(`${agent.invokePath}/`) && owner !== `${name}.cardPath`) {
        context.addIssue({
          code: "custom",
          path: [name, "invokePath"],
          message: `HTTP+JSON is served below it, where ${owner} lies`,
        });
      }
    }
  }
}

export const GatewayConfigFile = z.strictObject({
  version: z.literal(1),
  listen: z.strictObject({
    host: z.string().min(1).default("127.0.0.1"),
    port: Port,
    /** PEM files. Absent: plain HTTP, for a listener behind another that ends TLS. */
    tls: z.strictObject({ certificateFile: z.string().min(1), keyFile: z.string().min(1) }).optional(),
  }),
  /** Envoy's admin interface, loopback only. */
  adminPort: Port,
  issuer: z.strictObject({
    /** The `iss` a token must carry. */
    url: plainUrl(/^https?$/),
    jwksUrl: plainUrl(/^https?$/),
    /** The `aud` a token must carry. */
    audience: z.string().min(1),
    /** PEM bundle that an https `jwksUrl` is verified against; the system's when absent. */
    caFile: z.string().min(1).optional(),
  }),
  agents: z
    .record(
      z.string().refine((value) => parseAgentId(value) !== undefined, { error: "not an agent name" }),
      PublishedAgent,
    )
    .superRefine(refuseSharedPaths),
  /** Per `azp`; a client without its own gets `default`. */
  quotas: z.strictObject({ default: Quota, clients: z.record(ClientId, Quota).default({}) }),
  /** JSON lines without path, query, body or token. */
  accessLog: z.string().min(1).default("access.jsonl"),
  envoy: z
    .strictObject({
      /** The envoy program; found in PATH when absent. */
      binary: z.string().min(1).optional(),
      /** Where the rendered files are written. */
      directory: z.string().min(1).default("envoy"),
      /** Worker threads. */
      concurrency: z.int().min(1).max(64).default(2),
    })
    .prefault({}),
});
export type GatewayConfigFile = z.output<typeof GatewayConfigFile>;

/** A gateway's configuration with every path in it made absolute. */
export type GatewayConfig = GatewayConfigFile;

/** Resolves the paths of a parsed configuration against the folder its file lies in. */
export function resolvePaths(config: GatewayConfigFile, baseDirectory: string): GatewayConfig {
  const at = (path: string) => resolve(baseDirectory, path);
  const { tls } = config.listen;
  const { caFile } = config.issuer;
  const { binary } = config.envoy;
  return {
    ...config,
    listen: {
      ...config.listen,
      ...(tls && { tls: { certificateFile: at(tls.certificateFile), keyFile: at(tls.keyFile) } }),
    },
    issuer: { ...config.issuer, ...(caFile !== undefined && { caFile: at(caFile) }) },
    accessLog: at(config.accessLog),
    envoy: {
      ...config.envoy,
      directory: at(config.envoy.directory),
      // A bare name is looked for in PATH; anything with a slash is a file.
      ...(binary !== undefined && { binary: binary.includes("/") ? at(binary) : binary }),
    },
  };
}

/**
 * Loads the gateway's configuration; relative paths in it start at the file's own folder.
 * @throws ConfigError, DrawbridgeError `config_unreadable`
 */
export function loadGatewayConfig(file: string): GatewayConfig {
  const path = resolve(file);
  return resolvePaths(loadYaml(GatewayConfigFile, path), dirname(path));
}
