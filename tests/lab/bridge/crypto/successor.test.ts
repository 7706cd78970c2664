// Two bridges on one database, on a real homeserver: the one that was started last serves, with the same device.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { systemClock } from "../../../../src/domain/clock.ts";
import {
  devicesOf,
  encryptedBridge,
  eventually,
  GHOST,
  questionTo,
} from "../../../support/encrypted-bridge.ts";
import { EncryptingClient, encryptedRoom, repliesTo } from "../../../support/encrypting-client.ts";
import { startSynapse, type TestSynapse } from "../../../support/synapse.ts";

let synapse: TestSynapse;
before(async () => {
  synapse = await startSynapse();
});
after(() => synapse.dispose());

/** Neither is to do anything about the other; that it stays so for minutes is proved with time injected. */
const QUIET_MS = 5_000;

describe("a bridge that succeeds another", () => {
  it("a bridge that is started beside another takes over its ghosts, and keeps them [ENC-2] [DEL-9]", async (t) => {
    const bridge = await encryptedBridge(t, synapse);
    const older = await bridge.spawn();
    const alice = await EncryptingClient.start(await synapse.user("alice"));
    t.after(() => alice.close());
    const room = await encryptedRoom(alice.user, [GHOST]);
    await bridge.settled(room);
    const devices = await devicesOf(alice.user);
    const ask = async (body: string) => await alice.reply(room, await alice.send(room, questionTo(body)));
    await ask("the older one");

    const newer = await bridge.spawnAnother();
    bridge.reach(newer);
    await eventually("the newer one serves", async () => {
      const unready = await bridge.unready(newer);
      if (unready.length > 0) throw new Error(unready.join());
      return true;
    });
    assert.ok((await bridge.unready()).includes("leadership"), "the older one stands in line");
    await ask("the newer one");
    // Neither takes anything from the other.
    const stores = "SELECT fence::int, epoch::int FROM bridge_crypto_stores";
    const settled = await bridge.rows(stores);
    await systemClock.sleep(QUIET_MS);
    assert.deepEqual(await bridge.rows(stores), settled);
    assert.deepEqual(await bridge.unready(newer), []);
    await ask("still the newer one");

    newer.running.child.kill("SIGKILL");
    bridge.reach();
    await ask("the older one again");
    assert.deepEqual(await bridge.unready(), []);
    assert.deepEqual(await devicesOf(alice.user), devices);
    const answers = (await alice.messages(room)).filter(({ sender }) => sender === GHOST).map(repliesTo);
    assert.equal(new Set(answers).size, 4);
    assert.equal(answers.length, 4, "each question once");
    assert.equal(older.child.exitCode, null);
  });
});
