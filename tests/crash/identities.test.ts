// A re-admission, and a rotation, killed at instants spread over the whole of them: each kill has a copy of the
// same start, and what is taken up again ends in the same, with one commit a step.
import assert from "node:assert/strict";
import { cpSync, existsSync, readFileSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { importPinnedKey, verifyCard } from "../../src/cards/verify.ts";
import { systemClock } from "../../src/domain/clock.ts";
import { readPrivateKey } from "../../src/federation/agents/rotate.ts";
import { PLANE_NAMES } from "../../src/federation/plane-order.ts";
import { loadRegistry } from "../../src/federation/registry/load.ts";
import { thumbprintOf } from "../../src/federation/registry/retired-identities.ts";
import { Repository } from "../../src/federation/repository/repository.ts";
import { operatorGit } from "../support/control-repository.ts";
import { runUntilKilled } from "../support/kills.ts";
import { identitiesIn, removedPartner, SERVER } from "../support/readmission.ts";
import { temporaryFolder } from "../support/temporary.ts";

const run = (procedure: string, directory: string, killAfterMs?: number) =>
  runUntilKilled([procedure, directory], killAfterMs);

/** Kills it `kills` times over its whole length, and has it end. */
async function killOver(
  t: TestContext,
  procedure: string,
  directory: string,
  kills: number,
  check: (directory: string) => Promise<void>,
): Promise<void> {
  const copy = (name: string) => {
    const folder = join(dirname(directory), name);
    cpSync(directory, folder, { recursive: true, preserveTimestamps: true });
    return folder;
  };
  const whole = await run(procedure, copy("whole"));
  assert.equal(whole.stdout, "begun\ndone\n");
  let killed = 0;
  // A machine that is busy with something else is slower at times: kills are spread over the shortest run.
  let lengthMs = whole.durationMs;
  for (let n = 0; n < kills; n++) {
    const folder = copy(`kill ${n}`);
    const first = await run(procedure, folder, (lengthMs * (n + Math.random())) / kills);
    if (first.killed) killed++;
    else lengthMs = Math.min(lengthMs, first.durationMs);
    assert.equal((await run(procedure, folder)).stdout, "begun\ndone\n", basename(folder));
    await check(folder);
    rmSync(folder, { recursive: true, force: true });
  }
  t.diagnostic(`${killed} of ${kills} were killed at work`);
  assert.ok(killed >= 2, "kills met it at work");
}

describe("identity changes killed at random instants", () => {
  it("a re-admission ends complete, with one commit per step, however often it is killed [RDM-1]", async (t) => {
    const directory = join(temporaryFolder(t), "start");
    const before = await (await removedPartner(directory, systemClock)).requireHead();
    await killOver(t, "readmission", directory, 5, async (folder) => {
      const repository = await Repository.open(join(folder, "control"), "main");
      const subjects = operatorGit(repository.path, "log", "--reverse", "--format=%s", `${before}..main`);
      assert.deepEqual(subjects.split("\n"), [
        `Open the re-admission of ${SERVER}`,
        ...PLANE_NAMES.map((plane, index) => `Open plane ${index + 1} (${plane}) to ${SERVER}`),
        `Complete the re-admission of ${SERVER}`,
      ]);
      const records = await repository.list(await repository.requireHead(), ["records/readmission"]);
      assert.equal(records.length, 2, records.map(({ path }) => path).join());
      const replaced = readFileSync(join(folder, "replaced"), "utf8").trim().split("\n");
      assert.deepEqual([...new Set(replaced)], ["!a"]);
    });
  });

  it("a rotation ends with one new key, one commit and no old key, however often it is killed [PRT-1]", async (t) => {
    const directory = join(temporaryFolder(t), "start");
    const { repository: origin, own } = await identitiesIn(directory);
    const before = await origin.requireHead();
    await killOver(t, "rotation", directory, 5, async (folder) => {
      const repository = await Repository.open(join(folder, "control"), "main");
      assert.equal(operatorGit(repository.path, "rev-list", "--count", `${before}..main`), "1");
      const registry = loadRegistry(await repository.read(await repository.requireHead(), ["registry"]));
      const [published, ...others] = registry.organisation.agents["docs-qa"]?.cardKeys ?? [];
      assert.ok(published !== undefined && others.length === 0);
      const keyFile = join(folder, "secrets", "docs-qa.jwk");
      const key = (await readPrivateKey(keyFile)) ?? assert.fail();
      assert.equal(thumbprintOf(key), thumbprintOf(published.jwk), "the private key is the published one's");
      assert.notEqual(thumbprintOf(key), thumbprintOf(own.identity.jwk));
      assert.equal(existsSync(`${keyFile}.next`), false);
      const card = readFileSync(join(folder, "docs-qa", "agent-card.json"));
      const pin = await importPinnedKey(published.keyId, published.jwk);
      assert.equal((await verifyCard(card, [pin])).accepted, true);
      assert.equal(registry.organisation.retired.cardKeys.length, 1);
    });
  });
});
