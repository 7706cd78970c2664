// Kubernetes renders against the definitions that the Gateway API publishes.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { HTTPRoute } from "@kubernetes-models/gateway-api/gateway.networking.k8s.io/v1/HTTPRoute";
import { parse, parseAllDocuments } from "yaml";
import { resourceName } from "../../../../src/federation/planes/kubernetes.ts";
import { renderAll } from "../../../../src/federation/planes/render.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { harbourWith, registryFiles, withText } from "../../../support/sample-files.ts";

interface Resource {
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly spec: { readonly [key: string]: unknown };
  readonly data?: Readonly<Record<string, string>>;
}

function resourcesOf(rendered: ReadonlyMap<string, string>): readonly Resource[] {
  return [...rendered]
    .filter(([path]) => path.startsWith("kubernetes/"))
    .flatMap(([, text]) => parseAllDocuments(text).map((document) => document.toJS() as Resource));
}

const rendered = renderAll(loadRegistry(registryFiles()));
const resources = resourcesOf(rendered);

describe("Kubernetes resources", () => {
  it("every HTTPRoute is valid by the Gateway API's published schema [PLN-5]", () => {
    const routes = resources.filter(({ kind }) => kind === "HTTPRoute");
    assert.equal(routes.length, 6);
    for (const route of routes) new HTTPRoute(route as ConstructorParameters<typeof HTTPRoute>[0]).validate();
    // The schema does judge: a kind of match that does not exist is refused.
    const spoiled = JSON.parse(
      JSON.stringify(routes[0]).replaceAll('"Exact"', '"Roughly"'),
    ) as ConstructorParameters<typeof HTTPRoute>[0];
    assert.throws(() => new HTTPRoute(spoiled).validate(), /path\/type/);
  });

  it("a card's route passes on neither a token nor a name that the caller gives itself [PLN-4]", () => {
    const cards = resources.filter(
      ({ kind, metadata }) => kind === "HTTPRoute" && metadata.name.startsWith("card-"),
    );
    assert.ok(cards.length > 0);
    const requestHeaderModifier = { remove: ["authorization", "x-azp"] };
    for (const { spec } of cards) {
      const [{ filters } = { filters: [] }] = spec["rules"] as { filters: unknown[] }[];
      assert.deepEqual(filters[1], { type: "RequestHeaderModifier", requestHeaderModifier });
    }
  });

  it("a policy demands a token, names its azp exactly, and the limiter fails closed [PLN-5]", () => {
    const policy = resources.find(
      ({ kind, metadata }) => kind === "AgentgatewayPolicy" && metadata.name === "invoke-docs-qa",
    );
    const { traffic } = (policy?.spec ?? {}) as { traffic: Record<string, Record<string, unknown>> };
    assert.equal(traffic["jwtAuthentication"]?.["mode"], "Strict");
    assert.deepEqual(traffic["authorization"], {
      action: "Require",
      policy: { matchExpressions: ['jwt.azp in ["harbour-bridge", "lighthouse-bridge"]'] },
    });
    const limit = traffic["rateLimit"]?.["global"] as Record<string, unknown>;
    assert.equal(limit["failureMode"], "FailClosed");
    assert.deepEqual(limit["descriptors"], [
      { entries: [{ name: "azp", expression: "jwt.azp" }], unit: "Requests" },
    ]);
  });

  it("the limiter's configuration and the routes name one domain and one descriptor [PLN-5]", () => {
    const limits = resources.find(({ metadata }) => metadata.name === "drawbridge-rate-limits");
    const config = parse(limits?.data?.["gateway.yaml"] ?? "") as {
      domain: string;
      descriptors: { key: string; value?: string }[];
    };
    assert.equal(config.domain, "gateway");
    assert.deepEqual(
      config.descriptors.map(({ key, value }) => [key, value]),
      [
        ["azp", "harbour-bridge"],
        ["azp", "lighthouse-bridge"],
        ["azp", undefined],
      ],
    );
  });

  it("a ConfigMap holds the same bytes that one machine reads [PLN-3] [PLN-4]", () => {
    const pairs = [
      ["drawbridge-policy", "policy.json", "rendered/border/policy.json"],
      ["drawbridge-agents", "agents.yaml", "rendered/card/agents.yaml"],
      ["drawbridge-homeserver", "homeserver.yaml", "rendered/transport/homeserver.yaml"],
      ["drawbridge-card-keys", "card-keys.json", "rendered/card/card-keys.json"],
    ] as const;
    for (const [name, key, path] of pairs) {
      const map = resources.find(({ metadata }) => metadata.name === name);
      assert.equal(map?.data?.[key], rendered.get(path), name);
    }
  });

  it("without a Kubernetes target nothing is rendered for it", () => {
    const organisation = registryFiles().get("registry/organisation.yaml") ?? "";
    const without = organisation.slice(0, organisation.indexOf("\nkubernetes:"));
    const files = renderAll(
      loadRegistry(harbourWith(new Map([["registry/organisation.yaml", `${without}\n`]]))),
    );
    assert.deepEqual(
      [...files.keys()].filter((path) => path.startsWith("kubernetes/")),
      [],
    );
  });

  it("a resource's name is valid for Kubernetes, and two agents never share one", () => {
    const agents = ["docs-qa", "docs_qa", "docs.qa", "docs-qa.", "docs..qa", "docs-", "d", "a".repeat(64)];
    const names = agents.map((agent) => resourceName("invoke", agent));
    assert.equal(new Set(names).size, agents.length);
    for (const name of names)
      assert.match(name, /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*$/);
  });

  it("a partner whose transport is closed is no key server, even where the organisation names it [PLN-1]", () => {
    const files = harbourWith(
      withText(
        "registry/organisation.yaml",
        "trustedKeyServers: []",
        'trustedKeyServers: ["salvage.example:443"]',
      ),
    );
    const include = renderAll(loadRegistry(files)).get("rendered/transport/homeserver.yaml") ?? "";
    assert.ok(!include.includes("salvage.example"));
  });
});
