// The listener, its connection manager and its HTTP filters, in the one order that is safe: who the caller is
// (jwt_authn), whether it may (rbac), how often (the limiter), the router.
// Invariants: the access log holds no path, query, header, body or token (HTTP+JSON paths carry task
// IDs); what a client says of its own request ID or caller name is dropped before anything reads it; rbac denies
// unless a route names the caller, so a request without an `azp` never reaches the limiter; the limiter's buckets stand
// here and not in a route, so a change of routes keeps them; a caller's quota is counted by its verified `azp` alone,
// by this gateway or by a service that several gateways share; no request passes while that service does not answer.
import { type Json, type JsonObject, jsonText } from "../../domain/json.ts";
import type { Quota } from "../../rendered-files/gateway-files.ts";
import type { GatewayConfig } from "../config.ts";
import type { Quotas } from "../merge-access-files.ts";
import { ISSUER_CLUSTER, LIMITER_CLUSTER } from "./clusters.ts";
import { extension, typed } from "./resource.ts";

/** One event each five minutes keeps a stream open; a stream has no other time limit. */
export const STREAM_IDLE_TIMEOUT = "300s";

export const JWT_FILTER = "envoy.filters.http.jwt_authn";
/** Where jwt_authn leaves the verified payload in the dynamic metadata. */
export const PAYLOAD_KEY = "p";

/** The filter's name in a listener and in the routes that switch it off. */
export const LIMIT_FILTER = "limiter";

/** The key, taken from the verified token. A request without one makes none; rbac has refused it before. */
const BY_CALLER: readonly Json[] = [
  {
    actions: [
      {
        metadata: {
          descriptor_key: "azp",
          source: "DYNAMIC",
          metadata_key: { key: JWT_FILTER, path: [{ key: PAYLOAD_KEY }, { key: "azp" }] },
        },
      },
    ],
  },
];

function retryAfter(seconds: number): JsonObject {
  return {
    header: { key: "retry-after", value: String(seconds) },
    append_action: "OVERWRITE_IF_EXISTS_OR_ADD",
  };
}

function bucket(quota: Quota): JsonObject {
  return { max_tokens: quota.burst, tokens_per_fill: quota.perMinute, fill_interval: "60s" };
}

/** Seconds until a caller with the smallest quota has a token again; sent with every 429. */
function retryAfterSeconds(quotas: Quotas): number {
  const slowest = Math.min(
    quotas.default.perMinute,
    ...Object.values(quotas.clients).map((quota) => quota.perMinute),
  );
  return Math.ceil(60 / slowest);
}

function localLimiter(quotas: Quotas): JsonObject {
  const always = { default_value: { numerator: 100, denominator: "HUNDRED" } };
  return extension(LIMIT_FILTER, "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit", {
    stat_prefix: "limit",
    filter_enabled: always,
    filter_enforced: always,
    // Met only by a request without descriptor, which rbac has refused before; it closes the gap anyway.
    token_bucket: bucket(quotas.default),
    always_consume_default_token_bucket: false,
    max_dynamic_descriptors: 1_000,
    rate_limits: BY_CALLER,
    response_headers_to_add: [retryAfter(retryAfterSeconds(quotas))],
    descriptors: [
      ...Object.keys(quotas.clients)
        .sort()
        .map((client) => ({
          entries: [{ key: "azp", value: client }],
          token_bucket: bucket(quotas.clients[client] ?? quotas.default),
        })),
      // Without a value: a bucket of its own for every other azp.
      { entries: [{ key: "azp" }], token_bucket: bucket(quotas.default) },
    ],
  });
}

function sharedLimiter({ domain, timeout }: SharedLimiter): JsonObject {
  return extension(LIMIT_FILTER, "envoy.extensions.filters.http.ratelimit.v3.RateLimit", {
    domain,
    timeout: `${timeout / 1_000}s`,
    // Unset, a service that is down would let everybody through.
    failure_mode_deny: true,
    rate_limit_service: {
      transport_api_version: "V3",
      grpc_service: { envoy_grpc: { cluster_name: LIMITER_CLUSTER } },
    },
    rate_limits: BY_CALLER,
    // The service counts by whole minutes.
    response_headers_to_add: [retryAfter(60)],
  });
}

type SharedLimiter = Extract<GatewayConfig["limiter"], { readonly mode: "shared" }>;

export function renderLimiter(limiter: GatewayConfig["limiter"], quotas: Quotas): JsonObject {
  return limiter.mode === "local" ? localLimiter(quotas) : sharedLimiter(limiter);
}

/**
 * The configuration of envoyproxy/ratelimit that these quotas mean. JSON, which its YAML reader takes.
 * It has no bursts: `perMinute` counts, by whole minutes.
 */
export function renderQuotaFile(domain: string, quotas: Quotas): string {
  const limit = ({ perMinute }: Quota) => ({
    rate_limit: { unit: "minute", requests_per_unit: perMinute },
  });
  return jsonText({
    domain,
    descriptors: [
      ...Object.keys(quotas.clients)
        .sort()
        .map((client) => ({ key: "azp", value: client, ...limit(quotas.clients[client] ?? quotas.default) })),
      { key: "azp", ...limit(quotas.default) },
    ],
  });
}

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
              http_filters: renderFilters(config, quotas),
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

/** No policy: every request is denied. A route opens itself. */
function denyByDefault(): JsonObject {
  return extension(RBAC_FILTER, "envoy.extensions.filters.http.rbac.v3.RBAC", {
    rules: { action: "ALLOW", policies: {} },
  });
}

export function renderFilters(config: GatewayConfig, quotas: Quotas): JsonObject[] {
  return [
    jwtAuthentication(config.issuer),
    denyByDefault(),
    renderLimiter(config.limiter, quotas),
    extension("envoy.filters.http.router", "envoy.extensions.filters.http.router.v3.Router", {
      suppress_envoy_headers: true,
    }),
  ];
}
