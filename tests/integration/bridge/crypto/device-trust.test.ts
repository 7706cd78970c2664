// Which devices a machine believes after their owner has replaced the identity that signed them.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { NO_CHANGES } from "../../../../src/bridge/matrix/device-changes.ts";
import type { UserId } from "../../../../src/domain/identifiers.ts";
import { GhostSide, KeyServer, machinesScene, Person } from "../../../support/crypto-world.ts";

const ALICE = "@alice:a.test" as UserId;
const ROOM = "!room:a.test";

describe("a device whose owner has replaced the identity that signed it", () => {
  for (const senderDevices of ["cross_signed", "verified"] as const) {
    it(`is believed no more under \`${senderDevices}\`, also with a session that it shared before [ENC-9]`, async (t) => {
      const server = new KeyServer();
      const lost = await Person.join(server, ALICE, "LOST");
      const verifiedIdentities = [{ user: ALICE, masterKey: await lost.crossSign() }];
      const { machines } = (await machinesScene(t)).start({ policy: { senderDevices, verifiedIdentities } });
      const ghost = new GhostSide(server, machines, "@agent_docs:a.test");
      await ghost.create();
      await ghost.track(ALICE);
      await lost.share(ROOM, ghost.ghost);
      await ghost.receive();
      const ask = async () => await machines.decrypt(ghost.ghost, await lost.say(ROOM, "a question"));
      assert.equal((await ask()).kind, "decrypted");
      const other = await Person.join(server, ALICE, "OTHER");
      await other.crossSign();
      await machines.receive(ghost.ghost, { ...NO_CHANGES, changedUsers: [ALICE] });
      await ghost.work();
      assert.deepEqual(await ask(), { kind: "refused", reason: "device_not_trusted" });
    });
  }
});
