// What a removal has to cover, as the registry and the configuration say.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { openPartners } from "../../../../src/federation/planes/plane.ts";
import { PLANE_RENDERS } from "../../../../src/federation/planes/render.ts";
import { scopeOf } from "../../../../src/federation/probes/from-inside.ts";
import type { DesiredState } from "../../../../src/federation/reconcile/desired-state.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { registryFiles } from "../../../support/sample-files.ts";

describe("scopeOf", () => {
  it("scopeOf names the parts that are managed, the partner's client, the agents of both and the policy [OFF-5]", () => {
    const registry = loadRegistry(registryFiles());
    const entry = openPartners(registry, "border")[0];
    assert.ok(entry !== undefined);
    const planes = {
      border: { files: PLANE_RENDERS.border.render(registry) },
    } as unknown as DesiredState["planes"];
    const scope = scopeOf(["homeserver"], entry.partner, { planes, registry });
    assert.deepEqual(scope.parts, ["homeserver"]);
    assert.equal(scope.client, entry.partner.azp);
    assert.deepEqual(scope.agents, entry.partner.gateway?.invokes ?? []);
    assert.deepEqual(scope.pins, Object.keys(entry.partner.card.consumes));
    assert.match(scope.policy ?? "", /^sha256:/);
    const stranger = { ...entry.partner, serverName: "stranger.test" as typeof entry.partner.serverName };
    assert.equal(
      scopeOf(["homeserver"], stranger, { planes, registry }).policy,
      null,
      "the policy kept it out already",
    );
  });
});
