// What a removal has to cover, as the registry and the configuration say.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { openPartners } from "../../../../src/federation/planes/plane.ts";
import { scopeOf } from "../../../../src/federation/probes/from-inside.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { registryFiles } from "../../../support/sample-files.ts";

describe("scopeOf", () => {
  it("scopeOf names the parts that are managed, the partner's client, the agents of both and the policy [OFF-5]", () => {
    const registry = loadRegistry(registryFiles());
    const entry = openPartners(registry, "border")[0];
    assert.ok(entry !== undefined);
    const scope = scopeOf(["homeserver"], entry.partner, { registry });
    assert.deepEqual(scope.parts, ["homeserver"]);
    assert.equal(scope.client, entry.partner.azp);
    assert.deepEqual(scope.agents, entry.partner.gateway?.invokes ?? []);
    assert.deepEqual(scope.pins, Object.keys(entry.partner.card.consumes));
    assert.match(scope.policy ?? "", /^sha256:/);
    const stranger = { ...entry.partner, serverName: "stranger.test" as typeof entry.partner.serverName };
    assert.equal(
      scopeOf(["homeserver"], stranger, { registry }).policy,
      null,
      "the policy kept it out already",
    );
  });
});
