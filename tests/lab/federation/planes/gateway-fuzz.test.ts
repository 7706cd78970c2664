// Hostile files put where a running gateway and issuer read: the last good ones stay in force, nobody is let
// in, nothing ends.
import assert from "node:assert/strict";
import { mkdirSync, renameSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import { sha256Tagged } from "../../../../src/domain/digest.ts";
import { eventually } from "../../../support/gateway.ts";
import { anyFile, HOSTILE } from "../../../support/hostile-yaml.ts";
import { type GatewayDeployment, gatewayDeployment } from "./gateway-deployment.ts";

const RANDOM_FILES = fc.sample(anyFile, { numRuns: 15, seed: 20_261_121 });
const CONTENTS = [...HOSTILE.map(([, content]) => Buffer.from(content)), ...RANDOM_FILES];

function replace(file: string, content: Buffer): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(`${file}.hostile`, content);
  renameSync(`${file}.hostile`, file);
}

/** Org C goes on as before; org B, which is closed out, stays out; so does whoever has no token. */
async function unchanged(deployment: GatewayDeployment, tokens: { b: string; c: string }): Promise<void> {
  assert.equal(await deployment.invoke("docs-qa", tokens.c), 200);
  assert.equal(await deployment.invoke("docs-qa", tokens.b), 403);
  assert.equal(await deployment.invoke("docs-qa", "none"), 401);
  assert.equal(await deployment.card("docs-qa"), 200);
  assert.equal(await deployment.card("reports"), 200);
}

describe("hostile files at the gateway", () => {
  it("hostile publication and invocation files leave the last good ones in force [PLN-5]", async (t) => {
    const deployment = await gatewayDeployment(t);
    await deployment.apply("gateway");
    await deployment.apply("card");
    const tokens = {
      b: (await deployment.token("org-b")).token,
      c: (await deployment.token("org-c")).token,
    };
    await deployment.apply("gateway", { gateway: "closed" });
    const good = deployment.gateway.state();
    for (const name of ["invocation", "publication"] as const) {
      const file = join(deployment.folder, "gateway", `${name}.yaml`);
      for (const content of CONTENTS) {
        replace(file, content);
        const digest = sha256Tagged(content);
        const refused = await eventually("the refusal", () => {
          const state = deployment.gateway.state();
          return state?.refused?.digest === digest ? state.refused : undefined;
        });
        assert.deepEqual([refused.file, refused.reason], [name, "invalid"]);
        await unchanged(deployment, tokens);
      }
      const plane = name === "invocation" ? "gateway" : "card";
      await deployment.apply(plane, name === "invocation" ? { gateway: "closed" } : {});
      await eventually("nothing refused", () =>
        deployment.gateway.state()?.refused === null ? true : undefined,
      );
      const state = deployment.gateway.state();
      assert.deepEqual([state?.invocation, state?.publication], [good?.invocation, good?.publication]);
    }
    assert.equal(deployment.gateway.running.child.exitCode, null);
  });

  it("hostile client files leave the last good ones in force [PLN-5]", async (t) => {
    const deployment = await gatewayDeployment(t);
    await deployment.apply("gateway", { gateway: "closed" });
    const file = join(deployment.folder, "issuer", "clients.yaml");
    assert.equal((await deployment.token("org-c")).status, 200);
    for (const content of CONTENTS) {
      replace(file, content);
      assert.equal((await deployment.token("org-c")).status, 200);
      const { status, error } = await deployment.token("org-b");
      assert.deepEqual([status, error], [401, "invalid_client"]);
      assert.equal(
        (await deployment.planes.gateway.drift(deployment.desired("gateway", { gateway: "closed" }))).length,
        1,
      );
    }
    assert.deepEqual(await deployment.apply("gateway", { gateway: "closed" }), {
      state: "in_force",
      changed: true,
    });
  });
});
