// A whole removal between two organisations that share nothing but files: its order, and what stops it.
import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { parse } from "yaml";
import { systemClock } from "../../../../src/domain/clock.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import { OffboardingBlocked } from "../../../../src/federation/offboarding/run/context.ts";
import {
  findRun,
  readStage,
  writeRun,
  writeStage,
} from "../../../../src/federation/offboarding/run/run-file.ts";
import { next, runSteps } from "../../../../src/federation/offboarding/steps/next-or-run.ts";
import { complete, sign } from "../../../../src/federation/offboarding/steps/sign-and-complete.ts";
import { planRemoval } from "../../../../src/federation/offboarding/steps/status.ts";
import { waive } from "../../../../src/federation/offboarding/steps/waive-or-abort.ts";
import { PLANE_NAMES } from "../../../../src/federation/plane-order.ts";
import { runPass } from "../../../../src/federation/reconcile/pass.ts";
import type { Repository } from "../../../../src/federation/repository/repository.ts";
import { keepDrift } from "../../../../src/federation/state/plane-records.ts";
import type { DsseEnvelope } from "../../../../src/records/format/dsse-envelope.ts";
import { STAGE_NAMES } from "../../../../src/records/format/removal-stages.ts";
import { stagesIn } from "../../../../src/records/sign/export-and-import.ts";
import { editYaml } from "../../../../src/runtime/edit-yaml.ts";
import { commitOnTop, commitRegistry, operatorGit } from "../../../support/control-repository.ts";
import { setPlane } from "../../../support/edit-partner.ts";
import { A, B } from "../../../support/offboarding-planes.ts";
import {
  assertOneEnd,
  driveToEnd,
  openParties,
  stepsAt,
  viewAt,
} from "../../../support/offboarding-steps.ts";

const PARTNER_FILE = `registry/partners/${B[0]}.yaml`;

async function partnerText(repository: Repository): Promise<string> {
  const files = await repository.read(await repository.requireHead(), ["registry/partners"]);
  return files.get(PARTNER_FILE) ?? "";
}

/** The first stage is proved by a clock that is `ahead` milliseconds ahead; then its plane is opened by hand. */
async function openedSinceItWasProved(t: TestContext, ahead: number) {
  let now = ahead;
  const { a } = await openParties(t, { clock: { ...systemClock, now: () => systemClock.now() + now } });
  await next(a.context);
  assert.equal(viewAt(a).stages[0]?.own.state, "proved");
  const file = join(a.parts, "gateway/invocation.yaml");
  writeFileSync(file, `${readFileSync(file, "utf8")}# - b-bridge\n`);
  const setAhead = (ms: number) => {
    now = ms;
  };
  return { a, setAhead };
}

describe("removal workflow", () => {
  it("both organisations close six stages in order, countersign, and have one record that verifies [OFF-2]", async (t) => {
    const { directory, a, b, pass } = await openParties(t);
    for (const stage of STAGE_NAMES) {
      for (const side of [a, b]) {
        const { did, stage: done, progress } = await next(side.context);
        assert.deepEqual(
          [did, done],
          ["proved", stage],
          JSON.stringify(progress?.proof?.conditions, null, 1),
        );
        const again = await next(side.context);
        assert.equal(again.did, "idle", "the next stage waits for both signatures");
      }
      assert.deepEqual((await sign(a.context)).signed, [stage]);
      await pass(a, b);
      const both = await sign(b.context);
      assert.deepEqual([both.signed, both.countersigned], [[stage], [stage]]);
      await assert.rejects(complete(a.context), OffboardingBlocked);
      await pass(b, a);
      assert.deepEqual((await sign(a.context)).countersigned, [stage]);
      await pass(a, b);
    }
    assert.equal((await complete(a.context)).recordFile, null);
    await pass(a, b);
    assert.notEqual((await sign(b.context)).recordFile, null);
    await pass(b, a);
    await assertOneEnd(directory, [a, b]);
  });

  it("a stage is shown closed although an agent was withdrawn since the run was opened [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    await closeStages(1);
    const withdrawn = { path: ["card", "consumes", "b-docs-qa"], value: undefined };
    const text = editYaml(await partnerText(a.context.repository), [withdrawn]);
    await commitRegistry(a.context.repository, new Map([[PARTNER_FILE, text]]));
    const { did, progress } = await next(a.context);
    assert.equal(did, "proved", JSON.stringify(progress?.proof?.conditions));
  });

  it("a stage that was opened before the clock was set back is shown closed by what is observed then [OFF-2]", async (t) => {
    let ahead = 7_200_000;
    const { a } = await openParties(t, { clock: { ...systemClock, now: () => systemClock.now() + ahead } });
    a.answers.set("invoke", { verdict: "open", status: 200, layer: "agent", reason: "answered" });
    assert.equal((await next(a.context)).did, "not_proved");
    a.answers.clear();
    ahead = 0;
    const { did, progress } = await next(a.context);
    assert.equal(did, "proved", JSON.stringify(progress?.proof?.conditions));
    assert.deepEqual((await sign(a.context)).signed, ["a2a_stop"]);
  });

  it("a scope that lacks what the partner's entry had when the run was opened shows no absence [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    const { state, baseline, ...file } = findRun(a.federation.state);
    writeRun(state, { ...file, baseline: { ...baseline, scope: { ...baseline.scope, pins: [] } } });
    await closeStages(1);
    const withdrawn = { path: ["card", "consumes", "b-docs-qa"], value: undefined };
    const text = editYaml(await partnerText(a.context.repository), [withdrawn]);
    await commitRegistry(a.context.repository, new Map([[PARTNER_FILE, text]]));
    const { did, progress } = await next(a.context);
    const lacking = progress?.proof?.conditions.filter(({ verdict }) => verdict !== "met") ?? [];
    assert.deepEqual(
      [did, lacking.map(({ condition, verdict }) => [condition, verdict])],
      ["not_proved", [["agent_card_untrusted", "unknown"]]],
    );
  });

  it("runSteps carries each side as far as the other's file allows, and ends before a stage that is named [OFF-2]", async (t) => {
    const { directory, a, b } = await openParties(t);
    const files = new Map<string, string>();
    const goOn = (side: typeof a, more: { before?: "room" } = {}) => {
      let inbox = files.get(side.other);
      return runSteps(side.context, {
        takeIn: () => {
          const text = inbox;
          inbox = undefined;
          return text === undefined ? undefined : Buffer.from(text);
        },
        passOn: (text) => files.set(side.own, text),
        ...{ waitMs: 0, ...more },
      });
    };
    const ends = async (...sides: readonly (typeof a)[]) => {
      const found: string[] = [];
      for (const side of sides) found.push((await goOn(side, { before: "room" })).end);
      return found;
    };
    assert.deepEqual(await ends(a, b, a), ["waiting", "waiting", "waiting"]);
    assert.deepEqual(await ends(b, a, b), ["waiting", "paused", "paused"]);
    const stateOf = (side: typeof a) => viewAt(side).stages.map(({ own }) => own.state);
    assert.deepEqual(stateOf(a).slice(1, 3), ["countersigned", "pending"]);
    // Something of the plane stays open: nothing is signed, and it is not tried for ever.
    b.answers.set("make_join", { verdict: "open", status: 200, reason: "let_in" });
    let now = b.context.clock.now();
    const sleep = async (ms: number) => {
      now += ms;
    };
    const clock = { now: () => now, sleep };
    const hasty = { ...b.context, clock };
    assert.equal((await runSteps(hasty, { waitMs: 0 })).end, "blocked");
    assert.equal(viewAt(b).stages[2]?.own.state, "proving");
    b.answers.clear();
    await driveToEnd(directory, [a, b]);
    await assertOneEnd(directory, [a, b]);
    assert.equal((await goOn(a)).end, "completed", "what is done is found");
  });

  it("plan shows what each remaining stage changes and restarts, and changes nothing [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    const head = await a.federation.repository.head();
    const { steps } = await planRemoval(a.context);
    assert.deepEqual(
      steps.map(({ step }) => step),
      STAGE_NAMES,
    );
    const diffs = new Map(steps.map(({ step: stage, files }) => [stage, files.map(({ path }) => path)]));
    assert.deepEqual(diffs.get("policy_border"), ["rendered/border/policy.json"]);
    assert.match(steps[3]?.files[0]?.diff ?? "", /^@@.*\n(.*\n)*-\s+"b\.test"/);
    assert.deepEqual(
      steps.filter(({ restarts }) => restarts !== null).map(({ step, restarts }) => [step, restarts]),
      [["transport", "homeserver"]],
    );
    assert.equal(await a.federation.repository.head(), head);
    await closeStages(1);
    assert.equal((await planRemoval(a.context)).steps.length, 5);
  });

  it("plan names the revision that the run was opened at, and what to do, where the repository has lost it [OFF-2]", async (t) => {
    const { a } = await openParties(t);
    const revision = "0".repeat(39).concat("1");
    const { state, ...run } = findRun(a.federation.state, undefined);
    writeRun(state, { ...run, baseline: { ...run.baseline, revision } });
    await assert.rejects(planRemoval(a.context), (error) => {
      assert.ok(error instanceof DrawbridgeError && error.code === "repository_unusable", String(error));
      assert.match(error.message, /^the run was opened at 0{39}1, whose registry cannot be read: /);
      assert.match(error.hint ?? "", /git fetch.*offboarding abort.*nothing that was taken out of it before/);
      return true;
    });
  });

  it("sign refuses a stage whose exit condition does not hold, with probe, finding and hint [OFF-2]", async (t) => {
    const { a } = await openParties(t);
    a.answers.set("invoke", { verdict: "open", status: 200, reason: "answered" });
    assert.equal((await next(a.context)).did, "not_proved");
    const blocked = await sign(a.context).catch((error: unknown) => error);
    assert.ok(blocked instanceof OffboardingBlocked);
    const [block, ...others] = blocked.blocks;
    assert.deepEqual(others, []);
    assert.deepEqual(
      [block?.stage, block?.plane, block?.condition, block?.probe],
      ["a2a_stop", "gateway", "invoke_refused", "invoke"],
    );
    assert.equal(block?.found, "invoke on docs-qa: open (gateway 200 answered)");
    assert.match(blocked.hint ?? "", /drawbridge reconcile --once --plane gateway/);
    assert.equal(viewAt(a).statements.envelopes.length, 0);

    a.answers.clear();
    assert.equal(
      (await next(a.context)).did,
      "proved",
      "the same stage is shown again, without another commit",
    );
    assert.deepEqual((await sign(a.context)).signed, ["a2a_stop"]);
  });

  it("sign refuses a stage when a commit has opened its plane since the proof, and next closes it again [OFF-2]", async (t) => {
    const { a } = await openParties(t);
    const first = (await next(a.context)).progress?.commit;
    const { repository } = a.federation;
    const file = "registry/partners/b.yaml";
    const text =
      (await repository.read(await repository.requireHead(), ["registry/partners"])).get(file) ?? "";
    await commitRegistry(repository, new Map([[file, text.replace("gateway: closed", "gateway: open")]]));
    await assert.rejects(
      sign(a.context),
      /in_force \[registry\]: the registry declares the gateway plane open/,
    );
    assert.equal(viewAt(a).statements.envelopes.length, 0);
    const again = await next(a.context);
    assert.equal(again.did, "proved");
    assert.notEqual(again.progress?.commit, first, "the plane was closed by another commit");
    const head = await repository.requireHead();
    assert.match((await repository.read(head, ["registry/partners"])).get(file) ?? "", /gateway: closed/);
    assert.deepEqual((await sign(a.context)).signed, ["a2a_stop"]);
  });

  it("sign observes again what was proved more than a minute ago, and refuses what was opened since [OFF-2]", async (t) => {
    const { a, setAhead } = await openedSinceItWasProved(t, 0);
    setAhead(61_000);
    const blocked = await sign(a.context).catch((error: unknown) => error);
    assert.ok(blocked instanceof OffboardingBlocked, String(blocked));
    assert.match(blocked.message, /stage a2a_stop is not signed/);
    assert.match(blocked.message, /partner_not_rendered|in_force/);
    assert.equal(viewAt(a).statements.envelopes.length, 0);
    // Put right, it is proved again by the next step, and signed on fresh evidence.
    assert.equal((await next(a.context)).did, "proved");
    setAhead(200_000);
    assert.deepEqual((await sign(a.context)).signed, ["a2a_stop"]);
    const [statement] = stagesIn(viewAt(a).statements.envelopes).values();
    assert.ok(Date.parse(statement?.predicate.closed_at ?? "") >= systemClock.now() + 190_000);
  });

  it("sign observes again what was proved by a clock that was set back since [OFF-2]", async (t) => {
    const { a, setAhead } = await openedSinceItWasProved(t, 3_600_000);
    setAhead(0);
    await assert.rejects(sign(a.context), /stage a2a_stop is not signed/);
    assert.equal(viewAt(a).statements.envelopes.length, 0);
  });

  it("a statement that a kill has kept from being filed is filed with the evidence that it names [OFF-2]", async (t) => {
    let ahead = 0;
    const { a, run } = await openParties(t, {
      clock: { ...systemClock, now: () => systemClock.now() + ahead },
    });
    await next(a.context);
    await sign(a.context);
    const [signed] = viewAt(a).statements.envelopes;
    rmSync(join(a.federation.state.path, "offboarding", run, "statements.json"));
    assert.deepEqual(viewAt(a).statements.envelopes, []);
    // It is observed again by then, and what is found is other evidence.
    ahead = 61_000;
    assert.deepEqual((await sign(a.context)).signed, ["a2a_stop"]);
    const { envelopes, evidence } = viewAt(a).statements;
    assert.deepEqual(envelopes, [signed]);
    const [statement] = stagesIn(envelopes).values();
    assert.deepEqual(
      evidence.map(({ digest }) => digest).sort(),
      [...(statement?.predicate.evidence ?? assert.fail())].sort(),
    );
  });

  it("a stage whose commit was made before a kill goes on with that commit, and makes no other [OFF-2]", async (t) => {
    const { a } = await openParties(t);
    const { progress } = await next(a.context);
    assert.ok(progress?.commit != null);
    const head = await a.federation.repository.requireHead();
    writeStage(findRun(a.federation.state), { ...progress, commit: null, proof: null });
    const again = await next(a.context);
    assert.deepEqual([again.did, again.progress?.commit], ["proved", progress.commit]);
    assert.equal(await a.federation.repository.requireHead(), head);
  });

  it("sign refuses a kept statement of another stage or run, and signs nothing [OFF-2]", async (t) => {
    const { a, run, closeStages } = await openParties(t);
    const other = await openParties(t);
    await next(other.a.context);
    await next(other.a.context, { skipCountersignature: "partner_is_silent" });
    await sign(other.a.context);
    const folderOf = (side: typeof a, id: string) =>
      join(side.federation.state.path, "offboarding", id, "statements");
    const unsigned = (file: string) =>
      JSON.stringify({ ...(JSON.parse(readFileSync(file, "utf8")) as DsseEnvelope), signatures: [] });
    const folder = folderOf(a, run);
    await closeStages(1);
    await next(a.context);
    const before = viewAt(a).statements.envelopes.length;
    const others = folderOf(other.a, other.run);
    for (const from of [join(folder, "own-a2a_stop.json"), join(others, "own-a2a_discovery.json")]) {
      const text = unsigned(from);
      writeFileSync(join(folder, "own-a2a_discovery.json"), text);
      await assert.rejects(sign(a.context), { code: "state_unreadable" });
    }
    assert.equal(viewAt(a).statements.envelopes.length, before);
    rmSync(join(folder, "own-a2a_discovery.json"));
    assert.deepEqual((await sign(a.context)).signed, ["a2a_discovery"]);
  });

  it("next does not prove a stage that nobody has probed as the counterparty [OFF-2]", async (t) => {
    const { a } = await openParties(t, { fromOutside: false });
    const { did, progress } = await next(a.context);
    assert.equal(did, "not_proved");
    const open = progress?.proof?.conditions.filter(({ verdict }) => verdict === "unknown") ?? [];
    assert.deepEqual(
      open.map(({ condition, found }) => [condition, found]),
      [
        ["token_refused", "nobody has tried token_request as the counterparty"],
        ["invoke_refused", "nobody has tried invoke as the counterparty"],
      ],
    );
    assert.match(open[0]?.hint ?? "", /--probe-config/);
  });

  it("next measures from the new process when the homeserver was restarted during stage 4 [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    await closeStages(3);
    const { federation } = a;
    const { border } = federation.planes;
    const apply = border.apply.bind(border);
    border.apply = (...args) => {
      a.startedAt = "2026-01-02T00:00:00.000Z";
      return apply(...args);
    };
    const first = await next(a.context);
    assert.deepEqual(
      first.progress?.proof?.conditions
        .filter(({ verdict }) => verdict !== "met")
        .map(({ condition }) => condition),
      ["no_restart"],
    );
    assert.equal((await next(a.context)).did, "proved");
  });

  it("complete refuses, and names the plane, when a signed plane was opened by hand [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    await closeStages(6);
    assert.equal(stepsAt(a).action, "complete");
    const file = join(a.parts, "border/policy.json");
    const policy = JSON.parse(readFileSync(file, "utf8")) as { allowed_servers: string[] };
    policy.allowed_servers.push(B);
    writeFileSync(file, JSON.stringify(policy));
    const blocked = await complete(a.context).catch((error: unknown) => error);
    assert.ok(blocked instanceof OffboardingBlocked);
    assert.deepEqual(new Set(blocked.blocks.map(({ plane }) => plane)), new Set(["border"]));
    assert.match(blocked.message, /border plane was changed by hand: .*policy\.json \(edited\)/);
    assert.match(blocked.message, /policy_digest_changed \[policy_in_force\]: policy_in_force: open/);
    assert.equal(viewAt(a).completion.state, "none");
    assert.equal(
      readFileSync(file, "utf8"),
      JSON.stringify(policy),
      "it is noticed, not put right on the way",
    );
  });

  it("complete does not say that a room in which nothing can be done was changed by hand [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    await closeStages(6);
    const { state, planes } = a.federation;
    const drift = { subject: "!room", kind: "out_of_reach", found: null };
    keepDrift(state, "rooms", drift, "0".repeat(40), "2099-01-01T00:00:00.000Z");
    planes.rooms.drift = async () => [drift];
    const lines: string[] = [];
    const context = { ...a.context, say: (text: string) => lines.push(text) };
    const blocked = await complete(context).catch((error: unknown) => error);
    assert.ok(blocked instanceof OffboardingBlocked);
    const said = `${lines.join("\n")}\n${blocked.message}`;
    assert.doesNotMatch(said, /changed by hand/);
    assert.match(said, /NOTE: the rooms plane was found with a room where nothing can be done.*: !room/);
    assert.match(said, /a closed partner may come into a room where nothing can be done: !room/);
  });

  it("complete refuses when the progress of a signed stage is gone [OFF-2]", async (t) => {
    const { a, closeStages } = await openParties(t);
    await closeStages(6);
    const run = findRun(a.federation.state);
    rmSync(a.federation.state.file(`offboarding/${run.run}/stages`, "policy_border.json"));
    await assert.rejects(complete(a.context), /policy_border, plane border: remembered \[state\]/);
    assert.equal(viewAt(a).completion.state, "none");
  });

  it("complete states nothing of the other organisation that it has not signed [OFF-2]", async (t) => {
    for (const [word, condition] of [
      ["check:federation", "static_tests_pass"],
      ["owner:", "owner_named"],
    ] as const) {
      const { a, b, pass, closeStages } = await openParties(t);
      await closeStages(5);
      for (const side of [a, b]) await next(side.context);
      const run = findRun(b.federation.state);
      const record = readStage(run, "data_duties");
      assert.ok(record?.proof);
      const attested = record.proof.attested.filter((one) => !one.startsWith(word));
      writeStage(run, { ...record, proof: { ...record.proof, attested } });
      for (const side of [a, b]) await sign(side.context);
      await pass(a, b);
      await sign(b.context);
      await pass(b, a);
      await sign(a.context);
      await assert.rejects(complete(a.context), new RegExp(`${condition} \\[statement\\]`));
    }
  });

  it("a removal retires the partner's identities, and a commit that opens any plane again is refused [OFF-5]", async (t) => {
    const { a, closeStages } = await openParties(t);
    const { repository } = a.federation;
    const textOf = () => partnerText(repository);
    await closeStages(4);
    assert.doesNotMatch(await textOf(), /^retired:/m);
    await closeStages(1);
    const text = await textOf();
    const { azp, retired } = parse(text) as Record<string, unknown>;
    const { clients, cardKeys } = retired as Record<string, readonly unknown[]>;
    assert.deepEqual(clients, [azp]);
    assert.equal(cardKeys?.length, 1);
    const good = await repository.requireHead();
    for (const plane of PLANE_NAMES) {
      const opened = new Map([[PARTNER_FILE, setPlane(text, plane, "open")]]);
      await commitRegistry(repository, opened, { render: false });
      const { refusal, revision } = await runPass(a.federation);
      assert.deepEqual([refusal?.reason, revision], ["registry_invalid", good], plane);
      operatorGit(repository.path, "update-ref", "refs/heads/main", good);
    }
  });

  it("a removal retires also what was taken out of the partner's entry, or renamed there, while it ran [OFF-5]", async (t) => {
    const { a, closeStages } = await openParties(t);
    const { repository } = a.federation;
    const textOf = () => partnerText(repository);
    await closeStages(4);
    // As somebody tidies up whose planes are closed, or who means to spare a key.
    const edited = editYaml(await textOf(), [
      { path: ["card"], value: undefined },
      { path: ["azp"], value: "b-renamed" },
    ]);
    await commitRegistry(repository, new Map([[PARTNER_FILE, edited]]));
    const { did, progress } = await next(a.context);
    assert.equal(did, "proved", JSON.stringify(progress?.proof?.conditions));
    const { retired } = parse(await textOf()) as Record<"retired", Record<string, readonly unknown[]>>;
    assert.deepEqual(retired["clients"], [`${B[0]}-bridge`, "b-renamed"]);
    assert.deepEqual(retired["cardKeys"], [{ keyId: `${B[0]}-card` }]);
  });

  it("a commit that only says that it closes a plane does not keep the stage from closing it and retiring the partner [OFF-2] [OFF-5]", async (t) => {
    const { a, closeStages } = await openParties(t);
    const { repository } = a.federation;
    await closeStages(4);
    const said = `Offboarding-Run: ${findRun(a.federation.state).run}\nOffboarding-Stage: transport`;
    const forged = await commitOnTop(repository, new Map([["README.md", "x"]]), {
      message: `Tidy up\n\n${said}\n`,
    });
    const { did, progress } = await next(a.context);
    assert.equal(did, "proved", JSON.stringify(progress?.proof?.conditions));
    assert.notEqual(progress?.commit, forged);
    const file = `registry/partners/${B[0]}.yaml`;
    const texts = await repository.read(await repository.requireHead(), ["registry/partners"]);
    assert.match(texts.get(file) ?? "", /transport: closed[\s\S]*^retired:/m);
  });

  it("a record that a kill has kept from being written is written by the next run, on either side [OFF-2]", async (t) => {
    const { a, b, pass, closeStages } = await openParties(t);
    await closeStages(6);
    await complete(a.context);
    await pass(a, b);
    const forgetEnd = (side: typeof a) => {
      const { state, ended, ...file } = findRun(side.federation.state);
      assert.equal(ended?.how, "completed");
      writeRun(state, { ...file, ended: null });
      rmSync(state.file(`offboarding/${file.run}`, "record.json"));
    };
    await sign(b.context);
    await pass(b, a);
    for (const side of [b, a]) {
      forgetEnd(side);
      assert.equal(stepsAt(side).action, "complete");
      assert.equal((await runSteps(side.context, { waitMs: 0 })).end, "completed");
    }
  });

  it("runSteps says what it begins and what it waits for, each once [OFF-2]", async (t) => {
    const { a } = await openParties(t);
    const lines: string[] = [];
    const context = { ...a.context, say: (text: string) => lines.push(text) };
    await runSteps(context, { waitMs: 300 });
    assert.deepEqual(lines, [
      "a2a_stop: closing plane 5 gateway, and observing it",
      "a2a_stop: shown closed",
      "a2a_stop: signed",
      `waiting for ${B}: countersignature of a2a_stop`,
    ]);
  });

  it("complete and its countersignature refuse when a commit has opened a plane again [OFF-2]", async (t) => {
    const { a, b, pass, closeStages } = await openParties(t);
    await closeStages(6);
    const reopened = async (side: typeof a, other: string) => {
      const file = `registry/partners/${other[0]}.yaml`;
      const head = await side.federation.repository.requireHead();
      const text = (await side.federation.repository.read(head, ["registry/partners"])).get(file) ?? "";
      // As somebody would who takes back that the identities are retired as well.
      const opened = editYaml(setPlane(text, "card", "open"), [{ path: ["retired"], value: undefined }]);
      assert.notEqual(opened, text);
      return {
        open: () => commitRegistry(side.federation.repository, new Map([[file, opened]])),
        close: () => commitRegistry(side.federation.repository, new Map([[file, text]])),
      };
    };
    const at = await reopened(a, B);
    await at.open();
    await assert.rejects(complete(a.context), /no longer retires everything/);
    await at.close();
    // The planes never left what the registry says again.
    await complete(a.context);
    assert.equal(viewAt(a).completion.state, "signed");
    await pass(a, b);
    const there = await reopened(b, A);
    await there.open();
    await assert.rejects(sign(b.context), /no longer retires everything/);
    assert.equal(viewAt(b).completion.state, "signed");
  });

  it("sign refuses a subject out of reach until it is waived by name, and the statement holds the waiver [OFF-2]", async (t) => {
    const { directory, a, b, closeStages } = await openParties(t);
    await closeStages(2);
    const room = "!lost:a.test";
    a.outOfReach.push({ partner: B, subject: room, reason: "no_power", hint: "Ask its administrator." });
    assert.equal((await next(a.context)).did, "not_proved");
    await assert.rejects(sign(a.context), /out_of_reach \[!lost:a\.test\]: no_power/);
    await assert.rejects(
      waive(a.context, "!other:a.test", { reason: "gone" }),
      /nothing out of reach is called/,
    );
    await assert.rejects(waive(a.context, room, { reason: "call me: x@y.z" }), /is not a valid code/);
    const reason = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
    await assert.rejects(waive(a.context, room, { reason }), /^DrawbridgeError: --reason holds a token with/);
    await assert.rejects(sign(a.context), OffboardingBlocked);
    assert.deepEqual((await waive(a.context, room, { reason: "room_is_abandoned" })).left, []);
    assert.deepEqual((await sign(a.context)).signed, ["room"]);
    await driveToEnd(directory, [a, b]);
    await assertOneEnd(directory, [a, b]);
    const text = readFileSync(
      join(a.federation.state.path, "offboarding", findRun(a.federation.state).run, "record.json"),
      "utf8",
    );
    const completion = JSON.parse(
      Buffer.from(JSON.parse(text).completion.payload, "base64").toString("utf8"),
    );
    assert.deepEqual(completion.predicate.out_of_reach, [
      { subject: room, reason: "no_power", waived_by: "a-change-owner", waiver: "room_is_abandoned" },
    ]);
  });
});
