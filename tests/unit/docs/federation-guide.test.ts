// What the guide to federation control shows is good as it stands there, and renders to a repository that passes every check.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { FederationConfigFile } from "../../../src/federation/config.ts";
import { loadRegistry } from "../../../src/federation/registry/load.ts";
import { parseYaml } from "../../../src/runtime/load-yaml.ts";

const page = (name: string) => readFileSync(new URL(`../../../docs/${name}`, import.meta.url), "utf8");
const guide = page("operating/set-up-federation.md");

function shown(file: string, text: string): string {
  const block = text.split("```yaml\n").find((part) => part.trimStart().startsWith(`${file}\n`));
  assert.ok(block, `the guide shows no ${file}`);
  return block.slice(0, block.indexOf("```"));
}

describe("the guide to federation control", () => {
  it("its federation.yaml is a valid configuration", () => {
    parseYaml(FederationConfigFile, shown("# federation.yaml", guide), "federation.yaml");
  });

  it("its registry/organisation.yaml is a valid registry", () => {
    const entry = shown("# registry/organisation.yaml", guide);
    const { organisation } = loadRegistry(new Map([["registry/organisation.yaml", entry]]));
    assert.deepEqual(Object.keys(organisation.agents), ["docs-qa"]);
  });

  it("the reference names every section and setting of federation.yaml", () => {
    const reference = page("reference/configuration.md");
    const section = reference.slice(
      reference.indexOf("## Federation control"),
      reference.indexOf("## Who may ask"),
    );
    const { version: _, ...sections } = FederationConfigFile.shape;
    for (const [name, schema] of Object.entries(sections)) {
      assert.match(section, new RegExp(`\`${name}[.\`]`), name);
      const inner = "unwrap" in schema ? schema.unwrap() : schema;
      const settings = "shape" in inner ? Object.keys(inner.shape as object) : [];
      for (const key of settings) assert.match(section, new RegExp(`\\b${key}\\b`), `${name}.${key}`);
    }
  });
});
