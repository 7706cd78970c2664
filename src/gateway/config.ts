// gateway.yaml: what is this machine's own. Whom the gateway admits, and which cards it publishes, stand in two files
// beside it (src/rendered-files), which federation control may write. Nothing else of Envoy is configured by hand.
import { dirname, resolve } from "node:path";
import * as z from "zod";
import { durationMs } from "../domain/duration.ts";
import { plainUrl } from "../rendered-files/gateway-files.ts";
import { ListenAddress, parseYaml } from "../runtime/load-yaml.ts";

export function gatewayConfigFile(directory: string) {
  const at = (path: string) => resolve(directory, path);
  const Text = z.string().min(1);
  const Path = Text.transform(at);
  const pathOr = (path: string) => Text.default(path).transform(at);
  const { port } = ListenAddress.shape;
  return z.strictObject({
    version: z.literal(1),
    listen: z.strictObject({
      host: Text.default("127.0.0.1"),
      port,
      /** PEM files. Absent: plain HTTP, for a listener behind another that ends TLS. */
      tls: z.strictObject({ certificateFile: Path, keyFile: Path }).optional(),
    }),
    /** Envoy's admin interface, loopback only. */
    adminPort: port,
    issuer: z.strictObject({
      /** The `iss` a token must carry. */
      url: plainUrl(/^https?$/),
      jwksUrl: plainUrl(/^https?$/),
      /** The `aud` a token must carry. */
      audience: Text,
      /** PEM bundle that an https `jwksUrl` is verified against; the system's when absent. */
      caFile: Path.optional(),
    }),
    publicationFile: pathOr("publication.yaml"),
    invocationFile: pathOr("invocation.yaml"),
    stateFile: pathOr("state.json"),
    /**
     * Who counts. `local`: this gateway by itself, with bursts. `shared`: a service (envoyproxy/ratelimit) that
     * several gateways ask, by fixed minutes and without bursts; when it does not answer, no request passes.
     */
    limiter: z
      .discriminatedUnion("mode", [
        z.strictObject({ mode: z.literal("local") }),
        z.strictObject({
          mode: z.literal("shared"),
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
          quotaFile: Path.optional(),
        }),
      ])
      .default({ mode: "local" }),
    /** JSON lines without path, query, body or token. */
    accessLog: pathOr("access.jsonl"),
    envoy: z
      .strictObject({
        /** The envoy program; a bare name is searched in PATH. */
        binary: Text.default("envoy").transform((binary) => (binary.includes("/") ? at(binary) : binary)),
        directory: pathOr("envoy"),
        concurrency: z.int().min(1).max(64).default(2),
      })
      .prefault({}),
  });
}
/** Published as docs/reference/schemas/gateway.schema.json. */
export const GatewayConfigFile = gatewayConfigFile("/");
/** A gateway's configuration with every path in it made absolute. */
export type GatewayConfig = z.output<typeof GatewayConfigFile>;

export function parseGatewayConfig(text: string, file: string): GatewayConfig {
  const path = resolve(file);
  return parseYaml(gatewayConfigFile(dirname(path)), text, path);
}
