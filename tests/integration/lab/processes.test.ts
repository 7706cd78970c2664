import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { describe, it, type TestContext } from "node:test";
import {
  childrenOf,
  endProcesses,
  identityOf,
  isAlive,
  LAB_ID_VARIABLE,
  type ProcessIdentity,
  processesOfLab,
  signalProcess,
} from "../../../lab/processes.ts";
import { systemClock } from "../../../src/domain/clock.ts";
import { namedLock, tryNamedLock } from "../../../src/runtime/named-lock.ts";
import { ROOT } from "../../support/temporary.ts";

const WAIT_FOR_EVER = "setInterval(() => {}, 1000)";

async function program(
  t: TestContext,
  code: string,
  env: NodeJS.ProcessEnv = {},
  ready = "up",
): Promise<{ child: ChildProcess; identity: ProcessIdentity }> {
  const child = spawn(process.execPath, ["-e", `${code}; console.log("up")`], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "ignore"],
    cwd: ROOT,
  });
  t.after(() => child.kill("SIGKILL"));
  assert.ok(child.stdout !== null && child.pid !== undefined);
  // Two lines may arrive as one chunk, so the whole of what was printed is looked at.
  let printed = "";
  for await (const chunk of child.stdout.iterator({ destroyOnReturn: false })) {
    printed += String(chunk);
    if (printed.includes(ready)) break;
  }
  const identity = identityOf(child.pid);
  assert.ok(identity !== undefined);
  return { child, identity };
}

describe("processes and locks", () => {
  it("a process is identified by its start as well as its ID, so that a reused ID is another process", async (t) => {
    const { child, identity } = await program(t, WAIT_FOR_EVER);
    assert.equal(isAlive(identity), true);
    for (const other of [
      { ...identity, startTicks: "1" },
      { ...identity, bootId: "of-another-boot" },
    ]) {
      assert.equal(isAlive(other), false);
      assert.equal(signalProcess(other, "SIGKILL"), false);
    }
    assert.equal(isAlive(identity), true);
    child.kill("SIGKILL");
    await once(child, "exit");
    assert.equal(isAlive(identity), false);
  });

  it("a lab's processes are those that carry its ID, however similar another one is", async (t) => {
    const id = "f".repeat(32);
    const own = await program(t, WAIT_FOR_EVER, { [LAB_ID_VARIABLE]: id });
    await program(t, `${WAIT_FOR_EVER} /* ${LAB_ID_VARIABLE}=${id} */`);
    await program(t, WAIT_FOR_EVER, { [LAB_ID_VARIABLE]: "e".repeat(32) });
    await program(t, WAIT_FOR_EVER, { OTHER: `${LAB_ID_VARIABLE}=${id}` });
    assert.deepEqual(
      processesOfLab(id).map(({ pid }) => pid),
      [own.identity.pid],
    );
  });

  it("processes are asked to end, and killed only if they do not", async (t) => {
    const polite = await program(t, `process.on("SIGTERM", () => process.exit(7)); ${WAIT_FOR_EVER}`);
    const deaf = await program(t, `process.on("SIGTERM", () => {}); ${WAIT_FOR_EVER}`);
    const ends = Promise.all([once(polite.child, "exit"), once(deaf.child, "exit")]);
    await endProcesses([polite.identity, deaf.identity], 500, systemClock);
    assert.deepEqual(await ends, [
      [7, null],
      [null, "SIGKILL"],
    ]);
  });

  it("the processes that a process started are found", async (t) => {
    const { identity } = await program(
      t,
      `require("node:child_process").spawn(process.execPath, ["-e", "process.stdin.resume()"], {stdio: ["pipe", "ignore", "ignore"]}); ${WAIT_FOR_EVER}`,
    );
    assert.equal(childrenOf(identity.pid).length, 1);
  });

  it("a lock is one holder's at a time, and free again when its holder is killed", async (t) => {
    const name = `test ${process.pid} lock`;
    const holder = await program(
      t,
      `import("${ROOT}/src/runtime/named-lock.ts").then(async (lock) => { await lock.tryNamedLock("${name}"); console.log("held") }); ${WAIT_FOR_EVER}`,
      {},
      "held",
    );
    let waited = 0;
    const taking = namedLock(name, {
      clock: systemClock,
      timeoutMs: 10_000,
      holder: "a test",
      onWait: () => waited++,
    });
    while (waited === 0) await systemClock.sleep(5);
    assert.equal(await tryNamedLock(name), undefined);
    holder.child.kill("SIGKILL");
    const lock = await taking;
    assert.equal(await tryNamedLock(name), undefined);
    await lock.release();
    const again = await tryNamedLock(name);
    assert.notEqual(again, undefined);
    await again?.release();
  });

  it("waiting for a lock fails with an error when it is not released in time", async () => {
    const name = `test ${process.pid} busy`;
    const held = await tryNamedLock(name);
    await assert.rejects(namedLock(name, { clock: systemClock, timeoutMs: 50, holder: "a test" }), {
      code: "program_failed",
    });
    await held?.release();
  });
});
