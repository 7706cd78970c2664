import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { JsonObject } from "../../../../src/domain/json.ts";
import { gatewayConfigFile } from "../../../../src/gateway/config.ts";
import { bothClusters } from "../../../../src/gateway/envoy-files.ts";
import { renderQuotaFile } from "../../../../src/gateway/render/rate-limit.ts";
import { render } from "../../../../src/gateway/render/render.ts";
import { type AdmissionInput, testIntent } from "../../../support/gateway.ts";
import { assertGolden, assertGoldens } from "../../../support/golden.ts";

const DIRECTORY = "/var/lib/drawbridge/envoy";

const MINIMAL = {
  version: 1,
  listen: { port: 8080 },
  adminPort: 9901,
  issuer: {
    url: "http://127.0.0.1:9000",
    jwksUrl: "http://127.0.0.1:9000/jwks",
    audience: "https://agents.org-a.example",
  },
  agents: {
    "docs-qa": {
      upstream: "http://127.0.0.1:4100",
      cardPath: "/agents/docs-qa/.well-known/agent-card.json",
      invokePath: "/agents/docs-qa/rpc",
      clients: ["org-b-client"],
    },
  },
  quotas: { default: { perMinute: 60, burst: 20 } },
};

const FULL = {
  version: 1,
  listen: {
    host: "0.0.0.0",
    port: 8443,
    tls: { certificateFile: "tls/gateway.crt", keyFile: "tls/gateway.key" },
  },
  adminPort: 9901,
  issuer: {
    url: "https://id.org-a.example/realms/agents",
    jwksUrl: "https://id.org-a.example/realms/agents/protocol/openid-connect/certs",
    audience: "https://agents.org-a.example",
    caFile: "tls/ca.pem",
  },
  agents: {
    planner: {
      upstream: "http://planner.internal:8000/a2a/v1/",
      upstreamCardPath: "/a2a/card.json",
      cardPath: "/planner/card.json",
      invokePath: "/planner/a2a.v1",
      httpJson: true,
      clients: ["org-c-client", "org-b-client", "org-b-client"],
      forwardToken: true,
    },
    closed: {
      upstream: "http://[::1]:4100",
      cardPath: "/closed/card.json",
      invokePath: "/closed/rpc",
      clients: [],
    },
  },
  quotas: {
    default: { perMinute: 60, burst: 20 },
    clients: { "org-c-client": { perMinute: 6, burst: 2 }, "org-b-client": { perMinute: 600, burst: 50 } },
  },
  accessLog: "logs/access.jsonl",
  envoy: { directory: "envoy" },
};

function rendered({ agents, quotas, ...gateway }: AdmissionInput & Record<string, unknown>) {
  const config = gatewayConfigFile("/etc/drawbridge").parse(gateway);
  return render(config, testIntent({ agents, quotas }), DIRECTORY);
}

function live(files: Readonly<Record<string, string>>, name: string): JsonObject {
  const file = JSON.parse(files[`live/${name}.json`] ?? "") as { resources: JsonObject[] };
  return file.resources[0] ?? {};
}

const SHARED = { ...MINIMAL, limiter: { mode: "shared", address: "127.0.0.1:4581" } };

describe("rendering Envoy's files", () => {
  for (const [name, config] of [
    ["minimal", MINIMAL],
    ["full", FULL],
    ["shared-limiter", SHARED],
  ] as const) {
    it(`the ${name} configuration renders to its goldens`, () => {
      const { files } = rendered(config);
      assertGoldens(`gateway/${name}`, Object.entries(files));
    });
  }

  it("the shared limiter's quotas render to their golden, one for each azp and one for the others [PLN-5]", () => {
    const { quotas } = testIntent({ agents: FULL.agents, quotas: FULL.quotas });
    assertGolden("gateway/quotas.yaml", renderQuotaFile("gateway", quotas));
  });

  it("with a shared limiter a changed quota changes no file of Envoy's [PLN-5]", () => {
    const before = rendered(SHARED);
    const after = rendered({ ...SHARED, quotas: FULL.quotas });
    assert.deepEqual(after.versions, before.versions);
  });

  it("both limiters follow the check of the caller, and the shared one fails closed [PLN-5]", () => {
    for (const config of [MINIMAL, SHARED]) {
      const text = rendered(config).files["live/lds.json"] ?? "";
      const names = [
        ...text.matchAll(/"name": "(envoy\.filters\.http\.(?:jwt_authn|rbac|router)|limiter)"/g),
      ];
      assert.deepEqual(
        names.map((match) => match[1]),
        ["envoy.filters.http.jwt_authn", "envoy.filters.http.rbac", "limiter", "envoy.filters.http.router"],
      );
    }
    assert.match(rendered(SHARED).files["live/lds.json"] ?? "", /"failure_mode_deny": true/);
  });

  it("a connection without a request ends after a minute, a silent stream after five [PLN-5]", () => {
    const text = rendered(MINIMAL).files["live/lds.json"] ?? "";
    assert.match(text, /"common_http_protocol_options": \{\s*"idle_timeout": "60s"/);
    assert.match(text, /"stream_idle_timeout": "300s"/);
  });

  it("rendering the same configuration twice gives the same bytes, whatever the order of its keys", () => {
    const reversed = {
      ...FULL,
      agents: Object.fromEntries(Object.entries(FULL.agents).reverse()),
      quotas: { ...FULL.quotas, clients: Object.fromEntries(Object.entries(FULL.quotas.clients).reverse()) },
    };
    assert.deepEqual(rendered(reversed).files, rendered(FULL).files);
  });

  it("a change of callers or routes changes rds.json alone [PLN-5]", () => {
    const before = rendered(MINIMAL);
    const after = rendered({
      ...MINIMAL,
      agents: { "docs-qa": { ...MINIMAL.agents["docs-qa"], clients: [] } },
    });
    assert.equal(after.versions.lds, before.versions.lds);
    assert.equal(after.versions.cds, before.versions.cds);
    assert.notEqual(after.versions.rds, before.versions.rds);
  });

  it("a live file holds the version that is waited for", () => {
    const { files, versions } = rendered(FULL);
    for (const name of ["cds", "lds", "rds"] as const) {
      const file = JSON.parse(files[`live/${name}.json`] ?? "") as { version_info: string };
      assert.equal(file.version_info, versions[name]);
    }
  });

  it("the twin for validation holds the same routes, filters and clusters as the live files", () => {
    const { files } = rendered(FULL);
    const twin = JSON.parse(files["validate.json"] ?? "");
    const listener = live(files, "lds");
    const manager = (value: unknown) => {
      const typed = value as { filter_chains: { filters: { typed_config: JsonObject }[] }[] };
      return typed.filter_chains[0]?.filters[0]?.typed_config ?? {};
    };
    const { route_config: routes, ...twinManager } = manager(twin.static_resources.listeners[0]);
    const { rds: _, ...liveManager } = manager(listener);
    assert.deepEqual(twinManager, liveManager);
    const { "@type": __, ...liveRoutes } = live(files, "rds");
    assert.deepEqual(routes, liveRoutes);
    const clusters = JSON.parse(files["live/cds.json"] ?? "").resources as JsonObject[];
    assert.deepEqual(
      twin.static_resources.clusters,
      clusters.map(({ "@type": ___, ...cluster }) => cluster),
    );
  });

  it("the access log names no path, header or body", () => {
    const { files } = rendered(FULL);
    const formats = files["live/lds.json"]?.match(/%[A-Z_]+(?:\([^)]*\))?%/g) ?? [];
    assert.deepEqual([...formats].sort(), [
      "%BYTES_RECEIVED%",
      "%BYTES_SENT%",
      "%DURATION%",
      "%DYNAMIC_METADATA(envoy.filters.http.jwt_authn:p:azp)%",
      "%RESPONSE_CODE%",
      "%RESPONSE_CODE_DETAILS%",
      "%RESPONSE_FLAGS%",
      "%ROUTE_NAME%",
      "%START_TIME%",
    ]);
  });

  it("every protected route limits a stream's idle time, never its length", () => {
    const routes = (
      live(rendered(FULL).files, "rds")["virtual_hosts"] as unknown as [{ routes: JsonObject[] }]
    )[0].routes;
    const protectedOnes = routes.filter((route) => String(route["name"]).startsWith("invoke:"));
    assert.equal(protectedOnes.length, 8);
    for (const route of protectedOnes) {
      const { timeout, idle_timeout: idle } = route["route"] as JsonObject;
      assert.deepEqual([timeout, idle], ["0s", "300s"], String(route["name"]));
    }
  });

  it("a call whose content does not come within a minute is ended: its caller was checked when it began [PLN-5]", () => {
    assert.match(rendered(FULL).files["live/lds.json"] ?? "", /"request_timeout": "60s"/);
  });

  it("old and new clusters stand side by side while they change, and of one name the new one", () => {
    const old = [
      { name: "a", port: 1 },
      { name: "b", port: 1 },
    ];
    const next = [
      { name: "b", port: 2 },
      { name: "c", port: 2 },
    ];
    assert.deepEqual(bothClusters(old, next), [
      { name: "b", port: 2 },
      { name: "c", port: 2 },
      { name: "a", port: 1 },
    ]);
  });
});
