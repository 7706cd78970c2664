// Several bridge processes on one database, on a real homeserver: each takes transactions, and a ghost's device is the
// same whichever of them owns its machine.
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

/** None of them is to do anything about the others meanwhile. */
const QUIET_MS = 3_000;

describe("two bridge processes on one database", () => {
  it("answer encrypted questions whichever the homeserver reaches, and one goes on when the other is killed [ENC-2] [DEL-9]", async (t) => {
    const bridge = await encryptedBridge(t, synapse);
    const first = await bridge.spawn();
    const alice = await EncryptingClient.start(await synapse.user("alice"));
    t.after(() => alice.close());
    const room = await encryptedRoom(alice.user, [GHOST]);
    await bridge.settled(room);
    const devices = await devicesOf(alice.user);
    const ask = async (body: string) => await alice.reply(room, await alice.send(room, questionTo(body)));
    await ask("the owner is reached");

    const second = await bridge.spawnAnother();
    await eventually("the second takes transactions", async () => {
      const unready = await bridge.unready(second);
      if (unready.length > 0) throw new Error(unready.join());
      return true;
    });
    assert.deepEqual(await bridge.unready(), [], "the first one, too");
    const gauges = ["drawbridge_processes", "drawbridge_ghosts_owned", 'drawbridge_slots{kind="free"}'];
    assert.deepEqual(await Promise.all(gauges.map((name) => bridge.metric(name))), [2, 1, 64]);
    bridge.reach(second);
    // A process that cannot run for a second loses what it owned, and takes part again under a new number: on a machine
    // that is too busy for it the fence rises, and that is right.
    const machineAndProcesses = async () => {
      const sql = "SELECT fence, last_value AS processes FROM bridge_crypto_stores, bridge_process";
      return (await bridge.rows<{ fence: string; processes: string }>(sql))[0];
    };
    let last = await machineAndProcesses();
    await ask("the other is reached");
    const bob = await EncryptingClient.start(await synapse.user("bob"));
    t.after(() => bob.close());
    const another = await encryptedRoom(bob.user, [GHOST]);
    await bridge.settled(another);
    await bob.reply(another, await bob.send(another, questionTo("with a key that came to the other")));
    const fences = await eventually("no process hung for a second", async () => {
      await systemClock.sleep(QUIET_MS);
      const [before, now] = [last, await machineAndProcesses()];
      last = now;
      return before?.processes === now?.processes ? [before?.fence, now?.fence] : undefined;
    });
    assert.equal(fences[1], fences[0], "neither takes the machine from the other");
    assert.deepEqual(await bridge.rows("SELECT FROM bridge_device_inbox"), []);

    first.child.kill("SIGKILL");
    const killedAt = systemClock.now();
    await ask("the owner was killed");
    t.diagnostic(`answered ${systemClock.now() - killedAt} ms after the owner was killed`);
    assert.deepEqual(await devicesOf(alice.user), devices);
    const answers = (await alice.messages(room)).filter(({ sender }) => sender === GHOST).map(repliesTo);
    assert.equal(new Set(answers).size, 3);
    assert.equal(answers.length, 3, "each question once");
  });
});
