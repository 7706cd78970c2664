import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { stringify } from "yaml";
import { type GatewayConfig, parseGatewayConfig } from "../../../src/gateway/config.ts";

function config(more: object = {}) {
  return {
    version: 1,
    listen: { port: 8080 },
    adminPort: 9901,
    issuer: { url: "http://127.0.0.1:9000", jwksUrl: "http://127.0.0.1:9000/jwks", audience: "urn:org-a" },
    ...more,
  };
}

function load(folder: string, value: object): GatewayConfig {
  return parseGatewayConfig(stringify(value), `${folder}/gateway.yaml`);
}

describe("the gateway's configuration", () => {
  it("gateway.yaml refuses agents and clients", () => {
    for (const key of ["agents", "quotas"]) {
      assert.throws(() => load("/srv", config({ [key]: {} })), /gateway\.yaml:\d+: (agents|quotas): /);
    }
  });

  it("relative paths start at the folder of the configuration file", () => {
    const loaded = load("/srv/gw", config({ envoy: { binary: "bin/envoy" } }));
    assert.equal(loaded.publicationFile, "/srv/gw/publication.yaml");
    assert.equal(loaded.invocationFile, "/srv/gw/invocation.yaml");
    assert.equal(loaded.stateFile, "/srv/gw/state.json");
    assert.equal(loaded.accessLog, "/srv/gw/access.jsonl");
    assert.equal(loaded.envoy.directory, "/srv/gw/envoy");
    assert.equal(loaded.envoy.binary, "/srv/gw/bin/envoy");
  });

  it("an Envoy without a slash is searched in PATH", () => {
    assert.equal(load("/srv", config({ envoy: { binary: "envoy" } })).envoy.binary, "envoy");
  });
});
