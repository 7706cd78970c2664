// The files that the operator's guide shows are good as they stand there.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { parse } from "yaml";
import type * as z from "zod";
import { FederationConfigFile } from "../../../src/federation/config.ts";
import { GatewayConfigFile } from "../../../src/gateway/config.ts";
import { IssuerConfigFile } from "../../../src/issuer/config.ts";
import { InvocationFile, PublicationFile } from "../../../src/rendered-files/gateway-files.ts";
import { ClientsFile } from "../../../src/rendered-files/issuer-clients.ts";
import { parseYaml } from "../../../src/runtime/load-yaml.ts";

const page = (name: string) =>
  readFileSync(new URL(`../../../docs/operating/${name}`, import.meta.url), "utf8");
const GUIDE = page("run-a-gateway.md");

function shown(file: string, guide = GUIDE): string {
  const block = new RegExp(`^\`\`\`yaml\n# ${file.replaceAll(/[.()]/g, "\\$&")}\n(.*?)^\`\`\`$`, "ms").exec(
    guide,
  )?.[1];
  assert.ok(block, `the guide shows no ${file}`);
  return block;
}

describe("the gateway's guide", () => {
  for (const [file, schema] of [
    ["issuer.yaml", IssuerConfigFile],
    ["clients.yaml", ClientsFile],
    ["gateway.yaml", GatewayConfigFile],
    ["publication.yaml", PublicationFile],
    ["invocation.yaml", InvocationFile],
  ] as const satisfies readonly (readonly [string, z.ZodType])[]) {
    it(`${file} of the guide is a valid configuration`, () => {
      parseYaml(schema, shown(file), file);
    });
  }

  it("the issuer's lines for Keycloak fit into the guide's gateway.yaml", () => {
    const others = shown("gateway.yaml").replace(/^issuer:\n(?: {2}.*\n)+/m, "");
    parseYaml(GatewayConfigFile, others + shown("part of gateway.yaml"), "gateway.yaml");
  });

  it("the guide's issuer, clients and gateway agree with each other", () => {
    const issuer = parseYaml(IssuerConfigFile, shown("issuer.yaml"), "issuer.yaml");
    const gateway = parseYaml(GatewayConfigFile, shown("gateway.yaml"), "gateway.yaml");
    const invocation = parseYaml(InvocationFile, shown("invocation.yaml"), "invocation.yaml");
    const { clients } = parseYaml(ClientsFile, shown("clients.yaml"), "clients.yaml");
    assert.deepEqual([gateway.issuer.url, gateway.issuer.audience], [issuer.url, issuer.audience]);
    assert.deepEqual(
      invocation.agents["docs-qa"]?.clients,
      clients.map(({ clientId }) => clientId),
    );
  });

  it("the limiter's lines for several gateways fit into the guide's gateway.yaml", () => {
    const { limiter } = parseYaml(
      GatewayConfigFile,
      shown("gateway.yaml") + shown("part of gateway.yaml (limiter)"),
      "gateway.yaml",
    );
    assert.equal(limiter.mode, "shared");
  });

  it("the lines for federation control with an own Keycloak are valid", () => {
    const lines = shown("part of federation.yaml (gateway.issuer)", page("keycloak.md"));
    const parsed = FederationConfigFile.shape.gateway.unwrap().shape.issuer.parse(parse(lines));
    assert.equal(parsed.adapter, "keycloak");
  });
});
