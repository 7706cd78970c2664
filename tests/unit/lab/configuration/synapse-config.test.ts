import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parse } from "yaml";
import { type HomeserverOptions, renderHomeserver } from "../../../../lab/configuration/synapse-config.ts";
import type { ServerName } from "../../../../src/domain/identifiers.ts";
import { assertGolden } from "../../../support/golden.ts";

const OPTIONS: HomeserverOptions = {
  serverName: "org-a.test:20003" as ServerName,
  directory: "/srv/lab/default/org-a/homeserver",
  clientPort: 20_002,
  federation: {
    port: 20_003,
    proxyUrl: "http://127.0.0.1:20004",
    caFile: "/srv/lab/default/ca/ca.pem",
    allow: ["org-a.test:20003", "org-b.test:20012"] as ServerName[],
  },
  database: {
    host: "127.0.0.1",
    port: 20_001,
    user: "org_a_synapse",
    password: "secret",
    name: "org_a_synapse",
  },
  registrationFiles: ["/srv/lab/default/org-a/homeserver/registration.yaml"],
  border: {
    policyFile: "/srv/lab/default/org-a/homeserver/border/policy.json",
    violationsFile: "/srv/lab/default/org-a/homeserver/border/violations.jsonl",
    statusTokenFile: "/srv/lab/default/org-a/federation/secrets/border-status-token",
  },
};

const yamlOf = (options: HomeserverOptions) => parse(renderHomeserver(options)["homeserver.yaml"] ?? "");

describe("Synapse's configuration", () => {
  it("a homeserver's configuration is rendered as the golden file says", () => {
    for (const [name, text] of Object.entries(renderHomeserver(OPTIONS))) {
      assertGolden(`lab/org-a/${name}`, text);
    }
  });

  it("every listener is on loopback, and only the federation's speaks TLS", () => {
    const { listeners } = yamlOf(OPTIONS);
    assert.deepEqual(
      listeners.map((one: { bind_addresses: string[]; tls: boolean }) => [one.bind_addresses, one.tls]),
      [
        [["127.0.0.1"], false],
        [["127.0.0.1"], true],
      ],
    );
  });

  it("an open federation has no list, a closed one an empty list, and nobody is admitted without federation", () => {
    assert.ok(OPTIONS.federation !== undefined);
    const listOf = (federation: HomeserverOptions["federation"]) =>
      yamlOf({ ...OPTIONS, federation }).federation_domain_whitelist;
    assert.equal(listOf({ ...OPTIONS.federation, allow: undefined }), undefined);
    assert.deepEqual(listOf({ ...OPTIONS.federation, allow: [] }), []);
    assert.deepEqual(listOf(undefined), []);
  });
});
