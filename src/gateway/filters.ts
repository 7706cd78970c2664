// The HTTP filters, in the one order that is safe: who are you (jwt_authn), may you (rbac), how often
// (the limiter), go (router).
// Invariants: rbac denies unless a route names the caller, so a request without an `azp` never reaches
// the limiter; the limiter's buckets stand here and not in a route, so a change of routes keeps them.
import { ISSUER_CLUSTER } from "./clusters.ts";
import type { GatewayConfig } from "./config.ts";
import type { Quotas } from "./intent.ts";
import { JWT_FILTER, PAYLOAD_KEY, renderLimiter } from "./limiter.ts";
import { extension, type JsonObject } from "./resource.ts";

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

/** No policy: nobody may do anything. A route opens itself. */
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
