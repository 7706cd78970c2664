// The clusters: one for each published card, one for each agent that may be invoked, one for the issuer's
// key set. An agent has two because its card and its callers stand in two files, which change independently.
// Invariant: an https key set is verified by name against a CA bundle; Envoy by itself verifies nothing.
import { isIP } from "node:net";
import type { JsonObject } from "../../domain/json.ts";
import type { GatewayConfig } from "../config.ts";
import type { AccessRules } from "../merge-access-files.ts";
import { extension, socketAddress, typed } from "./resource.ts";

const SYSTEM_CA_FILE = "/etc/ssl/certs/ca-certificates.crt";
/** Node.js closes an idle connection after 5 s; giving up sooner avoids sending into a closing one. */
const AGENT_IDLE_TIMEOUT = "4s";

export const ISSUER_CLUSTER = "issuer";
export const LIMITER_CLUSTER = "limiter";
export const cardCluster = (agent: string): string => `card:${agent}`;
export const invocationCluster = (agent: string): string => `invoke:${agent}`;

const hostOf = (url: URL) => url.hostname.replace(/^\[|\]$/g, "");

function cluster(name: string, at: string, more: JsonObject = {}): JsonObject {
  const url = new URL(at);
  const host = hostOf(url);
  const port = url.port === "" ? (url.protocol === "https:" ? 443 : 80) : Number(url.port);
  return {
    ...typed("envoy.config.cluster.v3.Cluster"),
    name,
    type: isIP(host) === 0 ? "STRICT_DNS" : "STATIC",
    connect_timeout: "2s",
    load_assignment: {
      cluster_name: name,
      endpoints: [{ lb_endpoints: [{ endpoint: { address: socketAddress(host, port) } }] }],
    },
    ...more,
  };
}

function protocol(options: JsonObject): JsonObject {
  const type = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
  return { typed_extension_protocol_options: { [type]: typed(type, options) } };
}

/** Of all callers of an agent together: one could soon hold all of Envoy's own 1,024 by streams, and others would wait. */
const CALLS_MAX = 16_384;

const OF_AGENT = {
  ...protocol({
    common_http_protocol_options: { idle_timeout: AGENT_IDLE_TIMEOUT },
    explicit_http_config: { http_protocol_options: {} },
  }),
  circuit_breakers: {
    thresholds: [{ max_connections: CALLS_MAX, max_pending_requests: CALLS_MAX, max_requests: CALLS_MAX }],
  },
};

function issuerCluster(issuer: GatewayConfig["issuer"]): JsonObject {
  const url = new URL(issuer.jwksUrl);
  if (url.protocol === "http:") return cluster(ISSUER_CLUSTER, issuer.jwksUrl);
  const host = hostOf(url);
  const named = isIP(host) === 0;
  return cluster(ISSUER_CLUSTER, issuer.jwksUrl, {
    transport_socket: extension(
      "envoy.transport_sockets.tls",
      "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
      {
        ...(named && { sni: host }),
        common_tls_context: {
          validation_context: {
            trusted_ca: { filename: issuer.caFile ?? SYSTEM_CA_FILE },
            match_typed_subject_alt_names: [
              { san_type: named ? "DNS" : "IP_ADDRESS", matcher: { exact: host } },
            ],
          },
        },
      },
    ),
  });
}

/** The shared limiter, spoken to by gRPC; an address that does not answer fails within the limiter's own time. */
function limiterClusters({ limiter }: GatewayConfig): JsonObject[] {
  if (limiter.mode === "local") return [];
  return [
    cluster(LIMITER_CLUSTER, `http://${limiter.address}`, {
      connect_timeout: `${limiter.timeout / 1_000}s`,
      ...protocol({ explicit_http_config: { http2_protocol_options: {} } }),
    }),
  ];
}

export function renderClusters(config: GatewayConfig, intent: AccessRules): JsonObject[] {
  return [
    issuerCluster(config.issuer),
    ...limiterClusters(config),
    ...intent.agents.flatMap(({ name, card, invocation }) => [
      ...(card === undefined ? [] : [cluster(cardCluster(name), card.upstream, OF_AGENT)]),
      ...(invocation === undefined ? [] : [cluster(invocationCluster(name), invocation.upstream, OF_AGENT)]),
    ]),
  ];
}
