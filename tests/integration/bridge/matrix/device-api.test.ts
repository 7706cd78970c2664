// A ghost's device between the bridge and a homeserver that is ill, or knows it no more.
import assert from "node:assert/strict";
import { describe, it, type TestContext } from "node:test";
import { Ghosts } from "../../../../src/bridge/matrix/ghosts.ts";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { ghostSide } from "../../../support/ghosts.ts";
import { type Script, scriptedHomeserver, WELL } from "../../../support/http-server.ts";
import { ghost } from "../../../support/ledger.ts";

const UNKNOWN_DEVICE = { status: 400, body: { errcode: "M_UNKNOWN_DEVICE" } };

async function fixture(t: TestContext, hadKeys: boolean, script: Script = WELL) {
  const homeserver = await scriptedHomeserver(t, script);
  const side = ghostSide(t, homeserver.url);
  const ghosts = new Ghosts({
    homeserver: side.homeserver,
    ledger: { ghosts: { ...side.ledger.ghosts, hadKeys: async () => hadKeys } },
    clock: side.clock,
    random: systemRandom,
  });
  const deleted: string[] = [];
  ghosts.onDeviceDeleted = (who) => deleted.push(who);
  const puts = () =>
    homeserver.requests.filter(({ method, path }) => method === "PUT" && path.includes("/devices/"));
  return { homeserver, side, ghosts, deleted, puts };
}

describe("ghosts' devices at the homeserver", () => {
  it("a device that had keys is never put again, neither by a new process nor when the homeserver does not know it [ENC-2]", async (t) => {
    const { ghosts, side, deleted, puts } = await fixture(t, true, ({ path }) =>
      path.endsWith("/whoami") ? UNKNOWN_DEVICE : { body: {} },
    );
    assert.equal((await ghosts.ensureGhost(ghost())).kind, "ok");
    const acted = await ghosts.acting(ghost(), (actor) => side.homeserver.whoami(actor));
    assert.deepEqual([acted.kind, acted.kind === "retry" && acted.cause], ["retry", "ghost_refused"]);
    assert.deepEqual(deleted, [ghost()]);
    assert.equal(puts().length, 0);
  });

  it("a device without keys that the homeserver forgot is put again", async (t) => {
    let known = false;
    const { ghosts, side, deleted, puts } = await fixture(t, false, ({ path, method }) => {
      if (method === "PUT" && path.includes("/devices/")) known = true;
      if (!path.endsWith("/whoami")) return { body: {} };
      return known ? { body: { user_id: ghost() } } : UNKNOWN_DEVICE;
    });
    assert.equal((await ghosts.ensureGhost(ghost())).kind, "ok");
    known = false;
    const acted = await ghosts.acting(ghost(), (actor) => side.homeserver.whoami(actor));
    assert.equal(acted.kind, "ok");
    assert.equal(puts().length, 2);
    assert.deepEqual(deleted, []);
  });

  it("a request under way does not put the old device again after a reset [ENC-2]", async (t) => {
    const { ghosts, side, puts } = await fixture(t, false);
    const made = await ghosts.ensureGhost(ghost());
    assert.ok(made.kind === "ok");
    const before = puts().length;
    const recorded = await side.ledger.ghosts.ensureDevice(ghost(), "", 0);
    (side.ledger.recorded as Map<unknown, unknown>).set(ghost(), { ...recorded, deviceId: "NEW" });
    assert.equal((await ghosts.restoreDevice(made.value)).kind, "retry");
    assert.equal(puts().length, before);
    const next = await ghosts.ensureGhost(ghost());
    assert.equal(next.kind === "ok" && next.value.deviceId, "NEW");
  });

  it("answers about devices are parsed, or count as no answer", async (t) => {
    const answers = new Map<string, unknown>();
    const { side } = await fixture(t, false, ({ path }) => {
      const found = [...answers].find(([end]) => path.endsWith(end));
      return found === undefined ? { status: 404, body: { errcode: "M_NOT_FOUND" } } : { body: found[1] };
    });
    const { devices } = side.homeserver;
    const actor = { ghost: ghost(), deviceId: "DEVICE" };
    assert.deepEqual(await devices.deviceRecord(ghost()), { kind: "ok", value: undefined });
    assert.equal((await devices.deleteDevice(ghost(), "DEVICE")).kind, "ok");
    for (const odd of [{}, { device_id: "D", epoch: "-1" }, { device_id: "D", epoch: 3 }]) {
      answers.set("/org.drawbridge.device", odd);
      assert.equal((await devices.deviceRecord(ghost())).kind, "retry");
    }
    answers.set("/org.drawbridge.device", { device_id: "D", epoch: "18" });
    assert.deepEqual(await devices.deviceRecord(ghost()), {
      kind: "ok",
      value: { deviceId: "D", epoch: 18 },
    });

    answers.set("/sync", {
      next_batch: "s2",
      to_device: { events: ["text", { type: "m.x" }, null] },
      device_lists: { changed: ["@b:b.test", 7] },
    });
    const page = await devices.toDeviceSince(actor, "s1");
    assert.deepEqual(page, {
      kind: "ok",
      value: {
        next: "s2",
        skipped: 2,
        isFull: true,
        changes: {
          toDevice: [{ type: "m.x" }],
          changedUsers: ["@b:b.test"],
          leftUsers: [],
          oneTimeKeyCounts: undefined,
          unusedFallbackKeys: undefined,
        },
      },
    });
    answers.set("/sync", { to_device: {} });
    assert.equal((await devices.toDeviceSince(actor, undefined)).kind, "retry");

    answers.set("/keys/query", {
      device_keys: { [ghost()]: { DEVICE: { keys: { "ed25519:DEVICE": "ed" } } } },
    });
    assert.deepEqual(await devices.publishedDevice(ghost(), "DEVICE"), { kind: "ok", value: undefined });
  });

  it("each catchup request differs, because a homeserver repeats its answer to an identical one", async (t) => {
    const { side, homeserver } = await fixture(t, false, () => ({ body: { next_batch: "s1" } }));
    const actor = { ghost: ghost(), deviceId: "DEVICE" };
    for (let read = 0; read < 3; read++) await side.homeserver.devices.toDeviceSince(actor, "s0");
    assert.equal(new Set(homeserver.requests.map(({ query }) => query.get("filter"))).size, 3);
  });
});
