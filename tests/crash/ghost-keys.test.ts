// A process that takes in room keys is killed at random instants: no key that it acknowledged is lost, and what it did not
// acknowledge is read once it is delivered again, also a sender's first message, which makes an Olm session and a room
// key at once.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { describe, it, type TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import type { EncryptedRoomEvent } from "../../src/bridge/crypto/decrypt-event.ts";
import { GhostSide, KeyServer, machinesScene, Person } from "../support/crypto-world.ts";
import { killsOf } from "../support/kills.ts";

const GHOST = "@agent_docs:a.test";
const PROCESS = fileURLToPath(new URL("../integration/bridge/crypto/machine-process.ts", import.meta.url));
const KILLS = killsOf(200);
/** Longest time from the acknowledgement at which a kill is due until the kill. */
const KILL_MS_MAX = 20;
/** New senders, each of which uses up a one-time key, before new ones are uploaded. */
const SENDERS_PER_UPLOAD = 30;

/**
 * Runs a process that takes in these messages, and kills it shortly after it has acknowledged some of them.
 * Returns how many it acknowledged in all.
 */
async function killedWhileReceiving(
  url: string,
  messages: readonly object[],
  killAt: number,
): Promise<number> {
  const child = spawn(process.execPath, [PROCESS, url, GHOST, "GHOST"], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.stdin.on("error", () => {});
  // The first line says that the machine is open.
  let acknowledged = -1;
  for await (const _ of createInterface({ input: child.stdout })) {
    acknowledged += 1;
    if (acknowledged === 0)
      child.stdin.write(messages.map((message) => `${JSON.stringify(message)}\n`).join(""));
    if (acknowledged === killAt) setTimeout(() => child.kill("SIGKILL"), Math.random() * KILL_MS_MAX);
  }
  await ended;
  assert.ok(acknowledged >= 0, "the machine was opened");
  return acknowledged;
}

async function scene(t: TestContext) {
  const machines = await machinesScene(t);
  const server = new KeyServer();
  /** A process of its own, for as long as `work` takes. */
  const inProcess = async (work: (ghost: GhostSide) => Promise<void>) => {
    const started = machines.start().machines;
    const ghost = new GhostSide(server, started, GHOST);
    await work(ghost);
    await started.close();
  };
  await inProcess((ghost) => ghost.create());
  const load = async (ghost: GhostSide) => {
    assert.equal((await ghost.machines.open(ghost.ghost, "GHOST", "load")).kind, "opened");
  };
  const uploadKeys = () =>
    inProcess(async (ghost) => {
      await load(ghost);
      const none = { toDevice: [], changedUsers: [], leftUsers: [], unusedFallbackKeys: undefined };
      await ghost.machines.receive(ghost.ghost, { ...none, oneTimeKeyCounts: { signed_curve25519: 0 } });
      await ghost.work();
    });
  return { url: machines.database.url, server, inProcess, load, uploadKeys };
}

describe("keys of a ghost whose process is killed", () => {
  it(`loses no key in ${KILLS} kills [ENC-2]`, async (t) => {
    const { url, server, inProcess, load, uploadKeys } = await scene(t);
    const known = await Person.join(server, "@known:a.test");
    const said: EncryptedRoomEvent[] = [];
    const say = async (person: Person) => {
      const room = `!room${said.length}:a.test`;
      await person.share(room, GHOST);
      said.push(await person.say(room, room));
    };
    let waiting: Record<string, unknown>[] = [];
    let acknowledged = 0;
    let cutOff = 0;
    for (let kill = 0; kill < KILLS; kill++) {
      if (kill % SENDERS_PER_UPLOAD === 0) await uploadKeys();
      await say(known);
      await say(await Person.join(server, `@person${kill}:a.test`));
      await say(known);
      waiting.push(...server.take(GHOST, "GHOST"));
      const done = await killedWhileReceiving(url, waiting, kill % waiting.length);
      acknowledged += done;
      if (done > 0 && done < waiting.length) cutOff += 1;
      waiting = waiting.slice(done);
    }
    assert.equal(acknowledged + waiting.length, said.length);
    assert.ok(cutOff > 0, "some kills come between two keys");
    t.diagnostic(`${acknowledged} of ${said.length} keys acknowledged; ${cutOff} kills between two keys`);
    await inProcess(async (ghost) => {
      await load(ghost);
      const lost = [];
      await ghost.receive(waiting);
      for (const event of said) {
        if ((await ghost.machines.decrypt(ghost.ghost, event)).kind !== "decrypted") lost.push(event.room);
      }
      assert.deepEqual(lost, []);
    });
  });
});
