// A removal whose two sides are killed by SIGKILL at random instants, again and again: it goes on from where it
// was, and ends as if nothing had been.
import assert from "node:assert/strict";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { runPass } from "../../src/federation/reconcile/pass.ts";
import { killsOf, runUntilKilled } from "../support/kills.ts";
import { makeParties, openRunAt, openSide } from "../support/offboarding.ts";
import { A, B } from "../support/offboarding-planes.ts";
import { assertOneEnd, viewAt } from "../support/offboarding-steps.ts";
import { temporaryFolder } from "../support/temporary.ts";

const KILLS_MIN = killsOf(50);

/** Runs both sides, killed after a time if one is given. */
const drive = (directory: string, killAfterMs?: number) =>
  runUntilKilled(["offboarding", directory], killAfterMs);

describe("removal killed at random instants", () => {
  it("a removal ends in one record with each statement signed once, however often it is killed [OFF-2]", async (t) => {
    const folder = temporaryFolder(t);
    const seed = join(folder, "seed");
    await makeParties(seed);
    const copy = async (name: string) => {
      const directory = join(folder, name);
      cpSync(seed, directory, { recursive: true });
      // Keys are pinned by absolute paths, which a copy shares.
      const sides = [await openSide(directory, A), await openSide(directory, B)];
      for (const side of sides) await runPass(side.federation);
      const [a, b] = sides;
      assert.ok(a !== undefined && b !== undefined);
      const { run } = await openRunAt(a);
      await openRunAt(b, { run });
      return { directory, sides };
    };
    const whole = await copy("whole");
    const { durationMs, stdout } = await drive(whole.directory);
    assert.ok(stdout.endsWith("done\n"));
    await assertOneEnd(whole.directory, whole.sides);

    let kills = 0;
    const met = new Map<string, number>();
    for (let run = 0; kills < KILLS_MIN; run++) {
      const { directory, sides } = await copy(`run ${run}`);
      for (let cut = 0; ; cut++) {
        // Short enough to meet every run often, long enough for it to get on: also where the machine has got
        // slower since the time was taken, and a step takes longer than a kill leaves it.
        const { killed } = await drive(directory, (durationMs / 12) * (0.3 + Math.random()) * (1 + cut / 12));
        if (!killed) break;
        kills += 1;
        const [a] = sides;
        const at =
          a === undefined ? undefined : viewAt(a).stages.find(({ own }) => own.state !== "countersigned");
        const how = at === undefined ? "completion" : `${at.stage} ${at.own.state}`;
        met.set(how, (met.get(how) ?? 0) + 1);
      }
      await assertOneEnd(directory, sides);
    }
    for (const [how, count] of met) t.diagnostic(`${count} killed at ${how}`);
    assert.ok(met.size > Math.min(5, KILLS_MIN / 4), "the kills met it at different instants");
  });
});
