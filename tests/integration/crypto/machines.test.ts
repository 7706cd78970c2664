import assert from "node:assert/strict";
import { test } from "node:test";
import { GhostSide, KeyServer, Person } from "../../support/crypto-world.ts";
import { machinesScene } from "../../support/machines.ts";

const GHOST = "@agent_docs:a.test";
const ALICE = "@alice:a.test";
const ROOM = "!room:a.test";

test("a ghost reads what a person encrypts, and the person reads its answer", async (t) => {
  const scene = await machinesScene(t);
  const server = new KeyServer();
  const ghost = new GhostSide(server, scene.start().machines, GHOST);
  await ghost.create();
  const alice = await Person.join(server, ALICE);
  await ghost.follow(ALICE);
  await alice.share(ROOM, GHOST);

  assert.deepEqual(await ghost.receive(), { roomsWithNewKeys: [ROOM] });
  const decrypted = await ghost.machines.decrypt(ghost.ghost, await alice.say(ROOM, "a question"));
  assert.equal(decrypted.kind, "decrypted");
  assert.deepEqual(decrypted.kind === "decrypted" && decrypted.content, {
    msgtype: "m.text",
    body: "a question",
  });

  const sealed = await ghost.say(ROOM, "an answer", ALICE);
  await alice.follow(GHOST);
  await alice.sync();
  assert.deepEqual((await alice.read(ROOM, GHOST, sealed))["content"], {
    msgtype: "m.text",
    body: "an answer",
  });
});
