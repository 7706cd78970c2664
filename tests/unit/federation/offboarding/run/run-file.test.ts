// Which run with a counterparty is the open one, whichever of the two has begun it.
import assert from "node:assert/strict";
import { cpSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import { systemRandom } from "../../../../../src/domain/clock.ts";
import {
  changeRun,
  openRun,
  openRunWith,
  type RunFile,
  runsWith,
  writeRun,
} from "../../../../../src/federation/offboarding/run/run-file.ts";
import type { Federation } from "../../../../../src/federation/reconcile/context.ts";
import { openStateFolder } from "../../../../../src/federation/state/folder.ts";
import { NO_SCOPE } from "../../../../support/removal.ts";
import { temporaryFolder } from "../../../../support/temporary.ts";

const OWN = "own.test";

function record(digit: string, other: string, isRemover: boolean): RunFile {
  return {
    ...{ version: 1, run: digit.repeat(32), kind: "full", trigger: "contract_end", self: OWN },
    ...(isRemover ? { remover: OWN, partner: other } : { remover: other, partner: OWN }),
    ...{ private_record_file: "/nowhere", opened_at: `2026-01-0${digit}T00:00:00.000Z`, ended: null },
    ...{ contained_at: null, waivers: [] },
    baseline: { revision: "0".repeat(40), scope: NO_SCOPE },
  };
}

describe("runsWith", () => {
  it("openRunWith finds a run by its counterparty, whoever has begun it, until it has ended [OFF-2]", (t) => {
    const state = openStateFolder(temporaryFolder(t), systemRandom);
    const first = writeRun(state, record("1", "b.test", true));
    writeRun(state, record("2", "c.test", true));
    assert.equal(openRunWith(state, "b.test")?.run, first.run);
    changeRun(first, { ended: { how: "aborted", reason: "a_slip", at: "2026-01-03T00:00:00.000Z" } });
    assert.equal(openRunWith(state, "b.test"), undefined);
    const second = writeRun(state, record("4", "b.test", false));
    assert.equal(openRunWith(state, "b.test")?.run, second.run);
    assert.deepEqual(
      runsWith(state, "b.test").map(({ run }) => run),
      [first.run, second.run],
    );
    assert.equal(openRunWith(state, OWN), undefined, "nobody removes itself");
  });

  it("a run is joined by an ID alone, never by a path or another text [OFF-2]", async () => {
    const about = {
      partner: "b.test",
      kind: "full",
      trigger: "contract_end",
      privateRecordFile: "x",
    } as const;
    for (const run of ["../../elsewhere", "A".repeat(32), "1".repeat(31), ""]) {
      const opened = openRun({} as Federation, { ...about, run });
      await assert.rejects(opened, { code: "usage", message: /is no run ID$/ }, run);
    }
  });

  it("an emergency is opened for no other trigger than a suspected compromise [OFF-2]", async () => {
    const about = { partner: "b.test", kind: "emergency", privateRecordFile: "x" } as const;
    const opened = openRun({} as Federation, { ...about, trigger: "contract_end" });
    await assert.rejects(opened, { code: "usage", message: /needs a suspected compromise/ });
  });

  it("a folder that may be a removal is never taken for none [OFF-2]", (t) => {
    const state = openStateFolder(temporaryFolder(t), systemRandom);
    const run = writeRun(state, record("1", "b.test", true));
    const folder = join(state.path, "offboarding", run.run);
    const isFound = () => openRunWith(state, "b.test")?.run === run.run;
    const elsewhere = temporaryFolder(t);
    renameSync(folder, join(elsewhere, "run"));
    symlinkSync(join(elsewhere, "run"), folder);
    assert.ok(isFound(), "behind a link");
    cpSync(folder, `${folder}.copy`, { recursive: true, dereference: true });
    assert.throws(isFound, /is a copy of run 1111/);
    rmSync(`${folder}.copy`, { recursive: true });
    mkdirSync(join(folder, "stages"));
    rmSync(join(folder, "run.json"));
    assert.throws(isFound, /has no run.json/);
    // Killed while it was opened.
    rmSync(join(folder, "stages"), { recursive: true });
    writeFileSync(join(folder, "run.json.7.new"), "{");
    assert.equal(isFound(), false);
    rmSync(join(elsewhere, "run"), { recursive: true });
    assert.throws(isFound, /has no run.json/, "behind a link to nothing");
  });
});
