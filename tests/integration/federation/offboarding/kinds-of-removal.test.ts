// Removals that are not the whole and orderly one: an emergency, a partial one, a partner that does not take part, and one
// that is aborted.
import assert from "node:assert/strict";
import { readFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, it } from "node:test";
import { performAct } from "../../../../src/federation/containment/contain-or-restore.ts";
import { OffboardingBlocked } from "../../../../src/federation/offboarding/run/context.ts";
import { findRun, readStage } from "../../../../src/federation/offboarding/run/run-file.ts";
import { next, runSteps } from "../../../../src/federation/offboarding/steps/next-or-run.ts";
import { sign } from "../../../../src/federation/offboarding/steps/sign-and-complete.ts";
import { abort } from "../../../../src/federation/offboarding/steps/waive-or-abort.ts";
import { STAGE_NAMES } from "../../../../src/records/format/removal-stages.ts";
import { RecordRefused } from "../../../../src/records/verify/reasons.ts";
import { runCliHere } from "../../../support/cli-in-process.ts";
import { commitRegistry } from "../../../support/control-repository.ts";
import { openRunAt } from "../../../support/offboarding.ts";
import { A, B } from "../../../support/offboarding-planes.ts";
import { assertOneEnd, driveToEnd, openParties, stepAt, viewAt } from "../../../support/offboarding-steps.ts";

describe("kinds of removal", () => {
  it("an emergency closes planes 5, 4, 2 and 3 at once, then proves every stage [OFF-2]", async (t) => {
    const { directory, a, b } = await openParties(t, { kind: "emergency" });
    const order = () =>
      readFileSync(join(a.parts, "order"), "utf8")
        .trim()
        .split("\n")
        .map((line) => line.split(" ")[0]);
    const before = order().length;
    const { did, planes } = await next(a.context);
    assert.deepEqual(
      [did, planes.map(({ plane, done }) => [plane, done])],
      ["contained", ["gateway", "card", "rooms", "border"].map((plane) => [plane, true])],
    );
    const applied = order().slice(before);
    assert.deepEqual(
      applied,
      ["gateway", "card", "rooms", "border", "rooms"],
      "the rooms again, behind the border",
    );
    assert.deepEqual((await next(a.context)).stage, "a2a_stop");
    await driveToEnd(directory, [a, b]);
    await assertOneEnd(directory, [a, b]);
  });

  it("runSteps says of an emergency which planes are not closed yet [OFF-2]", async (t) => {
    const { a } = await openParties(t, { kind: "emergency" });
    a.outOfReach.push({ partner: B, subject: "!room:a.test", reason: "no_power", hint: "Ask." });
    const said: string[] = [];
    await runSteps({ ...a.context, say: (text) => said.push(text) }, { waitMs: 0, before: "a2a_stop" });
    assert.deepEqual(said, [
      "closing planes 5, 4, 2 and 3 at once",
      "planes 5, 4, 2 and 3: told to close at once; NOT CLOSED YET: 2 rooms",
    ]);
  });

  it("runSteps contains an emergency before a refused file or a missing signing key ends it [OFF-2]", async (t) => {
    const { directory, a, b } = await openParties(t, { kind: "emergency" });
    const isContained = ({ federation }: typeof a) => findRun(federation.state).contained_at !== null;
    const takeIn = () => Buffer.from("{", "utf8");
    await assert.rejects(runSteps(b.context, { waitMs: 0, takeIn }), RecordRefused);
    assert.ok(isContained(b));
    for (const step of ["next", "sign", "export"] as const) await stepAt(directory, b, step);
    await stepAt(directory, a, "import");
    rmSync(resolve(a.context.config.directory, "records-key.pem"));
    await assert.rejects(runSteps(a.context, { waitMs: 0 }), { code: "secret_unavailable" });
    assert.ok(isContained(a));
  });

  it("next skips a missing countersignature only for a reason, which the statement holds [OFF-2]", async (t) => {
    const { directory, a, b } = await openParties(t);
    assert.equal((await next(a.context)).stage, "a2a_stop");
    assert.equal((await next(a.context)).did, "idle");
    for (const stage of STAGE_NAMES.slice(1)) {
      const { did, stage: done } = await next(a.context, { skipCountersignature: "partner_is_silent" });
      assert.deepEqual([did, done], ["proved", stage]);
    }
    assert.deepEqual((await sign(a.context)).signed, STAGE_NAMES);
    await driveToEnd(directory, [a, b]);
    await assertOneEnd(directory, [a, b]);
    const statements = viewAt(b).statements.envelopes.map(({ payload }) =>
      Buffer.from(payload, "base64").toString("utf8"),
    );
    assert.equal(
      statements.filter((text) => text.includes('"countersignature_skipped:partner_is_silent"')).length,
      5,
    );
  });

  it("next with a reason shows what it closed before it closes more [OFF-2]", async (t) => {
    const { a } = await openParties(t);
    const goOn = async () => {
      const { did, stage } = await next(a.context, { skipCountersignature: "partner_is_silent" });
      return [did, stage];
    };
    a.answers.set("invoke", { verdict: "open", status: 200, reason: "answered" });
    for (let time = 0; time < 2; time++) assert.deepEqual(await goOn(), ["not_proved", "a2a_stop"]);
    a.answers.delete("invoke");
    assert.deepEqual(await goOn(), ["proved", "a2a_stop"]);
    assert.deepEqual(await goOn(), ["proved", "a2a_discovery"]);
  });

  it("next refuses a reason that no statement can hold, and leaves the run as it was [OFF-2]", async (t) => {
    const { a } = await openParties(t);
    await next(a.context);
    const head = await a.federation.repository.head();
    for (const skipCountersignature of ["because it is silent", "x".repeat(104), ""]) {
      await assert.rejects(next(a.context, { skipCountersignature }), {
        code: "usage",
        message: /--skip-countersignature/,
      });
    }
    assert.equal(await a.federation.repository.head(), head);
    assert.equal(viewAt(a).stages[1]?.own.state, "pending");
    assert.equal(
      (await next(a.context, { skipCountersignature: "no.answer-".repeat(11).slice(0, 103) })).did,
      "proved",
    );
    assert.deepEqual((await sign(a.context)).signed, ["a2a_stop", "a2a_discovery"]);
  });

  it("a stage states a part that the organisation does not have, with its evidence [OFF-2]", async (t) => {
    const { directory, a, b } = await openParties(t, { lacks: { [B]: ["card", "gateway"] } });
    await driveToEnd(directory, [a, b]);
    await assertOneEnd(directory, [a, b]);
    const { stages } = viewAt(b);
    const verdicts = stages[0]?.progress?.proof?.conditions.map(({ condition, verdict }) => [
      condition,
      verdict,
    ]);
    assert.deepEqual(verdicts, [
      ["in_force", "met"],
      ["partner_not_rendered", "met"],
      ["token_refused", "met"],
      ["invoke_refused", "not_applicable"],
    ]);
  });

  it("a partial removal leaves rooms, border and transport alone [OFF-2]", async (t) => {
    const { directory, a, b } = await openParties(t, { kind: "partial" });
    const before = ["rooms/rooms.json", "border/policy.json", "transport/homeserver.yaml"].map((path) =>
      readFileSync(join(a.parts, path), "utf8"),
    );
    await driveToEnd(directory, [a, b]);
    const after = ["rooms/rooms.json", "border/policy.json", "transport/homeserver.yaml"].map((path) =>
      readFileSync(join(a.parts, path), "utf8"),
    );
    assert.deepEqual(after, before);
    assert.equal(findRun(a.federation.state).ended?.how, "completed");
  });

  it("a partial removal refuses to close an agent that the private record does not name [PRT-1]", async (t) => {
    const { a } = await openParties(t, { kind: "partial" });
    const named = a.facts.agents;
    const files = ["gateway/invocation.yaml", "card/agents.yaml"];
    const texts = () => files.map((path) => readFileSync(join(a.parts, path), "utf8"));
    const [head, before] = [await a.federation.repository.head(), texts()];
    Object.assign(a.facts, { agents: ["docs-qa"] });
    await assert.rejects(next(a.context), (error) => {
      assert.ok(error instanceof OffboardingBlocked);
      const found = error.blocks.map((block) => [block.stage, block.condition, block.found.split(" ")[0]]);
      assert.deepEqual(found, [["a2a_stop", "named", "b-docs-qa"]]);
      assert.match(error.hint ?? "", /drawbridge agent withdraw/);
      return true;
    });
    assert.equal(await a.federation.repository.head(), head);
    assert.deepEqual(texts(), before);
    assert.equal(readStage(findRun(a.federation.state), "a2a_stop"), undefined, "it has not begun either");
    Object.assign(a.facts, { agents: named });
    assert.equal((await next(a.context)).did, "proved");
  });

  it("a partial removal refuses an agent that a commit has added while it waited to commit [PRT-1]", async (t) => {
    const { a } = await openParties(t, { kind: "partial" });
    const { repository, state } = a.federation;
    const file = "registry/partners/b.yaml";
    const text =
      (await repository.read(await repository.requireHead(), ["registry/partners"])).get(file) ?? "";
    const more = text.replace(
      "  consumes:\n",
      `  consumes:\n    newcomer: {cardUrl: "https://b.test/newcomer"}\n`,
    );
    assert.notEqual(more, text);
    // The look before the stage is opened is over when the run waits for its turn to commit.
    const held = await state.tryLock("commit");
    const waits = Promise.withResolvers<void>();
    const ended = next({ ...a.context, onWait: waits.resolve });
    await Promise.race([waits.promise, ended]);
    await commitRegistry(repository, new Map([[file, more]]));
    const head = await repository.head();
    await held?.release();
    await assert.rejects(ended, /newcomer would be closed as well/);
    assert.equal(await repository.head(), head, "nothing was committed");
  });

  it("abort leaves planes closed, reports them, and allows another run [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    await closeStages(2);
    await assert.rejects(openRunAt(a), { code: "usage" });
    const { run, closed } = await abort(a.context, { reason: "decided_otherwise" });
    assert.deepEqual([run.ended?.how, closed], ["aborted", ["gateway", "card"]]);
    for (const step of ["next", "sign", "complete", "import"] as const) {
      await assert.rejects(stepAt(a.folder.slice(0, -A.length - 1), a, step), { code: "usage" }, step);
    }
    assert.doesNotMatch(readFileSync(join(a.parts, "gateway/invocation.yaml"), "utf8"), /b-bridge/);
    assert.equal((await openRunAt(a)).ended, null);
  });

  it("abort names every plane that is closed for the partner, also one that another command has closed [OFF-2]", async (t) => {
    const { a } = await openParties(t);
    await performAct(a.context, "contain", B);
    const { closed, contained } = await abort(a.context, { reason: "called_off" });
    assert.deepEqual([closed, contained], [["gateway", "card", "rooms", "border"], true]);
    rmSync(a.federation.repository.path, { recursive: true });
    const unknown = await abort(a.context, { reason: "called_off" });
    assert.deepEqual([unknown.closed, unknown.contained], [null, null]);
  });

  it("the status of an aborted run asks for nothing that its open stage lacks [OFF-2]", async (t) => {
    const { a } = await openParties(t);
    a.answers.set("invoke", { verdict: "open", status: 200, reason: "answered" });
    await next(a.context);
    const config = ["--config", join(a.folder, "federation.yaml")];
    assert.match(
      (await runCliHere(["offboarding", "status", ...config])).stdout,
      /a2a_stop cannot be signed/,
    );
    const aborted = await runCliHere(["offboarding", "abort", "--reason", "called_off", ...config]);
    assert.match(aborted.stdout, /STILL CLOSED for b\.test: plane 5 gateway\./);
    const { code, stdout } = await runCliHere(["offboarding", "status", ...config]);
    assert.equal(code, 0);
    assert.doesNotMatch(stdout, /cannot be signed/);
  });
});
