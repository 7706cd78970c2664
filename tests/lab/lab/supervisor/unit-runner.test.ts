import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { isAlive, type ProcessIdentity } from "../../../../lab/processes.ts";
import { launchCommand } from "../../../../lab/supervisor/launch.ts";
import { Unit } from "../../../../lab/supervisor/unit-runner.ts";
import { systemClock } from "../../../../src/domain/clock.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

const WAIT_FOR_EVER = "setInterval(() => {}, 1000)";

function unitOf(
  t: TestContext,
  code: string,
  options: { stopTimeoutMs?: number; ready?: () => boolean } = {},
) {
  const directory = temporaryFolder(t);
  const logFile = join(directory, "unit.log");
  const processes: ProcessIdentity[] = [];
  const program = { command: process.execPath, args: ["-e", `console.log("up"); ${code}`], directory };
  const unit = new Unit(
    {
      name: "test",
      after: [],
      program,
      ready: undefined,
      stopTimeoutMs: options.stopTimeoutMs ?? 5_000,
    },
    {
      clock: systemClock,
      launch: () => launchCommand(program, logFile),
      isReady: async () => (options.ready ?? (() => readFileSync(logFile, "utf8").includes("up")))(),
      onProcess: (identity) => {
        if (identity !== undefined) processes.push(identity);
      },
      log: () => {},
      logFile,
    },
  );
  t.after(() => unit.stop());
  return { unit, processes };
}

async function until(condition: () => boolean): Promise<void> {
  const deadline = systemClock.now() + 20_000;
  while (!condition()) {
    assert.ok(systemClock.now() < deadline, "it did not happen in time");
    await systemClock.sleep(10);
  }
}

describe("the runner of a unit", () => {
  it("a program that is killed is started again, as another process", async (t) => {
    const { unit, processes } = unitOf(t, WAIT_FOR_EVER);
    unit.start();
    await unit.ready();
    unit.kill();
    await until(() => processes.length === 2 && unit.status().state === "ready");
    assert.equal(unit.status().restarts, 1);
    assert.equal(unit.status().lastEnd, "SIGKILL");
    assert.notEqual(processes[0]?.pid, processes[1]?.pid);
  });

  it("a program that ends at once is started ever more slowly", async (t) => {
    const { unit, processes } = unitOf(t, "process.exit(3)", { ready: () => false });
    const startedAt = systemClock.now();
    unit.start();
    await until(() => processes.length === 4);
    // 250 + 500 + 1,000 ms of waiting at least.
    assert.ok(systemClock.now() - startedAt >= 1_750);
    assert.equal(unit.status().lastEnd, "exit 3");
  });

  it("a program that was stopped stays so until it is started", async (t) => {
    const { unit, processes } = unitOf(t, WAIT_FOR_EVER);
    unit.start();
    await unit.ready();
    await unit.stop();
    assert.equal(unit.status().state, "stopped");
    assert.equal(unit.status().pid, null);
    assert.ok(processes.every((identity) => !isAlive(identity)));
    await systemClock.sleep(500);
    assert.equal(processes.length, 1);
    unit.start();
    await unit.ready();
    assert.equal(processes.length, 2);
  });

  it("stopping waits out neither a back-off nor a start that never gets ready", async (t) => {
    const ending = unitOf(t, "process.exit(0)", { ready: () => false });
    ending.unit.start();
    await until(() => ending.unit.status().restarts >= 3);
    const hanging = unitOf(t, WAIT_FOR_EVER, { ready: () => false });
    hanging.unit.start();
    await until(() => hanging.processes.length === 1);
    const startedAt = systemClock.now();
    await Promise.all([ending.unit.stop(), hanging.unit.stop()]);
    assert.ok(systemClock.now() - startedAt < 900);
  });

  it("a program that ignores SIGTERM is killed in the end", async (t) => {
    const { unit, processes } = unitOf(t, `process.on("SIGTERM", () => {}); ${WAIT_FOR_EVER}`, {
      stopTimeoutMs: 300,
    });
    unit.start();
    await unit.ready();
    await unit.stop();
    assert.equal(unit.status().lastEnd, "SIGKILL");
    assert.ok(processes.every((identity) => !isAlive(identity)));
  });

  it("a program that does not exist is reported, not thrown", async (t) => {
    const directory = temporaryFolder(t);
    const missing = { command: join(directory, "missing"), args: [], directory };
    await assert.rejects(launchCommand(missing, join(directory, "log")), /ENOENT/);
  });
});
