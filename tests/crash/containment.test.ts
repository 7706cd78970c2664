// One containment over real git and files, killed in a process of its own at instants spread over the whole of it, and cut
// off before each of its writes. Each has a copy of the same start; what is taken up again must end in the same.
import assert from "node:assert/strict";
import { cpSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { systemClock } from "../../src/domain/clock.ts";
import { applyPlanes, performAct } from "../../src/federation/containment/contain-or-restore.ts";
import { CONTAINMENT_ORDER, PLANE_NAMES } from "../../src/federation/plane-order.ts";
import { runPass } from "../../src/federation/reconcile/pass.ts";
import { Repository } from "../../src/federation/repository/repository.ts";
import { readPlane } from "../../src/federation/state/plane-records.ts";
import { controlRepository, openControl, operatorGit } from "../support/control-repository.ts";
import { killsOf, runUntilKilled } from "../support/kills.ts";
import { temporaryFolder } from "../support/temporary.ts";

const contain = (directory: string, killAfterMs?: number) =>
  runUntilKilled(["containment", directory, "lighthouse"], killAfterMs);

/** How far a killed one came, by what it left. */
async function progressOf(directory: string, before: string): Promise<string> {
  const repository = await Repository.open(join(directory, "control"), "main");
  if ((await repository.head()) === before) return "before the commit";
  const order = readFileSync(join(directory, "parts/order"), "utf8");
  return `after ${order.split("\n").length - 1 - PLANE_NAMES.length} planes were begun`;
}

async function assertSameEnd(directory: string, before: string): Promise<void> {
  const repository = await Repository.open(join(directory, "control"), "main");
  const { federation, events, folder } = await openControl(directory, repository, systemClock);
  const { partner } = await performAct(federation, "contain", "lighthouse");
  assert.ok((await applyPlanes(federation, "contain", partner)).every(({ done }) => done));

  const head = await repository.requireHead();
  const records = await repository.list(head, ["records"]);
  assert.equal(records.length, 1, records.map(({ path }) => path).join());
  assert.equal(operatorGit(repository.path, "rev-list", "--count", `${before}..${head}`), "1");
  for (const [path, text] of await repository.read(head, ["rendered"])) {
    assert.equal(readFileSync(join(folder, path.slice("rendered/".length)), "utf8"), text, path);
  }
  for (const plane of CONTAINMENT_ORDER) {
    const { applied, applying } = readPlane(federation.state, plane);
    assert.deepEqual([plane, applied?.outcome, applied?.revision, applying], [plane, "in_force", head, null]);
  }
  const order = readFileSync(join(folder, "order"), "utf8").trim().split("\n");
  const closing = order.filter((line) => line.endsWith(head)).map((line) => line.split(" ")[0]);
  assert.deepEqual([...new Set(closing)], CONTAINMENT_ORDER, "the safe order, however often it was cut");
  assert.equal((await runPass(federation, { checkDrift: true })).refusal, undefined);
  assert.deepEqual(
    events.filter(({ event }) => event === "drift"),
    [],
    "a kill is nobody's edit",
  );
}

/** A repository with every plane in force, of which each call of `copy` makes another. */
async function startOf(t: TestContext) {
  const directory = join(temporaryFolder(t), "start");
  const repository = await controlRepository(join(directory, "control"));
  const { federation } = await openControl(directory, repository, systemClock);
  await runPass(federation);
  const before = await repository.requireHead();
  const copy = (name: string) => {
    const folder = join(directory, "..", name);
    cpSync(directory, folder, { recursive: true, preserveTimestamps: true });
    return folder;
  };
  return { before, copy };
}

async function killOver(t: TestContext, kills: number): Promise<void> {
  const { before, copy } = await startOf(t);
  const whole = await contain(copy("whole"));
  assert.equal(whole.stdout, "begun\ndone\n");

  const reached = new Map<string, number>();
  for (let n = 0; n < kills; n++) {
    const folder = copy(`kill ${n}`);
    const { killed } = await contain(folder, (whole.durationMs * (n + Math.random())) / kills);
    const how = killed ? await progressOf(folder, before) : "after its end";
    reached.set(how, (reached.get(how) ?? 0) + 1);
    await assertSameEnd(folder, before);
  }
  for (const [how, count] of reached) t.diagnostic(`${count} killed ${how}`);
  const late = reached.get("after its end") ?? 0;
  // A few kills may all fall into one stage: how fast it goes changes with what else the machine does.
  if (kills < 20) return assert.ok(late < kills, "kills met it at work");
  assert.ok(reached.size > 2, "the kills met it at different instants");
  assert.ok(late < kills / 2, "kills met it at work");
}

/** Begins a containment that ends at its write of this number to the state folder. @returns whether it came so far */
async function cutOff(directory: string, writes: number): Promise<boolean> {
  const repository = await Repository.open(join(directory, "control"), "main");
  const { federation } = await openControl(directory, repository, systemClock);
  const { write } = federation.state;
  const end = new Error("cut off");
  let left = writes;
  federation.state.write = (name, value) => {
    if (left === 0) throw end;
    left -= 1;
    return write(name, value);
  };
  try {
    const { partner } = await performAct(federation, "contain", "lighthouse");
    await applyPlanes(federation, "contain", partner);
  } catch (error) {
    if (error !== end) throw error;
    return true;
  }
  return false;
}

describe("contain killed", () => {
  // A kill at a random instant seldom falls between a plane's change and the record of it.
  it("a containment cut off before any of its writes ends with every plane closed and one record [CON-1]", async (t) => {
    const { before, copy } = await startOf(t);
    let writes = 0;
    for (let folder = copy("cut 0"); await cutOff(folder, writes); folder = copy(`cut ${++writes}`)) {
      await assertSameEnd(folder, before);
    }
    assert.ok(writes > 2 * PLANE_NAMES.length, `${writes} writes`);
  });

  it("a containment killed at random instants ends with every plane closed and one record [CON-1]", (t) =>
    killOver(t, killsOf(20)));
});
