// A head that may not be accepted decides nothing: neither what a removal covers, nor which rooms are replaced.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { type Clock, systemClock } from "../../../../src/domain/clock.ts";
import { trustOf } from "../../../../src/federation/offboarding/run/context.ts";
import { findRun } from "../../../../src/federation/offboarding/run/run-file.ts";
import { next } from "../../../../src/federation/offboarding/steps/next-or-run.ts";
import { recheck, sign } from "../../../../src/federation/offboarding/steps/sign-and-complete.ts";
import { prepareRooms } from "../../../../src/federation/readmission/rooms.ts";
import { assessBranch } from "../../../../src/federation/reconcile/accept-head.ts";
import { runPass } from "../../../../src/federation/reconcile/pass.ts";
import { STAGE_NAMES } from "../../../../src/records/format/removal-stages.ts";
import {
  allowedSigners,
  commitOnTop,
  commitRegistry,
  signingKey,
} from "../../../support/control-repository.ts";
import { makeParties, openRunAt, openSide } from "../../../support/offboarding.ts";
import { A } from "../../../support/offboarding-planes.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

const ENTRY = "registry/partners/b.yaml";

/** One organisation that wants signed commits, with a head that nobody has signed and that lets the partner do nothing. */
async function refusedHead(t: TestContext, clock: Clock = systemClock) {
  const directory = temporaryFolder(t);
  await makeParties(directory);
  const side = await openSide(directory, A, { clock });
  const { repository } = side.federation;
  const good = await repository.requireHead();
  const key = signingKey(join(directory, "ssh"), "operator");
  Object.assign(side.federation, {
    signing: {
      allowedSignersFile: allowedSigners(join(directory, "allowed"), key.allowed),
      ...{ signedCommits: "every", trustedBase: good },
    },
    signingKeyFile: key.file,
  });
  await runPass(side.federation, {});
  const text = (await repository.read(good, ["registry"])).get(ENTRY) ?? "";
  const unsigned = await commitRegistry(repository, new Map([[ENTRY, text.slice(0, text.indexOf("card:"))]]));
  assert.equal((await assessBranch(side.federation)).assessment.good, false);
  const takeBack = () => repository.advance(unsigned, good, "the unsigned commit is taken back");
  return { side, good, takeBack };
}

const withoutAgents = (text: string) =>
  text.replace(/"agents": \[[^\]]*\]/, '"agents": []').replace(/"pins": \[[^\]]*\]/, '"pins": []');

describe("a head that nobody may have put there", () => {
  it("a removal is not opened on a refused head, and an emergency covers what the accepted one declares [OFF-5]", async (t) => {
    const { side, good } = await refusedHead(t);
    await assert.rejects(openRunAt(side), /is not signed by a key/);
    const { baseline } = await openRunAt(side, { kind: "emergency" });
    assert.deepEqual(
      [baseline.revision, baseline.scope.agents, baseline.scope.pins],
      [good, ["docs-qa"], ["b-docs-qa"]],
    );
  });

  it("a stage of an emergency leaves out what was pushed since the planes were closed [OFF-2]", async (t) => {
    const { side } = await refusedHead(t);
    await openRunAt(side, { kind: "emergency" });
    assert.equal((await next(side.context)).did, "contained");
    const { repository } = side.federation;
    await commitOnTop(repository, new Map([["README.md", "unsigned"]]));
    const { stage, progress } = await next(side.context);
    assert.equal(stage, "a2a_stop");
    assert.notEqual(progress?.commit ?? null, null);
    assert.equal((await assessBranch(side.federation)).assessment.good, true);
  });

  it("a stage of an emergency that is closed already leaves out what was pushed since [OFF-2]", async (t) => {
    const { side } = await refusedHead(t);
    await openRunAt(side, { kind: "emergency" });
    await next(side.context);
    side.answers.set("invoke", { verdict: "open", layer: "gateway", status: 200, reason: "let_in" });
    const before = await next(side.context);
    assert.equal(before.did, "not_proved");
    await commitOnTop(side.federation.repository, new Map([["README.md", "unsigned"]]));
    side.answers.delete("invoke");
    assert.equal((await next(side.context)).did, "proved");
    assert.equal((await assessBranch(side.federation)).assessment.good, true);
  });

  it("an emergency is signed and rechecked by what was accepted last, whatever was pushed since [OFF-2]", async (t) => {
    let later = 0;
    const { side } = await refusedHead(t, { ...systemClock, now: () => systemClock.now() + later });
    await openRunAt(side, { kind: "emergency" });
    await next(side.context);
    for (const _ of STAGE_NAMES.slice(1))
      await next(side.context, { skipCountersignature: "partner_is_silent" });
    const { repository } = side.federation;
    await commitOnTop(repository, new Map([["README.md", "unsigned"]]));
    const last = await next(side.context, { skipCountersignature: "partner_is_silent" });
    assert.deepEqual([last.did, last.stage], ["proved", "data_duties"]);
    assert.equal((await assessBranch(side.federation)).assessment.good, false);
    later = 3_600_000;
    assert.deepEqual((await sign(side.context)).signed, STAGE_NAMES);
    await recheck(
      { ...side.context, run: findRun(side.federation.state), trust: trustOf(side.context.config) },
      "",
    );
  });

  it("a scope that names no agent does not show that there is none [OFF-5]", async (t) => {
    const { side, takeBack } = await refusedHead(t);
    await takeBack();
    const run = await openRunAt(side);
    const file = join(side.federation.state.path, "offboarding", run.run, "run.json");
    writeFileSync(file, withoutAgents(readFileSync(file, "utf8")));
    assert.deepEqual(findRun(side.federation.state).baseline.scope.agents, []);
    side.answers.set("invoke", { verdict: "open", layer: "gateway", status: 200, reason: "let_in" });
    const { did, progress } = await next(side.context);
    assert.equal(did, "not_proved");
    const found = progress?.proof?.conditions.find(({ condition }) => condition === "invoke_refused");
    assert.equal(found?.verdict, "not_met");
    side.answers.set("invoke", { vantage: "nobody" });
    const again = (await next(side.context)).progress?.proof?.conditions;
    assert.equal(again?.find(({ condition }) => condition === "invoke_refused")?.verdict, "unknown");
    await assert.rejects(sign(side.context), /invoke_refused/);
  });

  it("nor does an entry from which the agents were taken since the run was opened [OFF-5]", async (t) => {
    const directory = temporaryFolder(t);
    await makeParties(directory);
    const side = await openSide(directory, A);
    const { repository } = side.federation;
    await runPass(side.federation, {});
    const run = await openRunAt(side);
    const file = join(side.federation.state.path, "offboarding", run.run, "run.json");
    writeFileSync(file, withoutAgents(readFileSync(file, "utf8")));
    const text = (await repository.read(await repository.requireHead(), ["registry"])).get(ENTRY) ?? "";
    await commitRegistry(repository, new Map([[ENTRY, text.slice(0, text.indexOf("card:"))]]));
    side.answers.set("invoke", { vantage: "nobody" });
    const { did, progress } = await next(side.context);
    assert.equal(did, "not_proved");
    const found = progress?.proof?.conditions.find(({ condition }) => condition === "invoke_refused");
    assert.equal(found?.verdict, "unknown");
  });

  it("rooms are not replaced by a refused head [RDM-1]", async (t) => {
    const { side } = await refusedHead(t);
    const never = () => assert.fail("rooms were touched");
    const context = { ...side.federation, rooms: { observe: never, replace: never }, say: () => undefined };
    const readmission = { partner: "b.test" } as Parameters<typeof prepareRooms>[1];
    await assert.rejects(prepareRooms(context, readmission, "new"), /is not signed by a key/);
  });
});
