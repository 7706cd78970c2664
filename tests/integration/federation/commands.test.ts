// The commands as an operator runs them: what they print and how they end.

import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { appendFileSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, it, type TestContext } from "node:test";
import { stringify } from "yaml";
import { systemRandom } from "../../../src/domain/clock.ts";
import { type AbuseReport, signReport } from "../../../src/federation/abuse/report.ts";
import { changeRun, writeRun } from "../../../src/federation/offboarding/run/run-file.ts";
import { ContainmentRecord } from "../../../src/federation/registry/committed-records.ts";
import { openStateFolder } from "../../../src/federation/state/folder.ts";
import { fileSigner } from "../../../src/records/sign/signer.ts";
import { runCliHere } from "../../support/cli-in-process.ts";
import { commitOnTop, controlRepository, operatorGit, PILOTS } from "../../support/control-repository.ts";
import { NO_SCOPE } from "../../support/removal.ts";
import { cliMain, ROOT, run, start, temporaryFolder } from "../../support/temporary.ts";

/** A deployment whose real parts are all down. */
async function deployment(t: TestContext) {
  const directory = temporaryFolder(t);
  const repository = await controlRepository(join(directory, "control"));
  const down = "http://127.0.0.1:9";
  writeFileSync(join(directory, "token"), "not-a-token\n", { mode: 0o600 });
  writeFileSync(join(directory, "signing.key"), `ed25519 a_1 ${"A".repeat(43)}\n`, { mode: 0o600 });
  const config = join(directory, "federation.yaml");
  const text = stringify({
    version: 1,
    repository: { path: "control" },
    homeserver: { url: down, operatorToken: { file: "token" }, signingKeyFile: "signing.key" },
    transport: { includeFile: "parts/include.yaml", restart: { command: ["false"] } },
    border: {
      policyFile: "parts/policy.json",
      statusToken: { file: "token" },
      violationsFile: "parts/violations.jsonl",
    },
  });
  writeFileSync(config, text);
  const drawbridge = (...args: readonly string[]) => runCliHere([...args, "--config", config]);
  return { directory, repository, config, drawbridge };
}

/** Resolves when a program has written this to its standard error. */
async function complains({ child, finished }: ReturnType<typeof start>, text: string): Promise<void> {
  let output = "";
  const written = new Promise<true>((resolve) => {
    child.stderr?.on("data", (chunk: Buffer) => {
      output += chunk.toString("utf8");
      if (output.includes(text)) resolve(true);
    });
  });
  const isWritten = await Promise.race([written, finished.then(() => false)]);
  assert.ok(isWritten, `it ended without ${text}: ${output}`);
}

describe("federation commands", () => {
  it("contain prints the remaining steps in the safe order, each with its exact command [CON-1]", async (t) => {
    const { drawbridge, config, repository } = await deployment(t);
    const { code, stdout, stderr } = await drawbridge("federation", "contain", "lighthouse");
    assert.equal(code, 0, stderr);
    const steps = stdout.split("\n").filter((line) => line.startsWith("    drawbridge"));
    assert.deepEqual(
      steps.map((line) => line.trim()),
      ["gateway", "card", "rooms", "border"].flatMap((plane) => [
        `drawbridge reconcile --config '${config}' --once --plane ${plane}`,
        `drawbridge federation probe lighthouse --config '${config}' --plane ${plane}`,
      ]),
    );
    assert.match(
      stdout,
      /What cannot be taken back:\n {2}- What matrix\.lighthouse\.example:8448 has replicated/,
    );
    assert.match(stderr, /is contained in commit [0-9a-f]{12}/);
    // The record can be read with the command as it is printed.
    const [command = ""] = /git -C .*/.exec(stderr) ?? [];
    const shown = await run("sh", ["-c", command], { cwd: "/" });
    ContainmentRecord.parse(JSON.parse(shown.stdout));

    const again = await drawbridge("federation", "contain", "lighthouse", "--json");
    assert.equal(again.code, 0);
    assert.equal(JSON.parse(again.stdout).already, true);
    const records = await repository.read(await repository.requireHead(), ["records"]);
    assert.equal(records.size, 1);
    for (const text of records.values()) ContainmentRecord.parse(JSON.parse(text));
  });

  it("contain says that broken files were put back, and shows by its command what was committed in them [CON-1]", async (t) => {
    const { drawbridge, repository } = await deployment(t);
    await commitOnTop(repository, new Map([[PILOTS, "allowed: everybody\n"]]));
    const { code, stderr } = await drawbridge("federation", "contain", "lighthouse");
    assert.equal(code, 0, stderr);
    assert.ok(stderr.includes(`  ${PILOTS}\nWhat was committed in them stays in the history`), stderr);
    const command = /git -C .*:FILE.*/.exec(stderr)?.[0].replace("FILE", PILOTS) ?? "";
    assert.equal((await run("sh", ["-c", command], { cwd: "/" })).stdout, "allowed: everybody\n");
  });

  it("restore names first what it cannot repair, and changes nothing while an emergency removal is open [CON-1]", async (t) => {
    const { drawbridge, directory } = await deployment(t);
    const state = openStateFolder(join(directory, "state"), systemRandom);
    const run = writeRun(state, {
      ...{ version: 1, run: "1".repeat(32), kind: "emergency", trigger: "suspected_compromise" },
      ...{
        self: "matrix.harbour.example",
        remover: "matrix.harbour.example",
        partner: "chat.dredger.example",
      },
      ...{ private_record_file: "/nowhere", opened_at: "2026-01-01T00:00:00.000Z", contained_at: null },
      ...{ waivers: [], ended: null, baseline: { revision: "0".repeat(40), scope: NO_SCOPE } },
    });
    const refused = await drawbridge("federation", "restore", "dredger");
    assert.equal(refused.code, 4);
    assert.match(refused.stderr, /an emergency removal .* nothing was changed\nhint: .*offboarding abort/);
    changeRun(run, { ended: { how: "aborted", reason: "a_slip", at: "2026-01-02T00:00:00.000Z" } });
    const { code, stdout } = await drawbridge("federation", "restore", "dredger");
    assert.equal(code, 0);
    assert.match(stdout, /^What a restore cannot repair:\n/);
    const planes = [...stdout.matchAll(/--once --plane (\w+)/g)].map((match) => match[1]);
    assert.deepEqual(planes, ["border", "rooms", "card", "gateway"]);
  });

  it("contain and restore print their order, and status names planes that were never applied [CON-1]", async (t) => {
    const { drawbridge } = await deployment(t);
    for (const [act, order] of [
      ["contain", "In closing order: plane 5 (gateway), plane 4 (card), plane 2 (rooms), plane 3 (border)."],
      ["restore", "In opening order: plane 3 (border), plane 2 (rooms), plane 4 (card), plane 5 (gateway)."],
    ] as const) {
      const { stdout, stderr } = await drawbridge("federation", act, "lighthouse", "--apply");
      for (const plane of ["plane 5 (gateway)", "plane 4 (card)"]) {
        const reported = `${stdout}${stderr}`.split("\n").filter((line) => line.startsWith(plane));
        assert.deepEqual(reported, [`${plane}: not managed here; whoever runs its part has to do it`]);
      }
      const orders = stderr.split("\n").filter((line) => /(?:closing|opening) order/.test(line));
      assert.deepEqual(orders, [order]);
    }
    const { stdout } = await drawbridge("federation", "status");
    assert.match(stdout, /^1 transport .* never applied .*not checked/m);
    assert.match(stdout, /^Never applied: plane 1 \(transport\).*\nhint: drawbridge reconcile --once/m);
  });

  it("reconcile and status list planes that are not managed here as unmanaged, and do not fail [ADO-1]", async (t) => {
    const { drawbridge } = await deployment(t);
    for (const plane of ["gateway", "card"]) {
      const { code, stdout, stderr } = await drawbridge("reconcile", "--once", "--plane", plane);
      assert.equal(code, 0, stderr);
      assert.match(stdout, new RegExp(`^\\d ${plane} +- +- +- +unmanaged +no +-$`, "m"));
    }
    const { stdout } = await drawbridge("federation", "status");
    assert.match(stdout, /^CONTAINED +SERVER +DECLARED CLOSED\ndredger .*gateway$/m);
    assert.match(stdout, /^5 gateway +- +- +- +unmanaged +- +-$/m);
    assert.match(stdout, /^Never applied: plane 1 \(transport\), plane 2 \(rooms\), plane 3 \(border\)\. /m);
  });

  it("exit codes distinguish the kinds of refusal [CON-1]", async (t) => {
    const { drawbridge, repository } = await deployment(t);
    const unknown = await drawbridge("federation", "contain", "lighthosue");
    assert.deepEqual([unknown.code, unknown.stdout], [2, ""]);
    assert.match(unknown.stderr, /hint: Did you mean lighthouse/);
    await commitOnTop(repository, new Map([[PILOTS, "version: 1\n"]]));
    const refused = await drawbridge("reconcile", "--once");
    assert.equal(refused.code, 4);
    assert.match(refused.stderr, /REFUSED: .*registry_invalid/s);
    const status = await drawbridge("federation", "status");
    assert.equal(status.code, 4);
    assert.match(status.stdout, /REFUSED/);
    const elsewhere = await run(process.execPath, [
      ...[cliMain(), "federation", "contain", "lighthouse"],
      ...["--config", "/nonexistent.yaml"],
    ]);
    assert.equal(elsewhere.code, 2);
    assert.match(elsewhere.stderr, /there is no \/nonexistent\.yaml\nhint: Name .* with --config/);
    assert.equal((await drawbridge("reconcile", "--plane", "card")).code, 2);
    assert.equal((await drawbridge("reconcile", "--once", "--plane", "sixth")).code, 2);
  });

  it("a report that its reporter has signed is acted on first, also where the head is refused, and no other is [ABU-1]", async (t) => {
    const { drawbridge, directory, repository, config } = await deployment(t);
    const key = (name: string) => {
      const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
      const file = join(directory, `${name}.pem`);
      writeFileSync(file, privateKey.export({ format: "pem", type: "pkcs8" }), { mode: 0o600 });
      return { file, pin: publicKey.export({ format: "pem", type: "spki" }).toString() };
    };
    const [pilots, dredger, unknown, stranger, removed] = [key("p"), key("d"), key("u"), key("s"), key("r")];
    const parties = Object.entries({
      "pilots.example": pilots,
      "chat.dredger.example": dredger,
      "unknown.example": unknown,
      "salvage.example:443": removed,
    }).map(([organisation, { pin }]) => ({ organisation, keys: [{ text: pin }] }));
    writeFileSync(join(directory, "trust.yaml"), stringify({ version: 1, parties }));
    appendFileSync(config, "offboarding: {signingKey: {file: p.pem}, trustFile: trust.yaml}\n");
    await drawbridge("reconcile", "--once");
    const good = await repository.requireHead();
    // Somebody has put another history in the branch's place.
    operatorGit(
      repository.path,
      "update-ref",
      "refs/heads/main",
      operatorGit(repository.path, "commit-tree", "-m", "Anew", `${good}^{tree}`),
    );
    const file = join(directory, "report.json");
    const report = {
      schema: "svc.federation.abuse-report.v1",
      reporter: { server_name: "harbour.example" },
      subject: { server_name: "matrix.lighthouse.example:8448" },
      ...{ category: "spam", severity: "high", requested_action: "contain", evidence_refs: ["kid:b-1"] },
    };
    const sign = async (
      reporter: string,
      key: string,
      to = "matrix.harbour.example",
      agoMs = 0,
      more: Partial<AbuseReport> = {},
    ) => {
      const signed = { ...report, ...more, reporter: { server_name: reporter } } as AbuseReport;
      writeFileSync(file, await signReport(signed, to, Date.now() - agoMs, fileSigner(key)));
    };
    await sign("pilots.example", pilots.file);
    const records = async (folder: string) =>
      repository.list(await repository.requireHead(), [`records/${folder}`]);

    const without = await drawbridge("federation", "report-abuse", file);
    assert.equal(without.code, 4, without.stderr);
    assert.deepEqual([await records("containment"), await records("abuse")], [[], []]);

    writeFileSync(file, JSON.stringify(report));
    const inAnothersName = await drawbridge("federation", "report-abuse", file, "--sign", "b.test");
    assert.deepEqual([inAnothersName.code, inAnothersName.stdout], [2, ""]);
    assert.match(inAnothersName.stderr, /harbour\.example is named as the reporter, and this is not its key/);
    const refused = async (why: RegExp) => {
      const { code, stderr } = await drawbridge("federation", "report-abuse", file, "--apply");
      assert.equal(code, 1, stderr);
      assert.match(stderr, why);
      assert.deepEqual([await records("containment"), await records("abuse")], [[], []]);
    };
    await refused(/contains nobody: it is not signed; nothing was done/);
    await sign("pilots.example", stranger.file);
    await refused(/its signature does not verify by a pinned key \(unknown_key\)/);
    await sign("reporter.example", pilots.file);
    await refused(/it is signed by another organisation than the reporter/);
    await sign("matrix.harbour.example", pilots.file);
    await refused(/it is signed by another organisation than the reporter/);
    await sign("chat.dredger.example", dredger.file);
    await refused(/its reporter is contained/);
    await sign("unknown.example", unknown.file);
    await refused(/its reporter is no partner/);
    await sign("salvage.example:443", removed.file);
    await refused(/its reporter was removed/);

    await sign("pilots.example", pilots.file, "chat.dredger.example");
    await refused(/it was sent to chat\.dredger\.example/);
    await sign("pilots.example", pilots.file, undefined, 8 * 24 * 3_600_000);
    await refused(/it was sent more than a week ago/);
    await sign("pilots.example", pilots.file, undefined, -3_600_000);
    await refused(/it is dated in the future/);

    const byFileName = { subject: { server_name: "lighthouse" } };
    await sign("pilots.example", pilots.file, undefined, 0, byFileName);
    await refused(/its subject is no partner/);

    await sign("pilots.example", pilots.file);
    const { code, stdout, stderr } = await drawbridge("federation", "report-abuse", file, "--apply");
    assert.equal(code, 5, "the parts are down, so two planes are not closed yet");
    assert.match(stderr, /is contained in commit [0-9a-f]{12}.*SET ASIDE: the head is refused.*Filed: /s);
    assert.match(stdout, /STILL TO BE CLOSED.*"event":"abuse_report"/s);
    assert.deepEqual([(await records("containment")).length, (await records("abuse")).length], [1, 1]);
    assert.ok(readdirSync(join(directory, "evidence")).length > 0);

    // It contains once more as long as nobody has restored the subject, and not afterwards.
    const apply = () => drawbridge("federation", "report-abuse", file, "--apply");
    assert.equal((await apply()).code, 5);
    await drawbridge("federation", "restore", "lighthouse");
    const restored = await records("containment");
    const sentBefore = [
      async () => undefined,
      () => sign("pilots.example", pilots.file),
      () => sign("pilots.example", pilots.file, undefined, 120_000, { category: "malware" }),
    ];
    for (const again of sentBefore) {
      await again(); // As it was; filed before, and sent anew; sent before, and never filed.
      const replayed = await apply();
      assert.equal(replayed.code, 1, replayed.stderr);
      assert.match(
        replayed.stderr,
        /its subject was restored or re-admitted after it was sent or filed; nothing was done/,
      );
      assert.deepEqual(await records("containment"), restored);
    }
  });

  it("evidence --json names the pack, its streams and what is wrong with it [EVD-1]", async (t) => {
    const { drawbridge, directory } = await deployment(t);
    const words = ["federation", "evidence", "lighthouse", "--since", "1h", "--json"];
    const made = await drawbridge(...words, "--output", join(directory, "packs"));
    assert.equal(made.code, 0, made.stderr);
    const { file, streams } = JSON.parse(made.stdout);
    const pack = JSON.parse(readFileSync(file, "utf8"));
    const [{ stream }] = pack.streams;
    assert.deepEqual(streams[0], { stream, state: "absent", matching: 0, refused: 0 });
    assert.match(made.stderr, /^border_violations: absent$/m, "not taken for a stream without lines");
    const verify = () => drawbridge("federation", "evidence", "--verify", file, "--json");
    assert.deepEqual(JSON.parse((await verify()).stdout), { file, problems: [] });
    writeFileSync(file, JSON.stringify({ ...pack, made_at: "2026-01-01T00:00:00.000Z" }));
    const altered = await verify();
    assert.equal(altered.code, 1);
    assert.ok(JSON.parse(altered.stdout).problems.length > 0);
    for (const text of ["yesterday", "999999999d", "800000d", "2999-01-31"]) {
      const refused = await drawbridge(...words.slice(0, 3), "--since", text, "--output", directory);
      assert.equal(refused.code, 2, refused.stderr);
      assert.match(refused.stderr, /--since ("\w+" is no time|has yet to come)/);
    }
  });

  it("a report about an unknown server contains nobody, with --apply as well [ABU-1]", async (t) => {
    const { drawbridge, directory, repository } = await deployment(t);
    const file = join(directory, "report.json");
    const unknown = { server_name: "nobody.example" };
    const report = {
      schema: "svc.federation.abuse-report.v1",
      reporter: { server_name: "harbour.example" },
      ...{ category: "spam", severity: "high", requested_action: "contain", evidence_refs: ["kid:b-1"] },
    };
    writeFileSync(file, JSON.stringify({ ...report, subject: unknown }));
    const head = await repository.requireHead();
    assert.equal((await drawbridge("federation", "report-abuse", file, "--apply")).code, 2);
    assert.equal(await repository.head(), head, "nobody was contained");
  });

  it("a command that waits for another process says for which plane [CON-1]", async (t) => {
    const { config, directory } = await deployment(t);
    const state = openStateFolder(join(directory, "state"), systemRandom);
    const card = await state.tryLock("plane card");
    const words = ["federation", "contain", "lighthouse", "--config", config, "--apply"];
    const contain = start(process.execPath, [cliMain(), ...words]);
    await complains(contain, "plane 4 (card): another process is at work on it; waiting");
    await card?.release();
    assert.match(
      (await contain.finished).stdout,
      /^plane 5 \(gateway\): not managed here.*\nplane 4 \(card\): not managed here.*\nplane 2 \(rooms\): /m,
    );
  });

  it("contain names every plane that is not closed yet when the programs are down [CON-1]", async (t) => {
    const { drawbridge, directory } = await deployment(t);
    const { code, stdout, stderr } = await drawbridge(
      "federation",
      "contain",
      "lighthouse",
      "--apply",
      "--json",
    );
    assert.equal(code, 5, stderr);
    const { planes, already } = JSON.parse(stdout);
    assert.equal(already, false);
    const states = (planes as { plane: string; verdict: string; done: boolean }[]).map(
      ({ plane, verdict, done }) => [plane, verdict, done],
    );
    // This deployment has neither a gateway nor a bridge: nothing is known of these two.
    assert.deepEqual(states, [
      ["gateway", "unmanaged", false],
      ["card", "unmanaged", false],
      ["rooms", "not_met", false],
      ["border", "not_met", false],
    ]);
    const policy = readFileSync(join(directory, "parts/policy.json"), "utf8");
    assert.doesNotMatch(
      policy,
      /lighthouse/,
      "the border has its file, so it closes at the next start at the latest",
    );
    const again = await drawbridge("federation", "contain", "lighthouse", "--apply");
    assert.equal(again.code, 5);
    assert.match(
      again.stdout,
      /^STILL TO BE CLOSED: plane 2 \(rooms\), plane 3 \(border\)\. Repair what is named above/m,
    );
    assert.match(again.stdout, /^ {2}drawbridge federation contain lighthouse --config '.+' --apply$/m);
    const status = await drawbridge("federation", "status", "--json");
    assert.equal(status.code, 5);
    const { contained } = JSON.parse(status.stdout);
    assert.deepEqual(
      (contained as { name: string }[]).map(({ name }) => name),
      ["dredger", "lighthouse"],
    );
  });

  it("the service logs JSON lines, says when it is ready, and ends at SIGTERM [GIT-1]", async (t) => {
    const { config } = await deployment(t);
    const service = start(process.execPath, [cliMain(), "reconcile", "--config", config]);
    t.after(() => service.child.kill("SIGKILL"));
    await service.printed('"event":"ready"');
    service.child.kill("SIGTERM");
    const { code, stdout, stderr } = await service.finished;
    assert.equal(code, 0);
    assert.equal(stderr, "");
    const events = stdout
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line).event);
    assert.ok(events.includes("head_accepted") && events.includes("plane_ended"));
    assert.equal(events.at(-1), "ended");
  });

  it("check:fed-break-glass succeeds without any server [CHK-1]", async () => {
    const { code, stdout } = await run(process.execPath, [
      join(ROOT, "tasks/main.ts"),
      "check:fed-break-glass",
    ]);
    assert.equal(code, 0, stdout);
    assert.doesNotMatch(stdout, /FAILED/);
    assert.match(stdout, /^ok +the border drops the partner, and nobody else$/m);
  });
});
