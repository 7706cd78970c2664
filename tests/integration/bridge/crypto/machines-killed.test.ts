import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import type { EncryptedRoomEvent } from "../../../../src/bridge/crypto/decrypt-event.ts";
import { GhostSide, KeyServer, machinesScene, Person } from "../../../support/crypto-world.ts";

const GHOST = "@agent_docs:a.test";
const ALICE = "@alice:a.test";
const PROCESS = fileURLToPath(new URL("./machine-process.ts", import.meta.url));
const LIVES = 4;
const KEYS_PER_LIFE = 12;
/** Under way when a life ends; some of them may be acknowledged before. */
const FURTHER = 3;
const KEYS = LIVES * (KEYS_PER_LIFE + FURTHER);

/** Runs a process that takes in the first of `messages`, and kills it as soon as a life's keys are durable. */
async function liveAndDie(url: string, messages: readonly object[]) {
  const child = spawn(process.execPath, [PROCESS, url, GHOST, "GHOST"], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.stdin.on("error", () => {});
  const durable: number[] = [];
  let opened: unknown;
  for await (const line of createInterface({ input: child.stdout })) {
    if (opened === undefined) {
      opened = JSON.parse(line);
      const given = messages.slice(0, KEYS_PER_LIFE + FURTHER);
      child.stdin.write(given.map((message) => `${JSON.stringify(message)}\n`).join(""));
    } else {
      durable.push(Number(line));
      if (durable.length === KEYS_PER_LIFE) child.kill("SIGKILL");
    }
  }
  await ended;
  return { opened, durable };
}

describe("machines of a process that is killed", () => {
  it("a process loses no key that it acknowledged when it is killed again and again while it receives keys [ENC-2]", async (t) => {
    const scene = await machinesScene(t);
    const server = new KeyServer();
    const maker = scene.start();
    const made = new GhostSide(server, maker.machines, GHOST);
    await made.create();
    const identity = await made.machines.open(made.ghost, "GHOST", "load");
    await maker.machines.close();

    const alice = await Person.join(server, ALICE);
    const said: EncryptedRoomEvent[] = [];
    for (let room = 0; room < KEYS; room++) {
      await alice.share(`!room${room}:a.test`, GHOST);
      said.push(await alice.say(`!room${room}:a.test`, `in room ${room}`));
    }
    const keys = server.take(GHOST, "GHOST");
    assert.equal(keys.length, KEYS);

    // Each life is given everything anew from the last acknowledged key on, as a homeserver would.
    let acknowledged = 0;
    for (let life = 0; life < LIVES; life++) {
      const { opened, durable } = await liveAndDie(scene.database.url, keys.slice(acknowledged));
      assert.deepEqual(opened, identity, "the same device");
      assert.deepEqual(
        durable,
        durable.map((_, index) => index),
        "in order",
      );
      acknowledged += durable.length;
    }
    assert.ok(acknowledged >= LIVES * KEYS_PER_LIFE && acknowledged <= KEYS);

    const last = new GhostSide(server, scene.start().machines, GHOST);
    assert.deepEqual(await last.machines.open(last.ghost, "GHOST", "load"), identity);
    for (const event of said.slice(0, acknowledged)) {
      assert.equal((await last.machines.decrypt(last.ghost, event)).kind, "decrypted");
    }
    // Delivered a second time, what is known is harmless and what was cut off is taken.
    await last.receive(keys);
    for (const event of said)
      assert.equal((await last.machines.decrypt(last.ghost, event)).kind, "decrypted");
  });
});
