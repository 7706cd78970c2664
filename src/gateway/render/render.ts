// From configuration to Envoy's files, by a pure function. Invariants: the live files and the twin for validation hold the
// same routes, filters and clusters; who may call is in rds.json alone, so that a revocation neither resets a bucket nor
// drops the key set.
import { join } from "node:path";
import { type JsonObject, jsonText } from "../../domain/json.ts";
import { PATH_LENGTH_MAX } from "../../rendered-files/gateway-files.ts";
import type { GatewayConfig } from "../config.ts";
import type { AccessRules } from "../merge-access-files.ts";
import { renderClusters } from "./clusters.ts";
import { renderListener } from "./listener.ts";
import { discoveryResponse, extension, socketAddress, typed, versionOf } from "./resource.ts";
import { ROUTE_CONFIG_NAME, renderRoutes } from "./routes.ts";

/** The files Envoy watches, by the discovery service that reads them. */
export const LIVE_FILES = { cds: "live/cds.json", lds: "live/lds.json", rds: "live/rds.json" } as const;
export type LiveFile = keyof typeof LIVE_FILES;

export type RenderedGateway = ReturnType<typeof render>;

export const BOOTSTRAP_FILE = "bootstrap.json";
/** Everything inline, because Envoy's validation mode reads no discovery file. */
export const TWIN_FILE = "validate.json";

/** Connections beyond it are closed at once; a stream holds one. */
const MAX_CONNECTIONS = 4_096;

/** Names the files of the certificate, so that Envoy follows them: in a listener it would read them once. */
export const CERTIFICATE_FILE = "live/sds.json";
const CERTIFICATE = "certificate";

function watched(directory: string, file: string): JsonObject {
  return {
    resource_api_version: "V3",
    path_config_source: { path: join(directory, file), watched_directory: { path: join(directory, "live") } },
  };
}

function bootstrap(config: GatewayConfig, rest: JsonObject): string {
  return jsonText({
    node: { id: "drawbridge-gateway", cluster: "drawbridge" },
    admin: { address: socketAddress("127.0.0.1", config.adminPort) },
    overload_manager: {
      resource_monitors: [
        extension(
          "envoy.resource_monitors.global_downstream_max_connections",
          "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
          { max_active_downstream_connections: MAX_CONNECTIONS },
        ),
      ],
    },
    // By itself Envoy refuses expressions of more than a hundred instructions, some seventy characters of a path.
    layered_runtime: {
      layers: [{ name: "static", static_layer: { "re2.max_program_size.error_level": 2 * PATH_LENGTH_MAX } }],
    },
    ...rest,
  });
}

/** @param directory where the files will stand */
export function render(config: GatewayConfig, intent: AccessRules, directory: string) {
  const clusters = renderClusters(config, intent);
  const routes = renderRoutes(intent);
  const { tls } = config.listen;
  const pairs = (tls === undefined ? [] : [tls]).map(({ certificateFile, keyFile }) => {
    return { certificate_chain: { filename: certificateFile }, private_key: { filename: keyFile } };
  });
  const secrets = pairs.map((pair) =>
    typed("envoy.extensions.transport_sockets.tls.v3.Secret", { name: CERTIFICATE, tls_certificate: pair }),
  );
  const secret = { name: CERTIFICATE, sds_config: watched(directory, CERTIFICATE_FILE) };
  const listener = renderListener(
    config,
    intent.quotas,
    { rds: { route_config_name: ROUTE_CONFIG_NAME, config_source: watched(directory, LIVE_FILES.rds) } },
    { tls_certificate_sds_secret_configs: [secret] },
  );
  const inline = { tls_certificates: pairs };
  const twin = renderListener(config, intent.quotas, { route_config: untyped(routes) }, inline);
  const live = { cds: clusters, lds: [listener], rds: [routes] };
  return {
    /** Content by path below `directory`. */
    files: {
      [BOOTSTRAP_FILE]: bootstrap(config, {
        dynamic_resources: {
          lds_config: watched(directory, LIVE_FILES.lds),
          cds_config: watched(directory, LIVE_FILES.cds),
        },
      }),
      [TWIN_FILE]: bootstrap(config, {
        static_resources: { listeners: [untyped(twin)], clusters: clusters.map(untyped) },
      }),
      [CERTIFICATE_FILE]: jsonText(discoveryResponse(secrets)),
      [LIVE_FILES.cds]: jsonText(discoveryResponse(live.cds)),
      [LIVE_FILES.lds]: jsonText(discoveryResponse(live.lds)),
      [LIVE_FILES.rds]: jsonText(discoveryResponse(live.rds)),
    },
    versions: { cds: versionOf(live.cds), lds: versionOf(live.lds), rds: versionOf(live.rds) },
    /** For the step in which old and new clusters stand side by side. */
    clusters,
  };
}

/** A resource that stands in a typed field, where an `@type` is an unknown key. */
function untyped(resource: JsonObject): JsonObject {
  const { "@type": _, ...fields } = resource;
  return fields;
}
