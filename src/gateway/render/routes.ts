// The routes: for each agent its card (public, GET) and its invocation (POST, named callers only), and a
// catch-all that answers 404 to every caller, so that a removed route looks the same with a token and without.
// Invariants: every path and method is spelled out; no route takes a prefix; every protected route names
// its callers exactly and leaves the limiter on.

import type { JsonObject } from "../../domain/json.ts";
import { literalPattern } from "../../domain/literal-pattern.ts";
import type { InvokedAgent, PublishedCard } from "../../rendered-files/gateway-files.ts";
import type { AccessRules } from "../merge-access-files.ts";
import { cardCluster, invocationCluster } from "./clusters.ts";
import { RBAC_FILTER, STREAM_IDLE_TIMEOUT } from "./listener.ts";
import { JWT_FILTER, LIMIT_FILTER, PAYLOAD_KEY } from "./rate-limit.ts";
import { typed } from "./resource.ts";

export const ROUTE_CONFIG_NAME = "agents";

/** Unbounded here: Envoy caps the size of a compiled expression, and the length of a request line. */
const TASK_ID = "[A-Za-z0-9._~-]+";

/** Switches the three filters off: no token, no caller, no quota. */
const OPEN: JsonObject = {
  [JWT_FILTER]: typed("envoy.extensions.filters.http.jwt_authn.v3.PerRouteConfig", { disabled: true }),
  [RBAC_FILTER]: typed("envoy.extensions.filters.http.rbac.v3.RBACPerRoute"),
  [LIMIT_FILTER]: typed("envoy.config.route.v3.FilterConfig", { disabled: true }),
};

const method = (name: string): JsonObject => ({ name: ":method", string_match: { exact: name } });

function onlyCallers(clients: readonly string[]): JsonObject {
  const principals = [...new Set(clients)].sort().map((client) => ({
    sourced_metadata: {
      metadata_source: "DYNAMIC",
      metadata_matcher: {
        filter: JWT_FILTER,
        path: [{ key: PAYLOAD_KEY }, { key: "azp" }],
        value: { string_match: { exact: client } },
      },
    },
  }));
  return {
    [RBAC_FILTER]: typed("envoy.extensions.filters.http.rbac.v3.RBACPerRoute", {
      rbac: {
        rules: { action: "ALLOW", policies: { callers: { permissions: [{ any: true }], principals } } },
      },
    }),
  };
}

function cardRoute(name: string, card: PublishedCard): JsonObject {
  return {
    name: `card:${name}`,
    match: { path: card.cardPath, headers: [method("GET")] },
    route: { cluster: cardCluster(name), timeout: "10s", prefix_rewrite: card.upstreamCardPath },
    // Some callers send their token here too, and whoever has it could call other agents with it.
    request_headers_to_remove: ["authorization"],
    typed_per_filter_config: OPEN,
  };
}

/** The HTTP+JSON binding (A2A 1.0, section 11): each operation by its own method and path. */
const HTTP_JSON_OPERATIONS: readonly (readonly [suffix: string, methods: readonly string[], path: string])[] =
  [
    ["send", ["POST"], "/message:send"],
    ["stream", ["POST"], "/message:stream"],
    ["list", ["GET"], "/tasks"],
    ["get", ["GET"], `/tasks/${TASK_ID}`],
    ["cancel", ["POST"], `/tasks/${TASK_ID}:cancel`],
    ["subscribe", ["GET", "POST"], `/tasks/${TASK_ID}:subscribe`],
  ];

/** None for an agent without callers: its paths are 404, like those of an agent that never existed. */
function invocationRoutes(name: string, agent: InvokedAgent): JsonObject[] {
  if (agent.clients.length === 0) return [];
  const route = (suffix: string, verb: string, path: JsonObject, rewrite: JsonObject): JsonObject => ({
    name: `invoke:${name}${suffix}`,
    match: { ...path, headers: [method(verb)] },
    route: {
      cluster: invocationCluster(name),
      // A stream or a long answer is ended by its idle time, not by its length.
      timeout: "0s",
      idle_timeout: STREAM_IDLE_TIMEOUT,
      ...rewrite,
    },
    ...(agent.forwardToken ? {} : { request_headers_to_remove: ["authorization"] }),
    typed_per_filter_config: onlyCallers(agent.clients),
  });
  const base = new URL(agent.upstream).pathname;
  const jsonRpc = route("", "POST", { path: agent.invokePath }, { prefix_rewrite: base });
  if (!agent.httpJson) return [jsonRpc];
  const prefix = literalPattern(agent.invokePath);
  const pattern = { regex: `^${prefix}` };
  const rewrite = { regex_rewrite: { pattern, substitution: base.replace(/\/$/, "") } };
  const operations = HTTP_JSON_OPERATIONS.flatMap(([suffix, methods, path]) =>
    methods.map((verb) => route(`:${suffix}`, verb, { safe_regex: { regex: prefix + path } }, rewrite)),
  );
  return [jsonRpc, ...operations];
}

export function renderRoutes(intent: AccessRules): JsonObject {
  const routes = intent.agents.flatMap(({ name, card, invocation }) => [
    ...(card === undefined ? [] : [cardRoute(name, card)]),
    ...(invocation === undefined ? [] : invocationRoutes(name, invocation)),
  ]);
  return {
    ...typed("envoy.config.route.v3.RouteConfiguration"),
    name: ROUTE_CONFIG_NAME,
    // An unknown cluster is an error here, not a 503 later.
    validate_clusters: true,
    virtual_hosts: [
      {
        name: "gateway",
        domains: ["*"],
        routes: [
          ...routes,
          {
            name: "none",
            match: { prefix: "/" },
            direct_response: { status: 404 },
            typed_per_filter_config: OPEN,
          },
        ],
      },
    ],
  };
}
