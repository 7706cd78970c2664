import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { EncryptedRoomEvent } from "../../../../src/bridge/crypto/decrypt-event.ts";
import type { RoomId, UserId } from "../../../../src/domain/identifiers.ts";
import { asEvent, GhostSide, KeyServer, machinesScene, Person } from "../../../support/crypto-world.ts";

const GHOST = "@agent_docs:a.test";
const ALICE = "@alice:a.test";
const BOB = "@bob:a.test";
const ROOM = "!room:a.test";

/** A ghost whose keys are published, and Alice, who follow each other. */
async function pair(ghost: GhostSide, server: KeyServer): Promise<Person> {
  await ghost.create();
  const alice = await Person.join(server, ALICE);
  await ghost.track(ALICE);
  return alice;
}

describe("Machines", () => {
  it("a ghost decrypts what a person sends, and the person decrypts its answer", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    const alice = await pair(ghost, server);
    await alice.share(ROOM, GHOST);

    assert.deepEqual(await ghost.receive(), [ROOM]);
    const decrypted = await ghost.machines.decrypt(ghost.ghost, await alice.say(ROOM, "a question"));
    assert.equal(decrypted.kind, "decrypted");
    if (decrypted.kind !== "decrypted") return;
    assert.equal(decrypted.type, "m.room.message");
    assert.deepEqual(decrypted.content, { msgtype: "m.text", body: "a question" });

    const sealed = await ghost.say(ROOM, "an answer", ALICE);
    await alice.track(GHOST);
    await alice.sync();
    const read = await alice.read(ROOM, GHOST, sealed);
    assert.deepEqual(read["content"], { msgtype: "m.text", body: "an answer" });
  });

  it("a process that replaces another has the same device, and decrypts with its keys [ENC-2]", async (t) => {
    const scene = await machinesScene(t);
    const server = new KeyServer();
    const first = scene.start();
    const before = new GhostSide(server, first.machines, GHOST);
    const alice = await pair(before, server);
    const opened = await before.machines.open(before.ghost, before.device, "load");
    await alice.share(ROOM, GHOST);
    await before.receive();
    await first.machines.close();

    const after = new GhostSide(server, scene.start().machines, GHOST);
    const again = await after.machines.open(after.ghost, after.device, "load");
    assert.equal(again.kind, "opened");
    assert.deepEqual(again, opened);
    const decrypted = await after.machines.decrypt(after.ghost, await alice.say(ROOM, "still there?"));
    assert.equal(decrypted.kind, "decrypted");
    const wanted = await after.machines.outgoing(after.ghost);
    assert.ok(
      !wanted.some(({ kind }) => kind === "keys_upload"),
      "a device that is known is not uploaded again",
    );
  });

  it("what a killed process took in and its successor takes in again does no harm, in any order [ENC-8] [DEL-9]", async (t) => {
    const scene = await machinesScene(t);
    const server = new KeyServer();
    const first = scene.start();
    const before = new GhostSide(server, first.machines, GHOST);
    const alice = await pair(before, server);
    const shared = async (room: string) => {
      await alice.share(room, GHOST);
      return server.take(GHOST, before.device);
    };
    const mail = await shared(ROOM);
    assert.deepEqual(await before.receive(mail), [ROOM]);
    await first.machines.close();

    const after = new GhostSide(server, scene.start().machines, GHOST);
    await after.machines.open(after.ghost, after.device, "load");
    assert.deepEqual(await after.receive(mail), []);
    assert.deepEqual(
      await after.machines.outgoing(after.ghost),
      [],
      "the session with Alice is not begun anew",
    );
    const [second, third] = [await shared("!second:a.test"), await shared("!third:a.test")];
    assert.deepEqual(await after.receive([...third, ...mail]), ["!third:a.test"]);
    assert.deepEqual(await after.receive([...third, ...second]), ["!second:a.test"]);
    for (const room of [ROOM, "!second:a.test", "!third:a.test"]) {
      const { kind } = await after.machines.decrypt(after.ghost, await alice.say(room, "a question"));
      assert.equal(kind, "decrypted", room);
    }
  });

  it("a ghost's device is cross-signed once, and stays so in the next process [ENC-2]", async (t) => {
    const scene = await machinesScene(t);
    const server = new KeyServer();
    const first = scene.start();
    const ghost = new GhostSide(server, first.machines, GHOST);
    const alice = await pair(ghost, server);
    const requests = await ghost.machines.crossSign(ghost.ghost);
    assert.deepEqual(
      requests.map(({ kind }) => kind),
      ["signing_keys_upload", "signature_upload"],
    );
    // Asked again before anything was sent, it is the same identity.
    const [repeated] = await ghost.machines.crossSign(ghost.ghost);
    assert.equal(repeated?.body, requests[0]?.body);
    await ghost.perform(requests);
    await ghost.machines.receive(ghost.ghost, {
      toDevice: [],
      changedUsers: [GHOST as UserId],
      leftUsers: [],
      oneTimeKeyCounts: undefined,
      unusedFallbackKeys: undefined,
    });
    await ghost.work();
    assert.deepEqual(await ghost.machines.crossSign(ghost.ghost), []);
    await first.machines.close();

    const next = new GhostSide(server, scene.start().machines, GHOST);
    await next.machines.open(next.ghost, next.device, "load");
    assert.deepEqual(await next.machines.crossSign(next.ghost), []);
    await alice.track(GHOST);
    const [device] = (await alice.machine.getUserDevices(alice.id(GHOST))).devices();
    assert.equal(device?.isCrossSignedByOwner(), true);
  });

  it("a machine uploads one-time keys by their count, and a fallback key when none is left", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    await ghost.create();
    const uploads = async () =>
      (await ghost.machines.outgoing(ghost.ghost)).filter(({ kind }) => kind === "keys_upload");
    const reportCounts = (
      oneTimeKeyCounts: Record<string, number> | undefined,
      unusedFallbackKeys?: string[],
    ) =>
      ghost.machines.receive(ghost.ghost, {
        toDevice: [],
        changedUsers: [],
        leftUsers: [],
        oneTimeKeyCounts,
        unusedFallbackKeys,
      });

    const keysOf = (upload: { body: string } | undefined) =>
      JSON.parse(upload?.body ?? "{}") as Record<string, Record<string, unknown>>;

    await reportCounts(undefined);
    assert.deepEqual(await uploads(), [], "nothing was said: nothing is made");
    await reportCounts({ signed_curve25519: 50 }, []);
    const first = await uploads();
    assert.equal(Object.keys(keysOf(first[0])["fallback_keys"] ?? {}).length, 1, "there was none yet");
    await ghost.perform(first);
    await reportCounts({ signed_curve25519: 50 }, ["signed_curve25519"]);
    assert.deepEqual(await uploads(), []);
    await reportCounts({}, []);
    const [upload] = await uploads();
    assert.ok(Object.keys(keysOf(upload)["one_time_keys"] ?? {}).length > 0, "none is left: more are made");
  });

  it("the same ciphertext under another event ID has the same digest, another message a new one [ENC-9]", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    const alice = await pair(ghost, server);
    await alice.share(ROOM, GHOST);
    await ghost.receive();
    const digest = async (event: ReturnType<typeof asEvent>) => {
      const decrypted = await ghost.machines.decrypt(ghost.ghost, event);
      if (decrypted.kind !== "decrypted") throw new Error(decrypted.kind);
      return decrypted.indexDigest.toString("hex");
    };
    const one = await alice.say(ROOM, "pay");
    const replayed = asEvent(ROOM, ALICE, one.raw["content"] as Record<string, unknown>);
    assert.notEqual(replayed.event, one.event);
    assert.equal(await digest(replayed), await digest(one));
    assert.notEqual(await digest(await alice.say(ROOM, "pay")), await digest(one));
  });

  it("an event in another user's name is refused, also when the owner's devices become known later [ENC-9]", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    const alice = await pair(ghost, server);
    await Person.join(server, BOB);
    await ghost.track(BOB);
    await alice.share(ROOM, GHOST);
    await ghost.receive();
    const said = await alice.say(ROOM, "I am Bob");
    const forged = asEvent(ROOM, BOB, said.raw["content"] as Record<string, unknown>);
    assert.deepEqual(await ghost.machines.decrypt(ghost.ghost, forged), {
      kind: "refused",
      reason: "sender_mismatch",
    });
  });

  it("an event of a room is not decrypted as one of another room", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    const alice = await pair(ghost, server);
    await alice.share(ROOM, GHOST);
    await ghost.receive();
    const said = await alice.say(ROOM, "here");
    const moved = asEvent("!elsewhere:a.test", ALICE, said.raw["content"] as Record<string, unknown>);
    assert.equal((await ghost.machines.decrypt(ghost.ghost, moved)).kind, "missing_key");
  });

  it("an event that is no Megolm event is undecryptable, and one without its key has a missing key", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    const alice = await pair(ghost, server);
    await alice.share(ROOM, BOB);
    const said = await alice.say(ROOM, "not for you");
    assert.deepEqual(await ghost.machines.decrypt(ghost.ghost, said), {
      kind: "missing_key",
      withheld: undefined,
    });
    const sealed = said.raw["content"] as Record<string, unknown>;
    for (const content of [
      {},
      { ...sealed, algorithm: "m.olm.v1.curve25519-aes-sha2" },
      { ...sealed, ciphertext: 7 },
      { ...sealed, ciphertext: "" },
      { ...sealed, ciphertext: "AAAA" },
      { ...sealed, session_id: undefined },
      { ...sealed, session_id: "\ud800" },
    ]) {
      assert.deepEqual(await ghost.machines.decrypt(ghost.ghost, asEvent(ROOM, ALICE, content)), {
        kind: "refused",
        reason: "undecryptable",
      });
    }
  });

  it("the code of a sender that withholds its key is returned, and nobody else's code for that session [ENC-6]", async (t) => {
    const server = new KeyServer();
    const scene = await machinesScene(t);
    const ghost = new GhostSide(server, scene.start().machines, GHOST);
    const alice = await pair(ghost, server);
    await alice.share(ROOM, BOB);
    const said = await alice.say(ROOM, "not for you");
    const stored = async () =>
      (await scene.database.pool.query("SELECT FROM bridge_crypto_records")).rowCount;
    const before = await stored();
    const { session_id, sender_key } = said.raw["content"] as Record<string, unknown>;
    const withhold = (sender: string, code: string) => {
      const named = { algorithm: "m.megolm.v1.aes-sha2", room_id: ROOM, session_id, sender_key };
      return ghost.receive([{ sender, type: "m.room_key.withheld", content: { ...named, code } }]);
    };
    const withheld = async () => {
      const { kind, ...rest } = await ghost.machines.decrypt(ghost.ghost, said);
      assert.equal(kind, "missing_key");
      return rest;
    };
    await withhold(BOB, "m.blacklisted");
    assert.deepEqual(await withheld(), { withheld: undefined });
    await withhold(ALICE, "m.unverified");
    assert.deepEqual(await withheld(), { withheld: "m.unverified" });
    await withhold(BOB, "m.no_olm");
    assert.deepEqual(await withheld(), { withheld: "m.unverified" });
    assert.equal(await stored(), before, "nothing of it is stored, because anybody may send any number");
  });

  it("a forwarded key is not taken, also from the device that made it [ENC-9]", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    const alice = await pair(ghost, server);
    await alice.share(ROOM, GHOST);
    server.take(GHOST, "GHOST");
    const said = await alice.say(ROOM, "lost on the way");
    const { session_id, sender_key } = said.raw["content"] as Record<string, unknown>;
    const request = {
      action: "request",
      requesting_device_id: "GHOST",
      request_id: "r1",
      body: { algorithm: "m.megolm.v1.aes-sha2", room_id: ROOM, session_id, sender_key: sender_key ?? "" },
    };
    server.send(GHOST, "m.room_key_request", { [ALICE]: { PHONE: request } });
    await alice.sync();
    const answers = server.take(GHOST, "GHOST");
    assert.equal(answers.length, 1, "she answers the request");
    assert.deepEqual(await ghost.receive(answers), []);
    assert.equal((await ghost.machines.decrypt(ghost.ghost, said)).kind, "missing_key");
  });

  it("the policy can require devices that their owner has signed, or compared identities [ENC-9]", async (t) => {
    const scene = await machinesScene(t);
    const server = new KeyServer();
    const alice = await Person.join(server, ALICE);
    const ask = async (ghost: GhostSide) => {
      await ghost.track(ALICE);
      await alice.track(ghost.ghost);
      await alice.machine.invalidateGroupSession(alice.room(ROOM));
      await alice.share(ROOM, ghost.ghost);
      await ghost.receive();
      const decryption = await ghost.machines.decrypt(ghost.ghost, await alice.say(ROOM, "believe me"));
      return decryption.kind === "refused" ? decryption.reason : decryption.kind;
    };
    const ghostWith = async (
      name: string,
      senderDevices: "cross_signed" | "verified",
      masterKey?: string,
    ) => {
      const verifiedIdentities = masterKey === undefined ? [] : [{ user: ALICE, masterKey }];
      const { machines } = scene.start({ policy: { senderDevices, verifiedIdentities } });
      const ghost = new GhostSide(server, machines, name);
      await ghost.create();
      return ghost;
    };
    const strict = await ghostWith("@agent_strict:a.test", "cross_signed");
    assert.equal(await ask(strict), "device_not_trusted");
    const masterKey = await alice.crossSign();
    await strict.machines.receive(strict.ghost, {
      toDevice: [],
      changedUsers: [ALICE as UserId],
      leftUsers: [],
      oneTimeKeyCounts: undefined,
      unusedFallbackKeys: undefined,
    });
    await strict.work();
    assert.equal(await ask(strict), "decrypted");
    assert.equal(await ask(await ghostWith("@agent_none:a.test", "verified")), "device_not_trusted");
    const other = Buffer.alloc(32, 5).toString("base64").replace("=", "");
    assert.equal(await ask(await ghostWith("@agent_other:a.test", "verified", other)), "device_not_trusted");
    assert.equal(await ask(await ghostWith("@agent_known:a.test", "verified", masterKey)), "decrypted");
  });

  it("an event of an unknown device is decrypted only once the device is known [ENC-9]", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    await ghost.create();
    const alice = await Person.join(server, ALICE);
    await alice.share(ROOM, GHOST);
    // As by a client that does not send its device's keys along: the homeserver knows no such device either.
    const keys = server.devices[ALICE];
    delete server.devices[ALICE];
    await ghost.receive();
    const said = await alice.say(ROOM, "who am I?");
    const unknown = await ghost.machines.decrypt(
      ghost.ghost,
      asEvent(ROOM, BOB, said.raw["content"] as never),
    );
    assert.notEqual(unknown.kind, "decrypted", "in another's name it is never believed");
    if (keys !== undefined) server.devices[ALICE] = keys;
    await ghost.track(ALICE);
    assert.equal((await ghost.machines.decrypt(ghost.ghost, said)).kind, "decrypted");
  });

  it("a relation outside the ciphertext is part of the decrypted content", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    const alice = await pair(ghost, server);
    await alice.share(ROOM, GHOST);
    await ghost.receive();
    const said = await alice.say(ROOM, "in a thread");
    const relation = { rel_type: "m.thread", event_id: "$root" };
    const content = { ...(said.raw["content"] as object), "m.relates_to": relation };
    const decrypted = await ghost.machines.decrypt(ghost.ghost, asEvent(ROOM, ALICE, content));
    assert.deepEqual(decrypted.kind === "decrypted" && decrypted.content["m.relates_to"], relation);
  });

  it("a ghost forgets the sessions of a room that it left, and of no other [ENC-10]", async (t) => {
    const scene = await machinesScene(t);
    const server = new KeyServer();
    const { machines } = scene.start();
    const ghost = new GhostSide(server, machines, GHOST);
    const alice = await pair(ghost, server);
    const rooms = ["!left:a.test", "!stayed:a.test"] as const;
    const said: EncryptedRoomEvent[] = [];
    for (const room of rooms) {
      for (let session = 0; session < 3; session++) {
        await alice.machine.invalidateGroupSession(alice.room(room));
        await alice.share(room, GHOST);
        said.push(await alice.say(room, `session ${session}`));
      }
    }
    await ghost.receive();
    const kinds = () =>
      Promise.all(said.map(async (event) => (await machines.decrypt(ghost.ghost, event)).kind));
    assert.deepEqual(new Set(await kinds()), new Set(["decrypted"]));
    const count = async () =>
      (
        await scene.database.pool.query(
          "SELECT FROM bridge_crypto_records WHERE object_store LIKE 'inbound%'",
        )
      ).rowCount;
    assert.equal(await count(), 6);
    await machines.forgetRoom(ghost.ghost, rooms[0] as RoomId);
    assert.equal(await count(), 3);
    const expected = [...Array(3).fill("missing_key"), ...Array(3).fill("decrypted")];
    assert.deepEqual(await kinds(), expected);
    await machines.open(ghost.ghost, ghost.device, "load");
    assert.deepEqual(await kinds(), expected);
    // When it is back, it takes new keys.
    await alice.machine.invalidateGroupSession(alice.room(rooms[0]));
    await alice.share(rooms[0], GHOST);
    await ghost.receive();
    const back = await machines.decrypt(ghost.ghost, await alice.say(rooms[0], "back"));
    assert.equal(back.kind, "decrypted");
  });
});
