// What an operator does about ghosts' devices, while the bridge runs.

import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import type { DeviceReport } from "../../../../src/bridge/device-admin.ts";
import { ExitCode } from "../../../../src/cli/lib/exit-codes.ts";
import {
  devicesOf,
  encryptedBridge,
  eventually,
  GHOST,
  questionTo,
} from "../../../support/encrypted-bridge.ts";
import { EncryptingClient, encryptedRoom } from "../../../support/encrypting-client.ts";
import { startSynapse, type TestSynapse } from "../../../support/synapse.ts";
import { ROOT, run } from "../../../support/temporary.ts";

let synapse: TestSynapse;
before(async () => {
  synapse = await startSynapse();
});
after(() => synapse.dispose());

const drawbridge = (...words: readonly string[]) => run(join(ROOT, "bin", "drawbridge"), [...words]);

describe("the commands on ghosts' devices", () => {
  it("a deleted device stops its ghost, every command reports it, and a reset gives a new one [ENC-2]", async (t) => {
    // The question that nobody can read any more holds up the next one for so long.
    const bridge = await encryptedBridge(t, synapse, { encryption: { keyWait: "10s" } });
    await bridge.start();
    const config = ["--config", bridge.configFile];
    const status = async () => {
      const ended = await drawbridge("ghost", "device", "status", "--json", ...config);
      const [report] = JSON.parse(ended.stdout) as DeviceReport[];
      return { code: ended.code, report, stderr: ended.stderr };
    };
    const alice = await EncryptingClient.start(await synapse.user("alice"));
    t.after(() => alice.close());
    const room = await encryptedRoom(alice.user, [GHOST]);
    await bridge.settled(room);
    await eventually("the device", async () => ((await status()).code === ExitCode.ok ? true : undefined));
    const first = (await status()).report;
    assert.deepEqual(
      [first?.ghost, first?.stopped, first?.store, first?.homeserver, first?.crossSigned],
      [GHOST, null, true, "as_stored", true],
    );
    const table = await drawbridge("ghost", "device", "status", ...config);
    assert.match(
      table.stdout,
      new RegExp(`^GHOST .*\n${GHOST} +${first?.device} +in use +yes +as stored +yes`),
    );
    // Whether keys come with transactions is found out within a minute.
    await eventually("all is well", async () =>
      (await drawbridge("doctor", ...config)).code === ExitCode.ok ? true : undefined,
    );

    await deleteDevice(synapse, first?.device ?? "");
    const lost = await alice.send(room, questionTo("is anybody there?"));
    await eventually("the stop", async () =>
      (await status()).report?.stopped === "device_deleted" ? true : undefined,
    );
    const stopped = await status();
    assert.equal(stopped.code, ExitCode.failed);
    assert.match(stopped.stderr, /drawbridge ghost device reset/);
    const doctor = await drawbridge("doctor", ...config);
    assert.equal(doctor.code, ExitCode.failed);
    assert.match(doctor.stdout, /PROBLEM .*device_device_deleted/);
    assert.match(await bridge.metrics(), /ghost_devices_stopped_total\{reason="device_deleted"\} 1/);
    // A new process makes no new device either.
    await bridge.stop();
    await bridge.start();
    await eventually("the stop", async () =>
      (await status()).report?.stopped === "device_deleted" ? true : undefined,
    );
    assert.deepEqual(await devicesOf(alice.user), []);

    const unsure = await drawbridge("ghost", "device", "reset", "docs", ...config);
    assert.deepEqual([unsure.code, unsure.stdout], [ExitCode.usage, ""]);
    assert.equal(
      (await drawbridge("ghost", "device", "reset", "nobody", "--yes", ...config)).code,
      ExitCode.usage,
    );
    const reset = await drawbridge("ghost", "device", "reset", "docs", "--yes", "--json", ...config);
    assert.equal(reset.code, ExitCode.ok, reset.stderr);
    const made = JSON.parse(reset.stdout) as { from: string; to: string };
    assert.equal(made.from, first?.device);

    // Until the bridge has made it there is nothing wrong with it.
    await eventually("the new device", async () => {
      const { code, report } = await status();
      return code === ExitCode.ok && report?.homeserver === "as_stored" ? true : undefined;
    });
    assert.deepEqual(await devicesOf(alice.user), [made.to]);
    const question = await alice.send(room, questionTo("and now?"));
    assert.notEqual(question, lost);
    const answer = await alice.reply(room, question);
    assert.equal(answer.sender, GHOST);
  });

  async function deleteDevice({ url, asToken }: TestSynapse, device: string): Promise<void> {
    const path = `${url}/_matrix/client/v3/devices/${device}?user_id=${encodeURIComponent(GHOST)}`;
    const headers = { authorization: `Bearer ${asToken}` };
    const answer = await fetch(path, { method: "DELETE", headers, body: "{}" });
    assert.equal(answer.status, 200);
  }
});
