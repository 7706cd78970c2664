// Files that are not what they should be: refused whole, by name, and nothing is changed.
import assert from "node:assert/strict";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { findRun, writeRun, writeStatements } from "../../../../src/federation/offboarding/run/run-file.ts";
import { exportStatements, importStatements } from "../../../../src/federation/offboarding/steps/exchange.ts";
import { runSteps } from "../../../../src/federation/offboarding/steps/next-or-run.ts";
import { complete } from "../../../../src/federation/offboarding/steps/sign-and-complete.ts";
import type { Trigger } from "../../../../src/records/format/removal-stages.ts";
import { RecordRefused } from "../../../../src/records/verify/reasons.ts";
import { runCliHere } from "../../../support/cli-in-process.ts";
import { commitRegistry } from "../../../support/control-repository.ts";
import { openRunAt } from "../../../support/offboarding.ts";
import { exportedFiles, openParties, stepAt, viewAt } from "../../../support/offboarding-steps.ts";

async function signedOnce(t: TestContext, partnersTrigger?: Trigger) {
  const parties = await openParties(t, { partnersTrigger });
  const { directory, a } = parties;
  await stepAt(directory, a, "next");
  await stepAt(directory, a, "sign");
  await stepAt(directory, a, "export");
  const [file = ""] = exportedFiles(directory, a.own);
  return { ...parties, text: readFileSync(file, "utf8") };
}

describe("exchange of statements", () => {
  it("importStatements refuses a file of another run, of a stranger or a forged one by rule, and changes nothing [OFF-3]", async (t) => {
    const { a, b, text } = await signedOnce(t);
    const stranger = await signedOnce(t);
    const edited = (change: (file: Record<string, unknown>) => unknown) => {
      const file = JSON.parse(text);
      return JSON.stringify(change(file) ?? file);
    };
    const payload = (from: string, to: string) =>
      edited((file) => {
        const [envelope] = file["envelopes"] as { payload: string }[];
        assert.ok(envelope !== undefined);
        const said = Buffer.from(envelope.payload, "base64").toString("utf8");
        assert.ok(said.includes(from));
        envelope.payload = Buffer.from(said.replace(from, to), "utf8").toString("base64");
      });
    const cases: readonly (readonly [string, string])[] = [
      ["exchange_malformed", text.slice(0, -10)],
      ["exchange_malformed", edited((file) => ({ ...file, more: 1 }))],
      ["exchange_from_another", edited((file) => ({ ...file, from: "c.test" }))],
      ["other_run", edited((file) => ({ ...file, run: "0".repeat(32) }))],
      // The same two organisations, with other keys and another run.
      ["unknown_key", stranger.text],
      ["signature_invalid", payload('"position":1', '"position":2')],
      ["evidence_altered", text.replace('"verdict":"closed"', '"verdict":"open"')],
      ["evidence_missing", edited((file) => ({ ...file, evidence: [] }))],
    ];
    const before = JSON.stringify(viewAt(b).statements);
    for (const [reason, file] of cases) {
      const refused = await importStatements(b.context, Buffer.from(file, "utf8")).catch(
        (error: unknown) => error,
      );
      assert.ok(refused instanceof RecordRefused, reason);
      assert.ok(
        refused.problems.some((problem) => problem.reason === reason),
        `${reason}: ${refused.message}`,
      );
      assert.equal(JSON.stringify(viewAt(b).statements), before, reason);
    }
    await importStatements(b.context, Buffer.from(text, "utf8"));
    const held = JSON.stringify(viewAt(b).statements);
    const again = await importStatements(b.context, Buffer.from(text, "utf8"));
    assert.deepEqual(again.added, { statements: 0, signatures: 0, evidence: 0 });
    assert.equal(JSON.stringify(viewAt(b).statements), held);
    // One's own file is not the other's.
    await assert.rejects(importStatements(a.context, Buffer.from(text, "utf8")), RecordRefused);
  });

  it("importStatements refuses the first file when the two runs have different triggers [OFF-3]", async (t) => {
    const { directory, a, b, text } = await signedOnce(t, "planned_departure");
    const before = JSON.stringify(viewAt(b).statements);
    await assert.rejects(importStatements(b.context, Buffer.from(text, "utf8")), {
      code: "offboarding_blocked",
      message: /same_trigger.*contract_end.*planned_departure/s,
    });
    assert.equal(JSON.stringify(viewAt(b).statements), before);
    await stepAt(directory, b, "next");
    await stepAt(directory, b, "sign");
    await stepAt(directory, b, "export");
    const [back = ""] = exportedFiles(directory, b.own);
    await assert.rejects(importStatements(a.context, readFileSync(back)), { code: "offboarding_blocked" });
  });

  it("a run that is there is joined again only as what it is [OFF-2]", async (t) => {
    const { b, run } = await openParties(t);
    const joined = findRun(b.federation.state);
    assert.deepEqual((await openRunAt(b, { run })).opened_at, joined.opened_at);
    for (const other of [{ kind: "partial" }, { trigger: "planned_departure" }] as const) {
      const again = openRunAt(b, { run, ...other });
      await assert.rejects(again, { code: "usage", message: /exists already, and is another removal/ });
    }
    assert.deepEqual(findRun(b.federation.state), joined);
  });

  it("a run that cannot be read holds up the others until its folder is moved away, which its hint says [OFF-2]", async (t) => {
    const { a, run } = await openParties(t);
    const { state } = a.federation;
    const folder = join(state.path, "offboarding", "damaged");
    mkdirSync(folder);
    writeFileSync(join(folder, "run.json"), "{");
    const hint = /use the version that wrote it\. Without either, move its whole folder away/;
    assert.throws(() => findRun(state, run), { code: "state_unreadable", hint });
    rmSync(folder, { recursive: true });
    assert.equal(findRun(state).run, run);
  });

  it("importStatements refuses a completion that is dated in the future, and abort says that it can still be signed [OFF-5]", async (t) => {
    const { a, b, closeStages } = await openParties(t);
    await closeStages(6);
    await complete(a.context);
    const { text } = await exportStatements(a.context);
    const clock = { ...b.context.clock, now: () => b.context.clock.now() - 3_600_000 };
    const context = { ...b.context, clock };
    const refused = await importStatements(context, Buffer.from(text, "utf8")).catch(
      (error: unknown) => error,
    );
    assert.ok(refused instanceof RecordRefused, String(refused));
    const completion = refused.problems.filter(({ where }) => where === "completion");
    assert.deepEqual(
      completion.map(({ reason, detail }) => [reason, detail]),
      [["times_out_of_order", "closed in the future"]],
    );
    assert.equal(viewAt(b).completion.state, "none");
    const config = join(a.folder, "federation.yaml");
    const aborted = await runCliHere(["offboarding", "abort", "--reason", "x", "--config", config]);
    assert.match(aborted.stdout, /is aborted; b\.test can make the record, by its signature\./);
  });

  it("importStatements refuses what the other organisation has closed before the run was opened, or in the future [OFF-5]", async (t) => {
    const { directory, a, b, text } = await signedOnce(t);
    const refusedAs = async (imported: Promise<unknown>, detail: string) => {
      const refused = await imported.catch((error: unknown) => error);
      assert.ok(refused instanceof RecordRefused, String(refused));
      assert.deepEqual(
        refused.problems.map((problem) => [problem.reason, problem.detail]),
        [["times_out_of_order", detail]],
      );
    };
    const clock = { ...b.context.clock, now: () => b.context.clock.now() - 3_600_000 };
    await refusedAs(
      importStatements({ ...b.context, clock }, Buffer.from(text, "utf8")),
      "closed in the future",
    );
    assert.deepEqual(viewAt(b).statements.envelopes, []);
    await stepAt(directory, b, "next");
    await stepAt(directory, b, "sign");
    await stepAt(directory, b, "export");
    const [back = ""] = exportedFiles(directory, b.own);
    const { state } = a.federation;
    const { state: _, ...run } = findRun(state);
    const opened_at = new Date(Date.parse(run.opened_at) + 3_600_000).toISOString();
    writeRun(state, { ...run, opened_at });
    await refusedAs(importStatements(a.context, readFileSync(back)), "closed before the run was opened");
    writeRun(state, run);
    assert.equal((await importStatements(a.context, readFileSync(back))).added.statements, 1);
  });

  it("importStatements refuses a stage that the other organisation has closed out of turn, with which no completion would hold [OFF-3]", async (t) => {
    const { directory, a, b, closeStages } = await openParties(t);
    await closeStages(1);
    await stepAt(directory, b, "next");
    await stepAt(directory, b, "sign");
    const { text } = await exportStatements(b.context);
    const file = JSON.parse(text);
    const isOfB = (envelope: { payload: string }) =>
      Buffer.from(envelope.payload, "base64").includes('"organisation":"b.test');
    const envelopes = file.envelopes.filter(isOfB);
    const evidence = file.evidence.filter(({ partner }: { partner: string }) => partner === "a.test");
    const early = Buffer.from(JSON.stringify({ ...file, envelopes, evidence }), "utf8");
    const run = findRun(a.federation.state);
    writeStatements(run, { envelopes: [], evidence: [] }, run.opened_at);
    const refused = await importStatements(a.context, early).catch((error: unknown) => error);
    assert.ok(refused instanceof RecordRefused, String(refused));
    assert.match(refused.message, /times_out_of_order at b\.test\/\S+ \(closed before a\.test\/a2a_stop\)/);
    assert.deepEqual(viewAt(a).statements.envelopes, []);
    assert.equal((await importStatements(a.context, Buffer.from(text, "utf8"))).added.statements, 3);
  });

  it("importStatements refuses a stage that covers another client than ours at the other organisation [OFF-3]", async (t) => {
    const { directory, a, b } = await openParties(t);
    for (const step of ["next", "sign", "export"] as const) await stepAt(directory, b, step);
    const [text = ""] = exportedFiles(directory, b.own);
    const { repository } = a.federation;
    const file = "registry/partners/b.yaml";
    const entry = (await repository.read(await repository.requireHead(), [file])).get(file) ?? "";
    const requestsGate = (from: string, to: string) =>
      commitRegistry(repository, new Map([[file, entry.replace(from, to)]]));
    await requestsGate("clientId: a-bridge", "clientId: a-other");
    await assert.rejects(importStatements(a.context, readFileSync(text)), {
      code: "offboarding_blocked",
      message: /own_client \[import\]: b\.test covers the client a-bridge; .* asks there as "a-other"/,
      hint: /credentials\.clientId/,
    });
    assert.deepEqual(viewAt(a).statements.envelopes, []);
    // A third organisation gives out these tokens: that client is not b.test's to close.
    await requestsGate(
      "https://b.test/token\n        clientId: a-bridge",
      "https://c.test/token\n        clientId: a-other",
    );
    assert.equal((await importStatements(a.context, readFileSync(text))).added.statements, 1);
  });

  it("importStatements asks for no client of ours where the other organisation manages no gateway [ADO-1]", async (t) => {
    const { directory, a, b } = await openParties(t);
    const { baseline, state, ...run } = findRun(b.federation.state);
    const parts = baseline.scope.parts.filter((part) => part !== "gateway");
    const scope = { ...baseline.scope, parts, client: "another" };
    writeRun(state, { ...run, baseline: { ...baseline, scope } });
    for (const step of ["next", "sign", "export"] as const) await stepAt(directory, b, step);
    assert.ok(await stepAt(directory, a, "import"));
  });

  it("exportStatements refuses when this organisation has signed nothing [OFF-3]", async (t) => {
    const { a } = await openParties(t);
    await assert.rejects(exportStatements(a.context), { code: "offboarding_blocked" });
  });

  it("runSteps takes in a file that comes while it waits within ten milliseconds [OFF-2]", async (t) => {
    const { b, text } = await signedOnce(t);
    assert.equal((await runSteps(b.context, { waitMs: 0 })).end, "waiting");
    let now = b.context.clock.now();
    const comesAt = now + 1_234;
    const taken: number[] = [];
    const sleep = async (ms: number) => {
      now += ms;
    };
    const clock = { now: () => now, sleep };
    const takeIn = () => {
      if (now < comesAt || taken.length > 0) return undefined;
      taken.push(now - comesAt);
      return Buffer.from(text, "utf8");
    };
    await runSteps({ ...b.context, clock }, { waitMs: 5_000, takeIn });
    assert.equal(viewAt(b).stages[0]?.other.state, "countersigned");
    assert.ok((taken[0] ?? 100) < 10, `${taken}`);
  });

  it("runSteps waits for the whole of a file that is being copied, and refuses one that stays cut off [OFF-2]", async (t) => {
    const { b, text } = await signedOnce(t);
    const half = text.slice(0, text.length / 2);
    const said: string[] = [];
    const run = (waitMs: number, ...texts: string[]) => {
      let now = b.context.clock.now();
      const sleep = async (ms: number) => {
        now += ms;
      };
      const files = texts.map((one) => Buffer.from(one, "utf8"));
      const takeIn = () => files.shift();
      said.length = 0;
      const context = {
        ...b.context,
        clock: { now: () => now, sleep },
        say: (line: string) => said.push(line),
      };
      return runSteps(context, { waitMs, takeIn });
    };
    await assert.rejects(run(0, half), { code: "record_refused" });
    await assert.rejects(run(5_000, half), { code: "record_refused" });
    assert.equal(viewAt(b).stages[0]?.other.state, "unknown");
    await run(5_000, half, half, `${half} `, text);
    assert.equal(said.filter((line) => line.includes("waiting for it to change")).length, 1);
    assert.equal(viewAt(b).stages[0]?.other.state, "countersigned");
  });
});
