// What other servers' users and devices leave in a ghost's store.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { DeviceId } from "@matrix-org/matrix-sdk-crypto-wasm";
import { loadStore } from "../../../../src/bridge/crypto/machines.ts";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";
import { NO_CHANGES } from "../../../../src/bridge/matrix/device-changes.ts";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import type { UserId } from "../../../../src/domain/identifiers.ts";
import { GhostSide, KeyServer, machinesScene, Person, storeKey } from "../../../support/crypto-world.ts";

const GHOST = "@agent_docs:a.test";
const ALICE = "@alice:a.test";

describe("bounded stores of ghosts", () => {
  it("a ghost that has followed more users than a machine reads opens again, and follows whoever is still there [ENC-10]", async (t) => {
    const ghost = new GhostSide(new KeyServer(), (await machinesScene(t)).start().machines, GHOST);
    await ghost.create();
    const users = Array.from({ length: 50_001 }, (_, index) => `@member${index}:b.test` as UserId);
    await ghost.machines.track(ghost.ghost, users);
    const opened = await ghost.machines.open(ghost.ghost, ghost.device, "load");
    assert.equal(opened.kind, "opened");
    await ghost.machines.track(ghost.ghost, [ALICE as UserId]);
    const [query] = await ghost.machines.outgoing(ghost.ghost);
    assert.deepEqual(Object.keys(JSON.parse(query?.body ?? "{}").device_keys), [ALICE]);
  });

  it("a ghost with more room keys than a machine reads opens again, and finds the one that it needs [ENC-10]", async (t) => {
    const scene = await machinesScene(t);
    const server = new KeyServer();
    const { machines } = scene.start();
    const before = new GhostSide(server, machines, GHOST);
    await before.create();
    const alice = await Person.join(server, ALICE);
    await before.track(ALICE);
    await alice.share("!room:a.test", GHOST);
    await before.receive();
    await machines.close();
    await scene.database.pool.query(
      `INSERT INTO bridge_crypto_records (ghost_mxid, object_store, record_key, value, used_day)
       SELECT ghost_mxid, object_store, '\\x30' || sha256(record_key || int4send(n)) || '\\x1d' || sha256(int4send(n)) || '\\x00',
         'x', used_day
       FROM bridge_crypto_records, generate_series(1, 50001) n WHERE object_store = 'inbound_group_sessions3'`,
    );
    const after = new GhostSide(server, scene.start().machines, GHOST);
    assert.equal((await after.machines.open(after.ghost, after.device, "load")).kind, "opened");
    const said = await alice.say("!room:a.test", "still there?");
    assert.equal((await after.machines.decrypt(after.ghost, said)).kind, "decrypted");
  });

  it("users count as forgotten when the database does not say whether they were [ENC-10]", async (t) => {
    const scene = await machinesScene(t);
    const ghost = new GhostSide(new KeyServer(), scene.start().machines, GHOST);
    await ghost.create();
    const pool = scene.database.pool;
    const query = async (sent: { name: string }) => {
      const answer = await pool.query(sent as never);
      if (sent.name === "crypto_store_forget_tracked") throw new Error("Connection terminated unexpectedly");
      return answer;
    };
    const storeKeys = ContentKeys.parse(storeKey(1));
    const on = {
      pool: { query } as unknown as typeof pool,
      storeKeys,
      clock: systemClock,
      random: systemRandom,
    };
    const claim = await loadStore(on, ghost.ghost, ghost.device);
    assert.equal("hasForgotten" in claim && claim.hasForgotten, true);
  });

  it("what a device offers of rooms' histories is deleted by age, as room keys are [ENC-10]", async (t) => {
    const scene = await machinesScene(t);
    const server = new KeyServer();
    const ghost = new GhostSide(server, scene.start().machines, GHOST);
    await ghost.create();
    const alice = await Person.join(server, ALICE);
    await ghost.track(ALICE);
    await alice.share("!room:a.test", GHOST);
    await ghost.receive();
    const device = await alice.machine.getDevice(alice.id(GHOST), new DeviceId(ghost.device));
    const key = { kty: "oct", key_ops: ["encrypt", "decrypt"], alg: "A256CTR", k: "A".repeat(43), ext: true };
    const hashes = { sha256: "A".repeat(43) };
    const file = { v: "v2", url: "mxc://a.test/history", key, iv: "A".repeat(22), hashes };
    const offer = { room_id: "!any:a.test", file };
    const sealed = await device?.encryptToDeviceEvent("m.room_key_bundle", offer);
    await ghost.receive([{ sender: ALICE, type: "m.room.encrypted", content: JSON.parse(sealed ?? "") }]);
    const { rows } = await scene.database.pool.query(
      "SELECT used_day IS NOT NULL AS ages FROM bridge_crypto_records WHERE object_store = 'received_room_key_bundles'",
    );
    assert.deepEqual(rows, [{ ages: true }]);
  });

  it("what changed of users whom a ghost does not follow costs its machine no write, and of one whom it follows is queried, by a machine that was opened again too [ENC-10] [DEL-10]", async (t) => {
    const scene = await machinesScene(t);
    const server = new KeyServer();
    const first = new GhostSide(server, scene.start().machines, GHOST);
    await first.create();
    await Person.join(server, ALICE);
    await first.track(ALICE);
    const written = async () => {
      const { rows } = await scene.database.pool.query(
        "SELECT max(xmin::text::bigint) AS last FROM bridge_crypto_records",
      );
      return rows[0].last;
    };
    const changed = (ghost: GhostSide, changedUsers: string[], leftUsers: string[] = []) =>
      ghost.machines.receive(ghost.ghost, {
        ...NO_CHANGES,
        changedUsers: changedUsers as UserId[],
        leftUsers: leftUsers as UserId[],
      });
    const queried = async (ghost: GhostSide) => {
      const requests = await ghost.machines.outgoing(ghost.ghost);
      return requests.flatMap(({ body }) => Object.keys(JSON.parse(body).device_keys ?? {}));
    };
    const before = await written();
    await changed(first, ["@mallory:evil.test", "@eve:evil.test"], ["@eve:evil.test"]);
    assert.equal(await written(), before);
    await changed(first, ["@mallory:evil.test", ALICE]);
    assert.deepEqual(await queried(first), [ALICE]);
    await first.work();
    await first.machines.close();

    const again = new GhostSide(server, scene.start().machines, GHOST);
    await again.machines.open(again.ghost, again.device, "load");
    assert.deepEqual(await queried(again), []);
    await changed(again, [ALICE]);
    assert.deepEqual(await queried(again), [ALICE]);
    await again.work();
    await changed(again, [GHOST]);
    assert.deepEqual(await queried(again), [GHOST]);
  });
});
