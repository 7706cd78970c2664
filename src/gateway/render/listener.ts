// The listener and its HTTP filters, in the one order that is safe: who the caller is (jwt_authn), whether it may (rbac),
// how often (the limiter), the router. Invariants: the access log holds no path, query, header, body or token; what a
// client says of its own request ID or caller name is dropped before anything reads it; rbac denies unless a route names
// the caller, so a request without an `azp` never reaches the limiter.
import type { JsonObject } from "../../domain/json.ts";
import type { GatewayConfig } from "../config.ts";
import type { Quotas } from "../merge-access-files.ts";
import { ISSUER_CLUSTER } from "./clusters.ts";
import { JWT_FILTER, PAYLOAD_KEY, renderLimiter } from "./rate-limit.ts";
import { extension, socketAddress, typed } from "./resource.ts";

/** One event each five minutes keeps a stream open; a stream has no other time limit. */
export const STREAM_IDLE_TIMEOUT = "300s";

/** Of a connection without a request; the default of an hour would let one host hold all that there may be. */
const CONNECTION_IDLE_TIMEOUT = "60s";

/**
 * The caller is checked when its headers have come: without a limit, calls that were begun before it was removed would wait
 * for their content as long as it likes. As long as the bridge's own limit on a request.
 */
const REQUEST_TIMEOUT = "60s";

/** What is held of a connection whose agent does not read. */
const BUFFER_BYTES = 1_048_576;

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

function downstreamTls(certificate: JsonObject): JsonObject {
  return extension(
    "envoy.transport_sockets.tls",
    "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
    {
      common_tls_context: {
        tls_params: { tls_minimum_protocol_version: "TLSv1_2" },
        alpn_protocols: ["h2", "http/1.1"],
        ...certificate,
      },
    },
  );
}

/** @param routes where they come from: `rds` when live, `route_config` in the twin @param certificate the same, for TLS */
export function renderListener(
  config: GatewayConfig,
  quotas: Quotas,
  routes: JsonObject,
  certificate: JsonObject,
): JsonObject {
  const { host, port, tls } = config.listen;
  return {
    ...typed("envoy.config.listener.v3.Listener"),
    name: "gateway",
    address: socketAddress(host, port),
    // Else a second Envoy could listen beside this one and serve half the calls by an older policy.
    enable_reuse_port: false,
    per_connection_buffer_limit_bytes: BUFFER_BYTES,
    filter_chains: [
      {
        ...(tls && { transport_socket: downstreamTls(certificate) }),
        filters: [
          extension(
            "envoy.filters.network.http_connection_manager",
            "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            {
              stat_prefix: STAT_PREFIX,
              codec_type: "AUTO",
              // By HTTP/2 a caller may send this much unread; by Envoy's own limits it is 16 MiB a call.
              http2_protocol_options: {
                initial_stream_window_size: 65_536,
                initial_connection_window_size: BUFFER_BYTES,
              },
              // The peer is outside: its x-envoy-* headers must not steer time-outs or retries.
              use_remote_address: true,
              normalize_path: true,
              merge_slashes: true,
              path_with_escaped_slashes_action: "REJECT_REQUEST",
              common_http_protocol_options: {
                idle_timeout: CONNECTION_IDLE_TIMEOUT,
                headers_with_underscores_action: "REJECT_REQUEST",
              },
              request_headers_timeout: "10s",
              request_timeout: REQUEST_TIMEOUT,
              stream_idle_timeout: STREAM_IDLE_TIMEOUT,
              early_header_mutation_extensions: [
                extension(
                  "envoy.http.early_header_mutation.header_mutation",
                  "envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation",
                  { mutations: [{ remove: "x-request-id" }, { remove: CALLER_HEADER }] },
                ),
              ],
              access_log: [accessLog(config.accessLog)],
              ...routes,
              http_filters: [
                jwtAuthentication(config.issuer),
                // No policy: every request is denied. A route opens itself.
                extension(RBAC_FILTER, "envoy.extensions.filters.http.rbac.v3.RBAC", {
                  rules: { action: "ALLOW", policies: {} },
                }),
                renderLimiter(config.limiter, quotas),
                extension("envoy.filters.http.router", "envoy.extensions.filters.http.router.v3.Router", {
                  suppress_envoy_headers: true,
                }),
              ],
            },
          ),
        ],
      },
    ],
  };
}

export const RBAC_FILTER = "envoy.filters.http.rbac";
/** The verified caller, as the agent sees it. */
export const CALLER_HEADER = "x-azp";

function jwtAuthentication(issuer: GatewayConfig["issuer"]): JsonObject {
  return extension(JWT_FILTER, "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication", {
    providers: {
      issuer: {
        issuer: issuer.url,
        audiences: [issuer.audience],
        forward: true,
        payload_in_metadata: PAYLOAD_KEY,
        require_expiration: true,
        // Unset and 0 both mean a minute.
        clock_skew_seconds: 1,
        // Named, because the default also takes ?access_token=, which would end up in logs.
        from_headers: [{ name: "Authorization", value_prefix: "Bearer " }],
        claim_to_headers: [{ header_name: CALLER_HEADER, claim_name: "azp" }],
        remote_jwks: {
          http_uri: { uri: issuer.jwksUrl, cluster: ISSUER_CLUSTER, timeout: "2s" },
          cache_duration: "300s",
          // The listener opens when the keys are there, not before.
          async_fetch: { fast_listener: false },
        },
      },
    },
    rules: [{ match: { prefix: "/" }, requires: { provider_name: "issuer" } }],
  });
}
