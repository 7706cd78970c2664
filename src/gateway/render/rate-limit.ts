// How often each caller may call: its bucket in this gateway, or in a service that several gateways share.
// Invariants: a caller's quota is counted by its verified `azp` alone; the buckets stand in the listener and not in a route,
// so a change of routes keeps them; no request passes while a shared service does not answer.
import { type Json, type JsonObject, jsonText } from "../../domain/json.ts";
import type { Quota } from "../../rendered-files/gateway-files.ts";
import type { GatewayConfig } from "../config.ts";
import type { Quotas } from "../merge-access-files.ts";
import { LIMITER_CLUSTER } from "./clusters.ts";
import { extension } from "./resource.ts";

export const JWT_FILTER = "envoy.filters.http.jwt_authn";
/** Where it leaves the verified payload in the dynamic metadata. */
export const PAYLOAD_KEY = "p";

export const LIMIT_FILTER = "limiter";

/** From the verified token. A request without one has no key; rbac has refused it before. */
const CALLER = {
  descriptor_key: "azp",
  source: "DYNAMIC",
  metadata_key: { key: JWT_FILTER, path: [{ key: PAYLOAD_KEY }, { key: "azp" }] },
};
const BY_CALLER: readonly Json[] = [{ actions: [{ metadata: CALLER }] }];

function retryAfter(seconds: number): JsonObject {
  const header = { key: "retry-after", value: String(seconds) };
  return { header, append_action: "OVERWRITE_IF_EXISTS_OR_ADD" };
}

function bucket(quota: Quota): JsonObject {
  return { max_tokens: quota.burst, tokens_per_fill: quota.perMinute, fill_interval: "60s" };
}

function sortedClients({ clients }: Quotas): [client: string, Quota][] {
  return Object.entries(clients).sort(([one], [other]) => (one < other ? -1 : 1));
}

function localLimiter(quotas: Quotas): JsonObject {
  const smallest = [quotas.default, ...Object.values(quotas.clients)].map(({ perMinute }) => perMinute);
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
    // A caller with the smallest quota has a token again then.
    response_headers_to_add: [retryAfter(Math.ceil(60 / Math.min(...smallest)))],
    descriptors: [
      ...sortedClients(quotas).map(([client, quota]) => ({
        entries: [{ key: "azp", value: client }],
        token_bucket: bucket(quota),
      })),
      // Without a value: a bucket of its own for every other azp.
      { entries: [{ key: "azp" }], token_bucket: bucket(quotas.default) },
    ],
  });
}

export function renderLimiter(limiter: GatewayConfig["limiter"], quotas: Quotas): JsonObject {
  if (limiter.mode === "local") return localLimiter(quotas);
  const { domain, timeout } = limiter;
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

/** The same for envoyproxy/ratelimit, as JSON, which its YAML reader takes. It counts by whole minutes, without bursts. */
export function renderQuotaFile(domain: string, quotas: Quotas): string {
  const limit = ({ perMinute }: Quota) => ({
    rate_limit: { unit: "minute", requests_per_unit: perMinute },
  });
  return jsonText({
    domain,
    descriptors: [
      ...sortedClients(quotas).map(([client, quota]) => ({ key: "azp", value: client, ...limit(quota) })),
      { key: "azp", ...limit(quotas.default) },
    ],
  });
}
