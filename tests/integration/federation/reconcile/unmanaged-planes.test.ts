// A plane that this organisation does not manage, and one that it begins or ends to manage.

import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { federationStatus } from "../../../../src/federation/containment/federation-status.ts";
import { unmanagedPlane } from "../../../../src/federation/planes/plane.ts";
import { emptyRecord, readPlane, recentDrift } from "../../../../src/federation/state/plane-records.ts";
import { commitRegistry, LIGHTHOUSE } from "../../../support/control-repository.ts";
import { registryFiles } from "../../../support/sample-files.ts";
import { control } from "./pass-repository.ts";

/** Passes over a repository whose gateway plane is managed or not. */
async function withGateway(t: TestContext) {
  const opened = await control(t);
  const { federation, pass } = opened;
  const { gateway } = federation.planes;
  return {
    ...opened,
    manage: (isManaged: boolean) =>
      Object.assign(federation.planes, { gateway: isManaged ? gateway : unmanagedPlane("gateway") }),
    /** How a pass with a check for drift ends on the gateway plane. */
    step: async () => {
      const { planes } = await pass({ force: true, checkDrift: true });
      return planes.find(({ plane }) => plane === "gateway")?.step;
    },
    status: async () => {
      const { planes } = await federationStatus(federation);
      const one = planes.find(({ plane }) => plane === "gateway");
      return [one?.outcome, one?.revision, one?.drift];
    },
  };
}

describe("planes that are not managed here", () => {
  it("a plane counts as in force only while it is managed, and after it was applied [ADO-1]", async (t) => {
    const { manage, step, status, federation, repository, parts } = await withGateway(t);
    const head = await repository.requireHead();
    manage(false);
    for (const _ of ["first", "again"]) {
      assert.equal(await step(), "unmanaged");
      assert.deepEqual(await status(), ["unmanaged", null, null]);
    }

    manage(true);
    assert.deepEqual(await status(), ["never", null, null]);
    assert.equal(await step(), "applied");
    assert.deepEqual(parts.applied, ["gateway"]);
    assert.deepEqual(recentDrift(federation.state, 10), [], "nothing drifted where nothing was applied");
    assert.deepEqual((await status()).slice(0, 2), ["in_force", head]);

    manage(false);
    assert.deepEqual(await status(), ["unmanaged", null, null]);
    assert.equal(await step(), "unmanaged");
    assert.deepEqual(readPlane(federation.state, "gateway"), emptyRecord("gateway"));
  });

  it("an unmanaged plane does not make a change count as closing [ADO-1]", async (t) => {
    const { manage, close, pass, repository } = await withGateway(t);
    manage(false);
    await close("border");
    assert.equal((await pass()).direction, "closing");
    await commitRegistry(repository, new Map([[LIGHTHOUSE, registryFiles().get(LIGHTHOUSE) ?? ""]]));
    assert.equal((await pass()).direction, "opening");
  });
});
