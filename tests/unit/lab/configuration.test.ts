import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import type { z } from "zod";
import { AgentsFile } from "../../../src/admission/agents-file.ts";
import { ClientsFile } from "../../../src/admission/clients-file.ts";
import { InvocationFile } from "../../../src/admission/invocation-file.ts";
import { PublicationFile } from "../../../src/admission/publication-file.ts";
import { BridgeConfigFile } from "../../../src/bridge/config.ts";
import { DocsQaConfigFile } from "../../../src/docs-qa/config.ts";
import { GatewayConfigFile } from "../../../src/gateway/config.ts";
import { IssuerConfigFile } from "../../../src/issuer/config.ts";
import { agentsFile, bridgeConfig } from "../../../src/lab/configuration/bridge.ts";
import { federationAllowList } from "../../../src/lab/configuration/homeservers.ts";
import { yamlFile } from "../../../src/lab/configuration/provision.ts";
import {
  agentConfig,
  clientsFile,
  gatewayConfig,
  invocationFile,
  issuerConfig,
  publicationFile,
} from "../../../src/lab/configuration/services.ts";
import { COMPLETE_ORGANISATIONS } from "../../../src/lab/organisations.ts";
import { sharedRoomAcl } from "../../../src/lab/seed/rooms.ts";
import { parseYaml } from "../../../src/runtime/load-yaml.ts";
import { assertGolden } from "../../support/golden.ts";
import { paperLab } from "../../support/lab.ts";

const lab = paperLab();
// The public key of RFC 7515, appendix A.3.
const jwk = {
  kty: "EC",
  crv: "P-256",
  x: "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
  y: "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
} as const;
const cardKeys = {
  "org-a": { keyId: "org-a-card-1", jwk },
  "org-b": { keyId: "org-b-card-1", jwk },
};

const FILES: readonly {
  readonly name: string;
  readonly schema: z.ZodType;
  readonly of: (organisation: "org-a" | "org-b") => unknown;
}[] = [
  { name: "bridge.yaml", schema: BridgeConfigFile, of: (name) => bridgeConfig(lab, name) },
  { name: "agents.yaml", schema: AgentsFile, of: (name) => agentsFile(lab, name, cardKeys) },
  {
    name: "gateway.yaml",
    schema: GatewayConfigFile,
    of: (name) => gatewayConfig(lab, name, "/opt/venv/envoy"),
  },
  { name: "publication.yaml", schema: PublicationFile, of: (name) => publicationFile(lab, name) },
  { name: "invocation.yaml", schema: InvocationFile, of: (name) => invocationFile(lab, name) },
  { name: "issuer.yaml", schema: IssuerConfigFile, of: (name) => issuerConfig(lab, name) },
  { name: "clients.yaml", schema: ClientsFile, of: (name) => clientsFile(lab, name) },
  { name: "docs-qa.yaml", schema: DocsQaConfigFile, of: (name) => agentConfig(lab, name, "org-a-card-1") },
];

for (const { name, schema, of } of FILES) {
  test(`the lab writes ${name} as an operator would, and the program itself accepts it`, () => {
    for (const organisation of COMPLETE_ORGANISATIONS) {
      const { text } = yamlFile(name, `${name} of ${organisation}`, of(organisation));
      assertGolden(`lab/${organisation}/${name}`, text);
      assert.doesNotThrow(() => parseYaml(schema, text, name));
    }
  });
}

test("an organisation's agents are its own and its partner's, open to exactly the users of both", () => {
  const { agents } = AgentsFile.parse(agentsFile(lab, "org-a", cardKeys));
  assert.deepEqual(Object.keys(agents).sort(), ["docs-qa", "org-b-docs-qa"]);
  for (const entry of Object.values(agents)) {
    assert.deepEqual(entry.allowedServers, ["org-a.test:20003", "org-b.test:20012"]);
    assert.deepEqual(entry.allowedSenders, ["*:org-a.test:20003", "*:org-b.test:20012"]);
  }
  assert.equal(agents["org-b-docs-qa"]?.cardIdentity?.keyId, "org-b-card-1");
});

test("NEG-1: no gateway admits a client of org-c, and no partner's federation list names it", () => {
  for (const organisation of COMPLETE_ORGANISATIONS) {
    const { agents } = InvocationFile.parse(invocationFile(lab, organisation));
    for (const agent of Object.values(agents)) {
      assert.deepEqual([...agent.clients].sort(), ["org-a-bridge", "org-b-bridge"]);
    }
    const admitted = ["org-a.test:20003", "org-b.test:20012", "org-d.test:20024"];
    assert.deepEqual(federationAllowList(lab, organisation), admitted);
  }
});

test("the ACL of shared rooms names both forms of each admitted server, and never org-c", () => {
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

test("configuration carries no anchor and no secret", () => {
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
