// Which devices can read what a ghost's machine encrypts.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { systemClock } from "../../../../src/domain/clock.ts";
import type { RoomId, UserId } from "../../../../src/domain/identifiers.ts";
import { GhostSide, KeyServer, machinesScene, Person } from "../../../support/crypto-world.ts";

const GHOST = "@agent_docs:a.test";

const OTHER_GHOST = "@agent_math:a.test";

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

describe("Machines that encrypt answers", () => {
  it("answers can be read only by devices that the policy believes, and notices between them by all [ENC-7] [ENC-9]", async (t) => {
    const scene = await machinesScene(t);
    const server = new KeyServer();
    // Alice has signed her phone and not her tablet; nobody has compared Bob's identity; Carol has none.
    const phone = await Person.join(server, ALICE, "PHONE");
    const masterKey = await phone.crossSign();
    const tablet = await Person.join(server, ALICE, "TABLET");
    const bob = await Person.join(server, BOB);
    await bob.crossSign();
    const carol = await Person.join(server, "@carol:a.test");
    const readers = { phone, tablet, bob, carol };
    const users = [ALICE, BOB, carol.user];
    const canRead = async (senderDevices: "allow_all" | "cross_signed" | "verified") => {
      const verifiedIdentities = [{ user: ALICE, masterKey }];
      const { machines } = scene.start({ policy: { senderDevices, verifiedIdentities } });
      const ghost = new GhostSide(server, machines, `@agent_${senderDevices}:a.test`);
      await ghost.create();
      await ghost.perform(await machines.crossSign(ghost.ghost));
      const room = `!${senderDevices}`;
      const sealed = [
        await ghost.say(room, "an answer", ...users),
        await ghost.notify(room, "a notice", ...users),
        await ghost.say(room, "another answer", ...users),
      ];
      const able: string[][] = [[], [], []];
      for (const [name, person] of Object.entries(readers)) {
        await person.track(ghost.ghost);
        await person.sync();
        for (const [index, event] of sealed.entries()) {
          const read = await person.read(room, ghost.ghost, event).catch(() => undefined);
          if (read !== undefined) able[index]?.push(name);
        }
      }
      return able;
    };
    const all = ["phone", "tablet", "bob", "carol"];
    assert.deepEqual(await canRead("allow_all"), [all, all, all]);
    assert.deepEqual(await canRead("cross_signed"), [["phone", "bob"], all, ["phone", "bob"]]);
    assert.deepEqual(await canRead("verified"), [["phone"], all, ["phone"]]);
  });

  it("members who left get no key of later events", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    const alice = await pair(ghost, server);
    const bob = await Person.join(server, BOB);
    await ghost.say(ROOM, "to both", ALICE, BOB);
    await bob.track(GHOST);
    await bob.sync();
    const later = await ghost.say(ROOM, "to Alice alone", ALICE);
    await bob.sync();
    await alice.track(GHOST);
    await alice.sync();
    await assert.rejects(bob.read(ROOM, GHOST, later));
    assert.deepEqual((await alice.read(ROOM, GHOST, later))["content"], {
      msgtype: "m.text",
      body: "to Alice alone",
    });
  });

  it("a ghost forwards no key on request, also not to a device that had it while a member", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    await ghost.create();
    const bob = await Person.join(server, BOB);
    await ghost.track(BOB);
    const sealed = await ghost.say(ROOM, "an answer", BOB);
    await bob.track(GHOST);
    await bob.sync();
    await bob.read(ROOM, GHOST, sealed);
    const { session_id, sender_key } = sealed;
    const content = {
      action: "request",
      body: { algorithm: "m.megolm.v1.aes-sha2", room_id: ROOM, session_id, sender_key },
      request_id: "r1",
      requesting_device_id: "PHONE",
    };
    await ghost.receive([{ sender: BOB, type: "m.room_key_request", content }]);
    const wanted = await ghost.machines.outgoing(ghost.ghost);
    assert.deepEqual(
      wanted.filter(({ kind }) => kind === "to_device"),
      [],
    );
  });

  it("a ghost answers no verification, however many somebody begins [ENC-7] [DEL-10]", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    await pair(ghost, server);
    const begun = ["one", "two", "three"].map((id) => ({
      sender: ALICE,
      type: "m.key.verification.request",
      content: {
        from_device: "PHONE",
        methods: ["m.sas.v1"],
        timestamp: systemClock.now(),
        transaction_id: id,
      },
    }));
    await ghost.receive(begun);
    assert.deepEqual(await ghost.machines.outgoing(ghost.ghost), []);
  });

  it("an event is encrypted only right after its session was shared, and the room's rotation is kept", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    await pair(ghost, server);
    const room = ROOM as RoomId;
    const content = { msgtype: "m.text", body: "x" };
    const seal = () => ghost.machines.encrypt(ghost.ghost, room, "m.room.message", content);
    await assert.rejects(seal(), { code: "device_unavailable" });
    const settings = { rotationMessages: 2, rotationMs: 3_600_000, forAllDevices: false };
    const sessions: unknown[] = [];
    for (let message = 0; message < 5; message++) {
      await ghost.track(ALICE);
      await ghost.perform(await ghost.machines.missingSessions(ghost.ghost, [ALICE as UserId]));
      await ghost.perform(await ghost.machines.shareRoomKey(ghost.ghost, room, [ALICE as UserId], settings));
      sessions.push((await seal())["session_id"]);
      await assert.rejects(seal(), { code: "device_unavailable" });
    }
    assert.equal(new Set(sessions).size, 3, "two messages to a session");
  });

  it("ghosts in two threads do not share keys", async (t) => {
    const server = new KeyServer();
    const { machines } = (await machinesScene(t)).start({ threads: 2 });
    const one = new GhostSide(server, machines, GHOST);
    const two = new GhostSide(server, machines, OTHER_GHOST);
    const alice = await pair(one, server);
    await two.create();
    await two.track(ALICE);
    await alice.share(ROOM, GHOST);
    await Promise.all([one.receive(), two.receive()]);
    const said = await alice.say(ROOM, "to one of you");
    assert.equal((await machines.decrypt(one.ghost, said)).kind, "decrypted");
    assert.equal((await machines.decrypt(two.ghost, said)).kind, "missing_key");
    await alice.share(ROOM, GHOST, OTHER_GHOST);
    await two.receive();
    assert.equal((await machines.decrypt(two.ghost, await alice.say(ROOM, "to both"))).kind, "decrypted");
  });

  it("a device that the homeserver has not announced yet can read the answer to its question [ENC-7]", async (t) => {
    const server = new KeyServer();
    const ghost = new GhostSide(server, (await machinesScene(t)).start().machines, GHOST);
    await pair(ghost, server);
    // Logged in a moment ago: the ghost follows its owner, and was told of no change.
    const laptop = await Person.join(server, ALICE, "LAPTOP");
    await laptop.share(ROOM, GHOST);
    await ghost.receive();
    const decrypted = await ghost.machines.decrypt(ghost.ghost, await laptop.say(ROOM, "a question"));
    assert.equal(decrypted.kind, "decrypted");

    const sealed = await ghost.say(ROOM, "an answer", ALICE);
    await laptop.track(GHOST);
    await laptop.sync();
    const read = await laptop.read(ROOM, GHOST, sealed);
    assert.deepEqual(read["content"], { msgtype: "m.text", body: "an answer" });
  });
});
