// gateway.yaml: what is this machine's own. Whom the gateway admits, and which cards it publishes, stand in
// two files beside it (src/rendered-files), which federation control may write.
// Envoy's own files are rendered from the three; nothing else is configured by hand.
// Published as docs/reference/schemas/gateway.schema.json.
import { dirname, resolve } from "node:path";
import { z } from "zod";
import { durationMs } from "../domain/duration.ts";
import { plainUrl } from "../rendered-files/gateway-files.ts";
import { parseYaml } from "../runtime/load-yaml.ts";

const Port = z.int().min(1).max(65_535);

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
  /** Which cards are public (plane 4). */
  publicationFile: z.string().min(1).default("publication.yaml"),
  /** Who may invoke which agent, and how often (plane 5). */
  invocationFile: z.string().min(1).default("invocation.yaml"),
  /** Written by the gateway: what it has in force. */
  stateFile: z.string().min(1).default("state.json"),
  /**
   * Who counts. `local`: this gateway by itself, with bursts. `shared`: a service (envoyproxy/ratelimit) that
   * several gateways ask, by fixed minutes and without bursts; when it does not answer, no request passes.
   */
  limiter: z
    .discriminatedUnion("mode", [
      z.strictObject({ mode: z.literal("local") }),
      z.strictObject({
        mode: z.literal("shared"),
        /** Host and port of the service's gRPC. */
        address: z.string().regex(/^(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}$/, {
          error: "must be host:port",
        }),
        timeout: durationMs("250ms", { min: "1ms" }),
        /** The same for all gateways that share a quota. */
        domain: z
          .string()
          .regex(/^[a-z0-9-]{1,63}$/)
          .default("gateway"),
        /** Written for the service from the quotas; of several gateways on one service, one writes it. */
        quotaFile: z.string().min(1).optional(),
      }),
    ])
    .default({ mode: "local" }),
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
/** A gateway's configuration with every path in it made absolute. */
export type GatewayConfig = z.output<typeof GatewayConfigFile>;

/** Resolves the paths of a parsed configuration against the folder its file lies in. */
export function resolvePaths(config: GatewayConfig, baseDirectory: string): GatewayConfig {
  const at = (path: string) => resolve(baseDirectory, path);
  const { listen, issuer, limiter, envoy } = config;
  const { tls } = listen;
  const { caFile } = issuer;
  const { binary } = envoy;
  return {
    ...config,
    listen: {
      ...listen,
      ...(tls && { tls: { certificateFile: at(tls.certificateFile), keyFile: at(tls.keyFile) } }),
    },
    issuer: { ...issuer, ...(caFile !== undefined && { caFile: at(caFile) }) },
    ...(limiter.mode === "shared" &&
      limiter.quotaFile !== undefined && { limiter: { ...limiter, quotaFile: at(limiter.quotaFile) } }),
    publicationFile: at(config.publicationFile),
    invocationFile: at(config.invocationFile),
    stateFile: at(config.stateFile),
    accessLog: at(config.accessLog),
    envoy: {
      ...envoy,
      directory: at(envoy.directory),
      // A bare name is looked for in PATH; anything with a slash is a file.
      ...(binary !== undefined && { binary: binary.includes("/") ? at(binary) : binary }),
    },
  };
}

/**
 * Parses the gateway's configuration; relative paths in it start at the file's own folder.
 * @throws ConfigError
 */
export function parseGatewayConfig(text: string, file: string): GatewayConfig {
  const path = resolve(file);
  return resolvePaths(parseYaml(GatewayConfigFile, text, path), dirname(path));
}
