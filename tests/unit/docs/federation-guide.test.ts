// The pages about federation control name what there is.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { FederationConfigFile } from "../../../src/federation/config.ts";

const page = (name: string) => readFileSync(new URL(`../../../docs/${name}`, import.meta.url), "utf8");

describe("the pages about federation control", () => {
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
