// The listener and its connection manager: how a request is normalized, what is logged of it.
// Invariants: the access log holds no path, query, header, body or token (HTTP+JSON paths carry task
// IDs); what a client says of its own request ID or caller name is dropped before anything reads it.
import type { GatewayConfig } from "./config.ts";
import { CALLER_HEADER, renderFilters } from "./filters.ts";
import type { Quotas } from "./intent.ts";
import { JWT_FILTER, PAYLOAD_KEY } from "./limiter.ts";
import { extension, type JsonObject, typed } from "./resource.ts";

/** A gateway's statistics are named `http.gateway.…`. */
export const STAT_PREFIX = "gateway";

function accessLog(path: string): JsonObject {
  return extension("envoy.access_loggers.file", "envoy.extensions.access_loggers.file.v3.FileAccessLog", {
    path,
    log_format: {
      json_format: {
        start_time: "%START_TIME%",
        azp: `%DYNAMIC_METADATA(${JWT_FILTER}:${PAYLOAD_KEY}:azp)%`,
        route: "%ROUTE_NAME%",
        code: "%RESPONSE_CODE%",
        details: "%RESPONSE_CODE_DETAILS%",
        flags: "%RESPONSE_FLAGS%",
        duration_ms: "%DURATION%",
        bytes_in: "%BYTES_RECEIVED%",
        bytes_out: "%BYTES_SENT%",
      },
    },
  });
}

function downstreamTls(tls: NonNullable<GatewayConfig["listen"]["tls"]>): JsonObject {
  return extension(
    "envoy.transport_sockets.tls",
    "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
    {
      common_tls_context: {
        tls_params: { tls_minimum_protocol_version: "TLSv1_2" },
        alpn_protocols: ["h2", "http/1.1"],
        tls_certificates: [
          {
            certificate_chain: { filename: tls.certificateFile },
            private_key: { filename: tls.keyFile },
          },
        ],
      },
    },
  );
}

/**
 * The listener.
 * @param routes where its routes come from: `rds` when live, `route_config` in the twin for validation
 */
export function renderListener(config: GatewayConfig, quotas: Quotas, routes: JsonObject): JsonObject {
  const { host, port, tls } = config.listen;
  return {
    ...typed("envoy.config.listener.v3.Listener"),
    name: "gateway",
    address: { socket_address: { address: host, port_value: port } },
    // Else a second Envoy could listen beside this one and serve half the calls by an older policy.
    enable_reuse_port: false,
    per_connection_buffer_limit_bytes: 1_048_576,
    filter_chains: [
      {
        ...(tls && { transport_socket: downstreamTls(tls) }),
        filters: [
          extension(
            "envoy.filters.network.http_connection_manager",
            "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            {
              stat_prefix: STAT_PREFIX,
              codec_type: "AUTO",
              // The peer is outside: its x-envoy-* headers must not steer time-outs or retries.
              use_remote_address: true,
              normalize_path: true,
              merge_slashes: true,
              path_with_escaped_slashes_action: "REJECT_REQUEST",
              common_http_protocol_options: { headers_with_underscores_action: "REJECT_REQUEST" },
              request_headers_timeout: "10s",
              stream_idle_timeout: "300s",
              early_header_mutation_extensions: [
                extension(
                  "envoy.http.early_header_mutation.header_mutation",
                  "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
                  { mutations: [{ remove: "x-request-id" }, { remove: CALLER_HEADER }] },
                ),
              ],
              access_log: [accessLog(config.accessLog)],
              ...routes,
              http_filters: renderFilters(config, quotas),
            },
          ),
        ],
      },
    ],
  };
}
