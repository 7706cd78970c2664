// The HTTP filters, in the one order that is safe: who are you (jwt_authn), may you (rbac), how often
// (local_ratelimit), go (router).
// Invariants: rbac denies unless a route names the caller, so a request without an `azp` never reaches
// the limiter; the limiter's buckets stand here and not in a route, so a change of routes keeps them.
import type { Quota } from "../admission/fields.ts";
import { ISSUER_CLUSTER } from "./clusters.ts";
import type { GatewayConfig } from "./config.ts";
import type { Quotas } from "./intent.ts";
import { extension, type JsonObject } from "./resource.ts";

export const JWT_FILTER = "envoy.filters.http.jwt_authn";
export const RBAC_FILTER = "envoy.filters.http.rbac";
export const LIMIT_FILTER = "envoy.filters.http.local_ratelimit";

/** Where jwt_authn leaves the verified payload in the dynamic metadata. */
export const PAYLOAD_KEY = "p";
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

/** No policy: nobody may do anything. A route opens itself. */
function denyByDefault(): JsonObject {
  return extension(RBAC_FILTER, "envoy.extensions.filters.http.rbac.v3.RBAC", {
    rules: { action: "ALLOW", policies: {} },
  });
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

function localRateLimit(quotas: Quotas): JsonObject {
  const always = { default_value: { numerator: 100, denominator: "HUNDRED" } };
  return extension(LIMIT_FILTER, "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit", {
    stat_prefix: "limit",
    filter_enabled: always,
    filter_enforced: always,
    // Met only by a request without descriptor, which rbac has refused before; it closes the gap anyway.
    token_bucket: bucket(quotas.default),
    always_consume_default_token_bucket: false,
    max_dynamic_descriptors: 1_000,
    // The key, taken from the verified token. Routes without a caller switch this filter off.
    rate_limits: [
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
    ],
    response_headers_to_add: [
      {
        header: { key: "retry-after", value: String(retryAfterSeconds(quotas)) },
        append_action: "OVERWRITE_IF_EXISTS_OR_ADD",
      },
    ],
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

export function renderFilters(config: GatewayConfig, quotas: Quotas): JsonObject[] {
  return [
    jwtAuthentication(config.issuer),
    denyByDefault(),
    localRateLimit(quotas),
    extension("envoy.filters.http.router", "envoy.extensions.filters.http.router.v3.Router", {
      suppress_envoy_headers: true,
    }),
  ];
}
