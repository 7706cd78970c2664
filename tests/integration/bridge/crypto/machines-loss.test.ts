import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { serialize } from "node:v8";
import type { DeviceTrustPolicy, EncryptedRoomEvent } from "../../../../src/bridge/crypto/decrypt-event.ts";
import { encodeKey } from "../../../../src/bridge/crypto/idb-keys.ts";
import { GhostMachine } from "../../../../src/bridge/crypto/machine.ts";
import { loadStore } from "../../../../src/bridge/crypto/machines.ts";
import { createRecordCache } from "../../../../src/bridge/crypto/store-records.ts";
import { StoreWriter } from "../../../../src/bridge/crypto/store-writer.ts";
import { ContentKeys } from "../../../../src/bridge/ledger/content-keys.ts";
import { systemClock, systemRandom } from "../../../../src/domain/clock.ts";
import type { GhostMxid } from "../../../../src/domain/identifiers.ts";
import { pollUntil } from "../../../../src/runtime/concurrency.ts";
import {
  asEvent,
  GhostSide,
  KeyServer,
  type MachinesScene,
  machinesScene,
  Person,
  storeKey,
} from "../../../support/crypto-world.ts";
import { databaseText } from "../../../support/database.ts";
import { interrupted } from "../../../support/ledger.ts";

const GHOST = "@agent_docs:a.test";
const OTHER_GHOST = "@agent_math:a.test";
const ALICE = "@alice:a.test";
const ROOM = "!room:a.test";

const PANICKING = new URL("./panicking-thread.ts", import.meta.url);

interface Pair {
  readonly server: KeyServer;
  readonly ghost: GhostSide;
  readonly alice: Person;
}

async function pair(scene: MachinesScene, options: Parameters<MachinesScene["start"]>[0] = {}) {
  const server = new KeyServer();
  const started = scene.start(options);
  const ghost = new GhostSide(server, started.machines, GHOST);
  await ghost.create();
  const alice = await Person.join(server, ALICE);
  await ghost.track(ALICE);
  return { server, ghost, alice, ...started };
}

/** Alice says something with a new session, whose key waits at the homeserver. */
async function newSession({ alice }: Pick<Pair, "alice">, body: string): Promise<EncryptedRoomEvent> {
  await alice.machine.invalidateGroupSession(alice.room(ROOM));
  await alice.share(ROOM, GHOST);
  return await alice.say(ROOM, body);
}

const storeRow = async (scene: MachinesScene) =>
  (await scene.database.pool.query("SELECT fence::int, sealed_key FROM bridge_crypto_stores")).rows[0] as {
    fence: number;
    sealed_key: Buffer;
  };

describe("machines and their stores under failure", () => {
  it("a store is made once, and only where there is none", async (t) => {
    const scene = await machinesScene(t);
    const { machines } = scene.start();
    const ghost = GHOST as GhostMxid;
    assert.deepEqual(await machines.open(ghost, "GHOST", "load"), { kind: "no_store" });
    assert.equal((await machines.open(ghost, "GHOST", "create")).kind, "opened");
    assert.deepEqual(await machines.open(ghost, "GHOST", "create"), { kind: "store_exists" });
    assert.deepEqual(await machines.open(ghost, "OTHER", "create"), { kind: "store_exists" });
  });

  it("a store that was never finished is begun anew", async (t) => {
    const scene = await machinesScene(t);
    await scene.database.pool.query(
      `INSERT INTO bridge_crypto_stores (ghost_mxid, device_id, sealed_key, created_at)
     VALUES ($1, 'OLD', '\\x00', now())`,
      [GHOST],
    );
    const { machines } = scene.start();
    const ghost = GHOST as GhostMxid;
    assert.deepEqual(await machines.open(ghost, "OLD", "load"), { kind: "no_store" });
    assert.equal((await machines.open(ghost, "GHOST", "create")).kind, "opened");
    assert.equal((await machines.open(ghost, "GHOST", "load")).kind, "opened");
  });

  it("another device's store, or one that no key unseals, is foreign and stays unchanged", async (t) => {
    const scene = await machinesScene(t);
    const ghost = GHOST as GhostMxid;
    const first = scene.start().machines;
    await first.open(ghost, "GHOST", "create");
    const before = await storeRow(scene);
    assert.deepEqual(await scene.start().machines.open(ghost, "OTHER", "load"), { kind: "foreign" });
    const wrongKey = scene.start({ keys: storeKey(2) }).machines;
    assert.deepEqual(await wrongKey.open(ghost, "GHOST", "load"), { kind: "foreign" });
    assert.deepEqual(await storeRow(scene), before);
    assert.deepEqual(await first.outgoing(ghost).then((requests) => requests.length > 0), true);
  });

  it("a store is foreign when its records were encrypted with another store's key", async (t) => {
    const scene = await machinesScene(t);
    const { machines } = scene.start();
    const ghosts = [GHOST, OTHER_GHOST] as GhostMxid[];
    for (const ghost of ghosts) {
      await machines.open(ghost, "GHOST", "create");
      await machines.shut(ghost);
    }
    const { pool } = scene.database;
    await pool.query("DELETE FROM bridge_crypto_records WHERE ghost_mxid = $1", [GHOST]);
    await pool.query("UPDATE bridge_crypto_records SET ghost_mxid = $1", [GHOST]);
    assert.deepEqual(await machines.open(GHOST as GhostMxid, "GHOST", "load"), { kind: "foreign" });
  });

  it("a new first key seals the store from the next opening on", async (t) => {
    const scene = await machinesScene(t);
    const ghost = GHOST as GhostMxid;
    const old = scene.start();
    const made = await old.machines.open(ghost, "GHOST", "create");
    await old.machines.close();
    const both = scene.start({ keys: `${storeKey(2)}\n${storeKey(1)}` });
    assert.deepEqual(await both.machines.open(ghost, "GHOST", "load"), made);
    await both.machines.close();
    const newOnly = scene.start({ keys: storeKey(2) });
    assert.deepEqual(await newOnly.machines.open(ghost, "GHOST", "load"), made);
  });

  it("opening a store shuts out its earlier holder, whose writes are refused from then on", async (t) => {
    const scene = await machinesScene(t);
    const old = await pair(scene);
    const lostSession = await newSession(old, "who reads this?");
    const keys = old.server.take(GHOST, "GHOST");
    const next = scene.start().machines;
    await next.open(old.ghost.ghost, "GHOST", "load");

    await assert.rejects(old.ghost.receive(keys), { code: "device_unavailable" });
    assert.deepEqual(old.lost, [{ ghost: GHOST, why: "fence_lost" }]);
    assert.deepEqual(await old.ghost.machines.decrypt(old.ghost.ghost, lostSession), { kind: "unavailable" });
    const now = new GhostSide(old.server, next, GHOST);
    assert.equal((await next.decrypt(now.ghost, lostSession)).kind, "missing_key", "nothing was written");
    await now.receive(keys);
    assert.equal((await next.decrypt(now.ghost, lostSession)).kind, "decrypted");
  });

  it("received keys are durable when connections break", async (t) => {
    const scene = await machinesScene(t);
    const { ghost, alice } = await pair(scene);
    const said: EncryptedRoomEvent[] = [];
    for (let round = 0; round < 5; round++) {
      said.push(await newSession({ alice }, `round ${round}`));
      await scene.database.pool.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name = 'drawbridge-machines' AND datname = current_database()`,
      );
      await ghost.receive();
    }
    await ghost.machines.open(ghost.ghost, "GHOST", "load");
    for (const event of said)
      assert.equal((await ghost.machines.decrypt(ghost.ghost, event)).kind, "decrypted");
  });

  it("a store is laid out although its connection breaks meanwhile", async (t) => {
    const scene = await machinesScene(t);
    // A sequence keeps its number when the transaction is lost.
    await scene.database.pool.query(`
      CREATE SEQUENCE attempts;
      CREATE FUNCTION break_connection() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF nextval('attempts') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
        RETURN NEW;
      END $$;
      CREATE TRIGGER break_connection BEFORE UPDATE OF databases ON bridge_crypto_stores
        FOR EACH ROW EXECUTE FUNCTION break_connection()`);
    const { machines } = scene.start();
    assert.equal((await machines.open(GHOST as GhostMxid, "GHOST", "create")).kind, "opened");
    const { rows } = await scene.database.pool.query("SELECT last_value::int AS attempts FROM attempts");
    assert.deepEqual(rows, [{ attempts: 2 }]);
    assert.equal((await machines.open(GHOST as GhostMxid, "GHOST", "load")).kind, "opened");
  });

  it("receiving rejects when the database cannot commit, and the machine goes on from its store", async (t) => {
    const scene = await machinesScene(t);
    const { ghost, alice, server, lost } = await pair(scene);
    const said = await newSession({ alice }, "not now");
    const keys = server.take(GHOST, "GHOST");
    // Whatever opens the machine again must find the table meanwhile.
    await scene.database.pool.query(`
      CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no space'; END $$;
      CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON bridge_crypto_records FOR EACH ROW EXECUTE FUNCTION refuse()`);
    await assert.rejects(ghost.receive(keys), { code: "device_unavailable" });
    await scene.database.pool.query("DROP TRIGGER refuse ON bridge_crypto_records");
    const decrypt = () => ghost.machines.decrypt(ghost.ghost, said);
    // Until it was opened again.
    const times = { withinMs: 10_000, everyMs: 20 };
    const before = await pollUntil(systemClock, times, decrypt, ({ kind }) => kind !== "unavailable");
    assert.equal(before.kind, "missing_key");
    await ghost.receive(keys);
    assert.equal((await ghost.machines.decrypt(ghost.ghost, said)).kind, "decrypted");
    assert.deepEqual(lost, []);
  });

  it("a call of which any read failed is rejected, and what it was given is read after it is delivered again", async (t) => {
    const scene = await machinesScene(t);
    const server = new KeyServer();
    const made = scene.start().machines;
    const ghost = new GhostSide(server, made, GHOST);
    await ghost.create();
    const { pool, url } = scene.database;
    const clock = { now: () => systemClock.now(), sleep: () => Promise.resolve() };
    const storeKeys = ContentKeys.parse(storeKey(1));
    let readsLeft = Number.POSITIVE_INFINITY;
    const failing = interrupted(pool, (statement) => {
      if (/^crypto_records?(_by_\w+)?$/.test(statement) && readsLeft-- <= 0)
        throw new Error(`no database at ${url}`);
    });
    const policy: DeviceTrustPolicy = { senderDevices: "allow_all", verifiedIdentities: [] };
    /** The machine without a thread, on a database that answers so many reads more. */
    const open = async () => {
      const on = { pool, storeKeys, clock, random: systemRandom };
      const claim = await loadStore(on, ghost.ghost, "GHOST");
      assert.ok(claim.kind === "claimed");
      readsLeft = Number.POSITIVE_INFINITY;
      const stores = {
        pool: failing,
        writer: new StoreWriter(failing, clock),
        cache: createRecordCache(),
        clock,
      };
      return GhostMachine.open(claim.store, policy, stores);
    };
    const nothing = {
      changedUsers: [],
      leftUsers: [],
      oneTimeKeyCounts: undefined,
      unusedFallbackKeys: undefined,
    };
    let failed = 0;
    for (const answered of [0, 1, 2, 3, 4, 5, Number.POSITIVE_INFINITY]) {
      // Each time a new person's first message, which makes an Olm session and a room key.
      const person = await Person.join(server, `@person${answered}:a.test`);
      await person.share(ROOM, GHOST);
      const event = await person.say(ROOM, "read me");
      const changes = { ...nothing, toDevice: server.take(GHOST, "GHOST") };
      const machine = await open();
      readsLeft = answered;
      const received = await machine.receive(changes).then(
        () => true,
        () => false,
      );
      const hadEnough = readsLeft >= 0;
      assert.equal(received, hadEnough, `with ${answered} reads answered`);
      if (!received) {
        failed += 1;
        await assert.rejects(machine.receive(changes), { code: "database_unavailable" });
      }
      await machine.close();
      const again = await open();
      await again.receive(changes);
      assert.equal((await again.decrypt(event)).kind, "decrypted", `after a failure at read ${answered}`);
      await again.close();
    }
    assert.equal(failed, 6);
  });

  it("a panic ends its thread alone: its ghosts are opened again, those of the other thread go on", async (t) => {
    const scene = await machinesScene(t);
    const { ghost, alice, server, machines, lost } = await pair(scene, {
      threads: 2,
      threadEntry: PANICKING,
    });
    const other = new GhostSide(server, machines, OTHER_GHOST);
    await other.create();
    const said = await newSession({ alice }, "before");
    await ghost.receive();

    const broken = asEvent(ROOM, ALICE, { ...(said.raw["content"] as object), note: "PANIC" });
    const failing = machines.decrypt(ghost.ghost, broken);
    assert.ok(Array.isArray(await machines.outgoing(other.ghost)), "the other thread answers");
    assert.deepEqual(await failing, { kind: "unavailable" });
    assert.equal(
      (await machines.decrypt(ghost.ghost, said)).kind,
      "decrypted",
      "calls wait for the new thread",
    );
    // An event that ends its thread each time is given up.
    const outcomes = [];
    for (let attempt = 0; attempt < 3; attempt++)
      outcomes.push((await machines.decrypt(ghost.ghost, broken)).kind);
    assert.deepEqual(outcomes, ["unavailable", "unavailable", "refused"]);
    assert.equal((await machines.decrypt(ghost.ghost, said)).kind, "decrypted");
    assert.deepEqual(lost, []);
  });

  it("an event that ends its thread each time is given up, and none of those that were decrypted beside it", async (t) => {
    const scene = await machinesScene(t);
    const { ghost, alice, machines } = await pair(scene, { threadEntry: PANICKING });
    const said = [await newSession({ alice }, "one"), await newSession({ alice }, "two")];
    await ghost.receive();
    const broken = asEvent(ROOM, ALICE, { ...(said[0]?.raw["content"] as object), note: "PANIC" });
    const all = [broken, ...said];
    const kinds = async () =>
      (await Promise.all(all.map((event) => machines.decrypt(ghost.ghost, event)))).map(({ kind }) => kind);
    let last = await kinds();
    for (let attempt = 1; attempt < 4; attempt++) last = await kinds();
    assert.deepEqual(last, ["refused", "decrypted", "decrypted"]);
  });

  it("a to-device message on which the library panics is skipped, and those beside it are taken in", async (t) => {
    const scene = await machinesScene(t);
    const { ghost, alice, server } = await pair(scene, { threadEntry: PANICKING });
    const said = [await newSession({ alice }, "one"), await newSession({ alice }, "two")];
    const [one, two] = server.take(GHOST, "GHOST");
    assert.ok(one !== undefined && two !== undefined);
    const roomsWithNewKeys = await ghost.receive([one, { sender: ALICE, type: "PANIC", content: {} }, two]);
    assert.deepEqual(roomsWithNewKeys, [ROOM]);
    for (const event of said)
      assert.equal((await ghost.machines.decrypt(ghost.ghost, event)).kind, "decrypted");
  });

  it("messages that cannot be parsed are skipped alone", async (t) => {
    const scene = await machinesScene(t);
    const { ghost, alice, server } = await pair(scene);
    const said = await newSession({ alice }, "between");
    const [key] = server.take(GHOST, "GHOST");
    assert.ok(key !== undefined);
    const hostile = [
      {},
      { type: 7 },
      { sender: ALICE },
      { type: "m.room_key", sender: "nobody", content: "x" },
      [],
    ];
    await ghost.receive([...hostile, key, ...hostile] as Record<string, unknown>[]);
    assert.equal((await ghost.machines.decrypt(ghost.ghost, said)).kind, "decrypted");
  });

  it("the store holds no name of a room, a session or a key in plain text [AUD-2]", async (t) => {
    const scene = await machinesScene(t);
    const { ghost, alice } = await pair(scene);
    const said = await newSession({ alice }, "canary");
    await ghost.receive();
    await ghost.perform(await ghost.machines.crossSign(ghost.ghost));
    await ghost.say(ROOM, "canary", ALICE);
    const { pool } = scene.database;
    const text = async () => {
      const tables = await databaseText(async (query) => (await pool.query(query)).rows as never[]);
      return tables.get("bridge_crypto_records") ?? "";
    };
    const stored = await text();
    assert.ok(stored.includes(ALICE), "user IDs stand in the clear, so the search sees keys");
    assert.ok(stored.includes("ciphertext"), "and it sees values");
    const { session_id } = said.raw["content"] as { session_id: string };
    for (const secret of ["canary", ROOM, session_id, alice.machine.identityKeys.curve25519.toBase64()]) {
      assert.ok(!stored.includes(secret), secret);
    }
    // What the search would find, if the machine stored it.
    const databases = { planted: { "a canary": ["ünïcode canary 話"] } };
    await pool.query(
      `INSERT INTO bridge_crypto_records (ghost_mxid, object_store, record_key, value) VALUES ($1, 's', $2, $3)`,
      [GHOST, encodeKey(`key of ${ROOM}`), serialize(databases)],
    );
    const planted = await text();
    for (const secret of ["a canary", "ünïcode canary 話", `key of ${ROOM}`]) {
      assert.ok(planted.includes(secret), secret);
    }
  });
});
