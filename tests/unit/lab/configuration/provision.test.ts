import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { parse } from "yaml";
import type * as z from "zod";
import { DocsQaConfigFile } from "../../../../examples/docs-qa/config.ts";
import { moveAddresses } from "../../../../lab/configuration/control-repository.ts";
import { federationConfig, probeConfig } from "../../../../lab/configuration/federation.ts";
import { federationAllowList } from "../../../../lab/configuration/homeserver.ts";
import { yamlFile } from "../../../../lab/configuration/provision.ts";
import { registryFiles } from "../../../../lab/configuration/registry.ts";
import {
  agentConfig,
  bridgeConfig,
  gatewayConfig,
  issuerConfig,
} from "../../../../lab/configuration/services.ts";
import { COMPLETE_ORGANISATIONS } from "../../../../lab/organisations.ts";
import { sharedRoomAcl } from "../../../../lab/seed/rooms.ts";
import { BridgeConfigFile } from "../../../../src/bridge/config.ts";
import { FederationConfigFile } from "../../../../src/federation/config.ts";
import { renderAll } from "../../../../src/federation/planes/render.ts";
import { ProbeFile } from "../../../../src/federation/probes/config.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { GatewayConfigFile } from "../../../../src/gateway/config.ts";
import { IssuerConfigFile } from "../../../../src/issuer/config.ts";
import { AgentsFile } from "../../../../src/rendered-files/agents-file.ts";
import { InvocationFile } from "../../../../src/rendered-files/gateway-files.ts";
import { parseYaml } from "../../../../src/runtime/load-yaml.ts";
import { assertGolden, assertGoldens } from "../../../support/golden.ts";
import { paperLab } from "../paper-lab.ts";

const lab = paperLab();
// The public key of RFC 7515, appendix A.3.
const jwk = {
  kty: "EC",
  crv: "P-256",
  x: "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
  y: "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
} as const;
const identities = {
  "org-a": { cardKey: { keyId: "org-a-card-1", jwk }, serverKeyId: "ed25519:a_111111" },
  "org-b": { cardKey: { keyId: "org-b-card-1", jwk }, serverKeyId: "ed25519:a_222222" },
};
const programs = {
  python: "/opt/venv/bin/python",
  envoy: "/opt/venv/envoy",
  node: "/usr/bin/node",
  drawbridge: "/srv/clone/bin/drawbridge",
};
const renderedOf = (organisation: "org-a" | "org-b") =>
  renderAll(loadRegistry(registryFiles(lab, organisation, identities)));

const FILES: readonly {
  readonly name: string;
  readonly schema: z.ZodType;
  readonly of: (organisation: "org-a" | "org-b") => unknown;
}[] = [
  { name: "bridge.yaml", schema: BridgeConfigFile, of: (name) => bridgeConfig(lab, name) },
  {
    name: "gateway.yaml",
    schema: GatewayConfigFile,
    of: (name) => gatewayConfig(lab, name, "/opt/venv/envoy"),
  },
  { name: "issuer.yaml", schema: IssuerConfigFile, of: (name) => issuerConfig(lab, name) },
  { name: "docs-qa.yaml", schema: DocsQaConfigFile, of: (name) => agentConfig(lab, name, "org-a-card-1") },
];

describe("the configuration of an organisation", () => {
  for (const { name, schema, of } of FILES) {
    it(`the lab writes ${name} as an operator would, and the program itself accepts it`, () => {
      for (const organisation of COMPLETE_ORGANISATIONS) {
        const { text } = yamlFile(name, `${name} of ${organisation}`, of(organisation));
        assertGolden(`lab/${organisation}/${name}`, text);
        assert.doesNotThrow(() => parseYaml(schema, text, name));
      }
    });
  }

  it("federation.yaml names no path of this clone but the program that restarts a homeserver", () => {
    for (const organisation of COMPLETE_ORGANISATIONS) {
      const config = federationConfig(lab, organisation, programs);
      const { text } = yamlFile("federation.yaml", `federation.yaml of ${organisation}`, config);
      assert.doesNotThrow(() => parseYaml(FederationConfigFile, text, "federation.yaml"));
      const [, program = "", ...rest] = config.transport.restart.command;
      assertGolden(
        `lab/${organisation}/federation.yaml`,
        text.replace(program, "/srv/clone/restart-unit.ts"),
      );
      assert.deepEqual(rest, ["/srv/lab/default", `${organisation}/homeserver`]);
    }
  });

  it("a probe file says how an organisation is probed from outside, and as which one", () => {
    const config = probeConfig(lab, "org-a", "org-b");
    const { text } = yamlFile("probe-org-b.yaml", "How org-a is looked at from outside, as org-b", config);
    assertGolden("lab/org-a/probe-org-b.yaml", text);
    assert.doesNotThrow(() => parseYaml(ProbeFile, text, "probe-org-b.yaml"));
    assert.equal(config.witness, undefined);
    const witnessed = { ...lab, organisations: [...lab.organisations, "org-d" as const] };
    assert.equal(probeConfig(witnessed, "org-a", "org-b").witness?.userId, "@alice:org-d.test:20024");
    assert.equal(probeConfig(witnessed, "org-a", "org-d").witness, undefined);
    assert.equal(probeConfig(lab, "org-b", "org-c").as.client?.clientId, "org-c-applicant");
  });

  it("the registry is written as an operator would write it", () => {
    for (const organisation of COMPLETE_ORGANISATIONS) {
      const files = [...registryFiles(lab, organisation, identities)];
      assertGoldens(
        `lab/${organisation}/registry`,
        files.map(([path, text]) => [path.replace(/^registry\//, ""), text]),
      );
    }
  });

  it("the lab's own addresses follow when it gets other ports, and server names do not", () => {
    const text =
      "cardUrl: http://127.0.0.1:20010/a\nserver: org-b.test:20012\nother: http://127.0.0.1:20032/\n";
    assert.equal(
      moveAddresses(text, 20_000, 320),
      "cardUrl: http://127.0.0.1:20330/a\nserver: org-b.test:20012\nother: http://127.0.0.1:20032/\n",
    );
  });

  it("an organisation's agents are its own and its partner's, open to exactly the users of both", () => {
    const { agents } = parseYaml(
      AgentsFile,
      renderedOf("org-a").get("rendered/card/agents.yaml") ?? "",
      "agents.yaml",
    );
    assert.deepEqual(Object.keys(agents).sort(), ["docs-qa", "org-b-docs-qa"]);
    for (const entry of Object.values(agents)) {
      assert.deepEqual(entry.allowedServers, ["org-a.test:20003", "org-b.test:20012"]);
      assert.deepEqual(entry.allowedSenders, ["*:org-a.test:20003", "*:org-b.test:20012"]);
    }
    assert.equal(agents["org-b-docs-qa"]?.cardIdentity?.keyId, "org-b-card-1");
  });

  it("no gateway admits a client of org-c, and no partner's federation list names it [NEG-1]", () => {
    for (const organisation of COMPLETE_ORGANISATIONS) {
      const rendered = renderedOf(organisation);
      const text = rendered.get("rendered/gateway/invocation.yaml") ?? "";
      const { agents } = parseYaml(InvocationFile, text, "invocation.yaml");
      for (const agent of Object.values(agents)) {
        assert.deepEqual([...agent.clients].sort(), ["org-a-bridge", "org-b-bridge"]);
      }
      const admitted = ["org-a.test:20003", "org-b.test:20012", "org-d.test:20024"];
      const include = parse(rendered.get("rendered/transport/homeserver.yaml") ?? "");
      assert.deepEqual(include.federation_domain_whitelist, admitted);
      assert.deepEqual(parse(rendered.get("rendered/border/policy.json") ?? "").allowed_servers, admitted);
      assert.deepEqual(federationAllowList(lab, organisation), []);
    }
  });

  it("the ACL of shared rooms names both forms of each admitted server, and never org-c", () => {
    assert.deepEqual(sharedRoomAcl(lab), {
      allow: [
        "org-a.test",
        "org-a.test:20003",
        "org-b.test",
        "org-b.test:20012",
        "org-d.test",
        "org-d.test:20024",
      ],
      deny: [],
      allow_ip_literals: false,
    });
  });

  it("configuration carries no anchor and no secret", () => {
    for (const { name, of } of FILES) {
      const { text } = yamlFile(name, name, of("org-a"));
      assert.doesNotMatch(text, /[&*]a[0-9]+/);
      for (const [key, value] of Object.entries(flatten(parse(text)))) {
        if (/secret|token$|keys$/i.test(key)) assert.match(String(value), /^(?:secrets\/|http)/, key);
      }
    }
  });

  function flatten(value: unknown, path = ""): Record<string, unknown> {
    if (typeof value !== "object" || value === null) return { [path]: value };
    return Object.assign(
      {},
      ...Object.entries(value).map(([key, member]) => flatten(member, path === "" ? key : `${path}.${key}`)),
    );
  }
});
