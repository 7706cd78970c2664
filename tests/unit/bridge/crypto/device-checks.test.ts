// Whether keys come with transactions: what is concluded from a message that a ghost sends itself.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import {
  createKeyDeliveryCheck,
  deviceReadiness,
  type KeyDelivery,
} from "../../../../src/bridge/crypto/device-checks.ts";
import type { DeviceStatus } from "../../../../src/bridge/crypto/ghost-device.ts";
import type { DeviceChanges } from "../../../../src/bridge/matrix/device-changes.ts";
import { systemRandom } from "../../../../src/domain/clock.ts";
import type { GhostMxid } from "../../../../src/domain/identifiers.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const GHOST = "@agent_docs:a.test" as GhostMxid;
const SECOND_MS = 1_000;

function fixture(outcome: "ok" | "retry" = "ok") {
  const clock = new ManualClock(Date.UTC(2026, 0, 1));
  const sent: { type: string; content: Readonly<Record<string, unknown>> }[] = [];
  const check = createKeyDeliveryCheck(clock, systemRandom, async (_ghost, type, content) => {
    sent.push({ type, content });
    return outcome === "ok"
      ? { kind: "ok", value: undefined }
      : { kind: "retry", cause: "network", afterMs: 1_000, errcode: undefined };
  });
  const arrives = (changes: Partial<DeviceChanges> = {}, sender: string = GHOST) => {
    const last = sent.at(-1);
    const change = {
      toDevice: [{ sender, ...last }],
      changedUsers: [],
      leftUsers: [],
      oneTimeKeyCounts: { signed_curve25519: 50 },
      unusedFallbackKeys: undefined,
      ...changes,
    };
    check.received(new Map([[GHOST, change]]));
  };
  return { clock, sent, check, arrives };
}

describe("KeyDeliveryCheck and deviceReadiness", () => {
  it("a message that comes back proves for an hour that keys come with transactions", async () => {
    const { check, arrives, sent, clock } = fixture();
    await check.check(GHOST);
    assert.equal(check.state.result, "unknown");
    arrives({}, "@mallory:b.test");
    assert.equal(check.state.result, "unknown", "by another sender it shows nothing");
    arrives({ toDevice: [{ sender: GHOST, type: sent[0]?.type, content: { nonce: "of another process" } }] });
    assert.equal(check.state.result, "unknown");
    arrives();
    assert.equal(check.state.result, "works");
    await clock.advance(3_599 * SECOND_MS);
    await check.check(GHOST);
    assert.equal(sent.length, 1);
  });

  it("a repeated success renews the time of its last observation", async () => {
    const { check, arrives, sent, clock } = fixture();
    await check.check(GHOST);
    arrives();
    assert.deepEqual(check.state, { result: "works", observedAt: clock.now() });
    await clock.advance(3_600 * SECOND_MS);
    await check.check(GHOST);
    assert.equal(sent.length, 2);
    assert.equal(check.state.result, "works", "until it is known otherwise");
    arrives();
    assert.deepEqual(check.state, { result: "works", observedAt: clock.now() });
  });

  it("a homeserver that was restarted without its flags is detected", async () => {
    const { check, arrives, clock } = fixture();
    await check.check(GHOST);
    arrives();
    await clock.advance(3_600 * SECOND_MS);
    for (let round = 0; round < 4; round++) {
      await check.check(GHOST);
      await clock.advance(20 * SECOND_MS);
    }
    assert.equal(check.state.result, "no_to_device");
  });

  it("several messages that never come back report the missing flag, one alone does not", async () => {
    const { check, sent, clock, arrives } = fixture();
    const results: KeyDelivery[] = [];
    for (let round = 0; round < 4; round++) {
      await check.check(GHOST);
      results.push(check.state.result);
      await clock.advance(20 * SECOND_MS);
    }
    assert.deepEqual(results, ["unknown", "unknown", "unknown", "no_to_device"]);
    assert.equal(sent.length, 4);
    await check.check(GHOST);
    assert.equal(sent.length, 4, "from then on it is made rarely");
    arrives();
    assert.equal(check.state.result, "works");
  });

  it("a message that comes without key counts reports the flag for those", async () => {
    const { check, arrives } = fixture();
    await check.check(GHOST);
    arrives({ oneTimeKeyCounts: undefined });
    assert.equal(check.state.result, "no_key_counts");
  });

  it("a message that could not be sent changes no result", async () => {
    const { check, clock, sent } = fixture("retry");
    for (let round = 0; round < 10; round++) {
      await check.check(GHOST);
      await clock.advance(30 * SECOND_MS);
    }
    assert.equal(check.state.result, "unknown");
    assert.equal(sent.length, 10);
  });

  const status = (changes: Partial<DeviceStatus> = {}): DeviceStatus => ({
    ghost: GHOST,
    deviceId: "DEVICE",
    state: "ready",
    stopped: undefined,
    crossSigned: true,
    catchupFailing: false,
    ...changes,
  });

  const AT = Date.UTC(2026, 0, 1);

  const checks = (statuses: readonly DeviceStatus[], result: KeyDelivery = "works", configured = [GHOST]) => {
    const times = result === "unknown" ? undefined : AT;
    const delivery = () => ({ result, observedAt: times });
    return deviceReadiness({ statuses: () => statuses, keyDelivery: delivery }, configured);
  };
  const problems = (...of: Parameters<typeof checks>) => checks(...of).filter(({ ok }) => !ok);

  it("each problem of a ghost's keys is reported with its hint, and none makes the bridge unready", () => {
    assert.deepEqual(problems([status()]), []);
    const broken: readonly [string, readonly DeviceStatus[], KeyDelivery][] = [
      ["device_device_deleted", [status({ state: "stopped", stopped: "device_deleted" })], "works"],
      ["device_keys_published", [status({ state: "starting" })], "works"],
      ["device_keys_published", [], "works"],
      ["devices_cross_signed", [status({ crossSigned: false })], "works"],
      ["key_catchup", [status({ catchupFailing: true })], "works"],
      ["keys_by_transaction", [status()], "no_to_device"],
      ["keys_by_transaction", [status()], "no_key_counts"],
    ];
    for (const [name, statuses, delivery] of broken) {
      const [problem, ...more] = problems(statuses, delivery);
      assert.deepEqual([problem?.name, more, problem?.blocking], [name, [], false]);
      assert.ok((problem?.hint ?? "").length > 20);
    }
  });

  it("each check of a ghost's keys that passes is reported, and an unknown result is not a pass", () => {
    assert.deepEqual(
      checks([status()]).map(({ name, found }) => [name, found]),
      [
        ["device_keys_published", "yes, of 1 ghost"],
        ["devices_cross_signed", "yes, of 1 ghost"],
        ["key_catchup", "yes, of 1 ghost"],
        ["keys_by_transaction", "yes, last observed 2026-01-01T00:00:00.000Z; checked again once an hour"],
      ],
    );
    const [unknown, ...more] = problems([status()], "unknown");
    assert.deepEqual(
      [unknown?.name, unknown?.known, unknown?.blocking, more],
      ["keys_by_transaction", false, false, []],
    );
  });

  it("a process that owns no ghost reports no unknown delivery of keys, because none of its devices can find it out", () => {
    assert.deepEqual(problems([], "unknown", []), []);
    assert.deepEqual(
      problems([], "no_to_device", []).map(({ name }) => name),
      ["keys_by_transaction"],
    );
  });

  it("three ghosts are named when many have the same problem", () => {
    const ghosts = [1, 2, 3, 4, 5].map((one) => `@agent_${one}:a.test` as GhostMxid);
    const statuses = ghosts.map((ghost) => status({ ghost, crossSigned: false }));
    assert.match(problems(statuses, "works", ghosts)[0]?.hint ?? "", /@agent_3:a\.test and 2 more: /);
  });
});
