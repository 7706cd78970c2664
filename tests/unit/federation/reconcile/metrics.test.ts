import assert from "node:assert/strict";
import type { AddressInfo } from "node:net";
import { describe, it } from "node:test";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import { unmanagedPlane } from "../../../../src/federation/planes/plane.ts";
import { reconcilerMetrics, serveMetrics } from "../../../../src/federation/reconcile/metrics.ts";
import type { Revision } from "../../../../src/federation/repository/repository.ts";
import { openStateFolder } from "../../../../src/federation/state/folder.ts";
import { readPlane, writeHead, writePlane } from "../../../../src/federation/state/plane-records.ts";
import { filePlanes } from "../../../support/control-repository.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

const AT = "2026-01-02T03:04:05.000Z";
const MARK = { revision: "a".repeat(40) as Revision, digest: `sha256:${"0".repeat(64)}`, at: AT };
const LEFT = { partner: "b.test", subject: "!room", reason: "stale_at_home", hint: "Restart it." };

describe("the reconciler's metrics", () => {
  it("a room whose ACL stays unenforced raises its series until an attempt ends in force [PLN-2]", async (t) => {
    const state = openStateFolder(temporaryFolder(t), systemRandom);
    const { revision } = MARK;
    writeHead(state, { version: 1, accepted: { revision, at: AT }, refused: null });
    const registry = reconcilerMetrics({ state, planes: filePlanes(temporaryFolder(t)).planes });
    const record = readPlane(state, "rooms");
    const applied = { ...MARK, firstAt: AT, reason: null, attempts: 0, retryAt: null };
    const exposed = async () =>
      (await registry.metrics()).split("\n").filter((line) => line.includes('plane="rooms"'));

    writePlane(state, {
      ...record,
      applied: { ...applied, outcome: "incomplete", outOfReach: [LEFT, { ...LEFT, subject: "!other" }] },
      driftCheck: { succeededAt: AT, differences: 2 },
    });
    assert.deepEqual((await exposed()).toSorted(), [
      'drawbridge_federation_drift_checked_timestamp_seconds{plane="rooms"} 1767323045',
      'drawbridge_federation_drift_differences{plane="rooms"} 2',
      'drawbridge_federation_out_of_reach{plane="rooms",reason="stale_at_home"} 2',
      'drawbridge_federation_plane_in_force{plane="rooms"} 0',
    ]);
    assert.doesNotMatch(await registry.metrics(), /b\.test|!room/);

    writePlane(state, {
      ...record,
      applied: { ...applied, outcome: "in_force", outOfReach: [] },
      driftCheck: { succeededAt: AT, differences: null },
    });
    assert.deepEqual((await exposed()).toSorted(), [
      'drawbridge_federation_drift_checked_timestamp_seconds{plane="rooms"} 1767323045',
      'drawbridge_federation_plane_in_force{plane="rooms"} 1',
    ]);

    const newer = "b".repeat(40) as Revision;
    writeHead(state, { version: 1, accepted: { revision: newer, at: AT }, refused: null });
    assert.match(await registry.metrics(), /plane_in_force\{plane="rooms"\} 0/, "of an earlier revision");
  });

  it("since when no drift check has succeeded is told while none does, and also after a restart [OPS-2]", async (t) => {
    const state = openStateFolder(temporaryFolder(t), systemRandom);
    const { planes } = filePlanes(temporaryFolder(t));
    const checkedAt = async (registry: ReturnType<typeof reconcilerMetrics>) =>
      /checked_timestamp_seconds\{plane="rooms"\} (\d+)/.exec(await registry.metrics())?.[1];
    const registry = reconcilerMetrics({ state, planes });
    assert.equal(await checkedAt(registry), "0");
    writePlane(state, { ...readPlane(state, "rooms"), driftCheck: { succeededAt: AT, differences: null } });
    assert.equal(await checkedAt(registry), "1767323045");
  });

  it("serveMetrics answers GET /metrics alone, and names an address that is taken", async (t) => {
    const state = openStateFolder(temporaryFolder(t), systemRandom);
    const planes = { ...filePlanes(temporaryFolder(t)).planes, gateway: unmanagedPlane("gateway") };
    const registry = reconcilerMetrics({ state, planes });
    const server = await serveMetrics(registry, { host: "127.0.0.1", port: 0 });
    t.after(() => server.close());
    const { port } = server.address() as AddressInfo;
    const answer = await fetch(`http://127.0.0.1:${port}/metrics`);
    const text = await answer.text();
    assert.match(text, /^drawbridge_federation_plane_in_force\{plane="transport"\} 0$/m);
    assert.doesNotMatch(text, /gateway/, "nothing is said of a plane that is not managed here [ADO-1]");
    assert.equal((await fetch(`http://127.0.0.1:${port}/`)).status, 404);
    await assert.rejects(
      serveMetrics(registry, { host: "127.0.0.1", port }),
      (error: unknown) => error instanceof DrawbridgeError && error.code === "program_failed",
    );
  });
});
