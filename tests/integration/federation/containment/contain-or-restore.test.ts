// One act on a real repository: what is committed, and what each bad night ends in.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, it } from "node:test";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import { applyPlanes, performAct } from "../../../../src/federation/containment/contain-or-restore.ts";
import { CONTAINMENT_ORDER } from "../../../../src/federation/plane-order.ts";
import { planeOfPath } from "../../../../src/federation/planes/render.ts";
import { acceptedState } from "../../../../src/federation/reconcile/accept-head.ts";
import { runPass } from "../../../../src/federation/reconcile/pass.ts";
import { loadRegistry } from "../../../../src/federation/registry/load.ts";
import { partnerEntry } from "../../../../src/federation/registry/partner.ts";
import type { Revision } from "../../../../src/federation/repository/repository.ts";
import { readHead, writeHead } from "../../../../src/federation/state/plane-records.ts";
import { plan } from "../../../../src/federation/workflow/plan.ts";
import { CONTAIN } from "../../../../src/federation/workflow/procedures.ts";
import {
  AT,
  allowedSigners,
  changedPaths,
  commitOnTop,
  commitRegistry,
  LIGHTHOUSE,
  openControl,
  operatorGit,
  PILOTS,
  signingKey,
} from "../../../support/control-repository.ts";
import { registryFiles } from "../../../support/sample-files.ts";
import { temporaryFolder } from "../../../support/temporary.ts";
import { containedIn, control } from "./containment-repository.ts";

const SERVER = "matrix.lighthouse.example:8448";

describe("containing and restoring a partner", () => {
  it("says how the head is taken up where a repository that was put back lacks what was accepted [CON-1]", async (t) => {
    const { contain, federation, repository } = await control(t);
    const revision = "1".repeat(40) as Revision;
    const accepted = { revision, at: "2026-01-02T03:04:05Z" };
    writeHead(federation.state, { version: 1, accepted, refused: null });
    const head = await repository.requireHead();
    const refused = { code: "head_refused", hint: /reconcile --once --allow-non-fast-forward/ };
    await assert.rejects(contain(), refused);
    await assert.rejects(acceptedState(federation), refused);
    assert.equal(await repository.head(), head);
    await runPass(federation, { allowNonFastForward: true });
    assert.notEqual((await contain()).record, undefined);
  });

  it("contain makes one commit of flag, re-render and record, and restore reverts flag and render [CON-1]", async (t) => {
    const { repository, contain, restore, records, assertWhole, clock } = await control(t);
    const before = await repository.requireHead();
    const rendered = await repository.read(before, ["rendered", "kubernetes"]);
    const { revision, record, recordPath } = await contain(SERVER);
    assert.equal(await repository.head(), revision);
    assert.equal(operatorGit(repository.path, "rev-parse", `${revision}^`), before);
    assert.deepEqual(record, {
      schema: "svc.federation.containment.v1",
      act: "contain",
      server_name: SERVER,
      azp: "lighthouse-bridge",
      classification: "confidential",
      git_revision: before,
      timestamp: "2026-01-02T03:04:05.000Z",
      planes: ["gateway", "card", "rooms", "border"],
    });
    assert.equal(
      recordPath,
      "records/containment/20260102T030405.000Z-matrix.lighthouse.example_8448-contain.json",
    );
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
    const changed = changedPaths(repository, before, revision);
    assert.ok(
      changed.includes("rendered/border/policy.json") && changed.includes("rendered/gateway/clients.yaml"),
    );
    assert.ok(!changed.some((path) => path.includes("transport")), "containment never touches the transport");

    await clock.advance(60_000);
    const restored = await restore();
    assert.deepEqual(containedIn(await assertWhole()), ["dredger"]);
    const after = await repository.read(restored.revision, ["rendered", "kubernetes"]);
    assert.deepEqual(after, rendered, "what is rendered is what it was before");
    assert.deepEqual(
      (await records()).map(({ act }) => act),
      ["contain", "restore"],
    );
  });

  it("contain writes no second record when the partner is contained already [CON-1]", async (t) => {
    const { contain, restore, records, repository } = await control(t);
    await restore();
    assert.deepEqual(await records(), []);
    await contain();
    const head = await repository.head();
    const again = await contain();
    assert.equal(again.record, undefined);
    assert.equal(await repository.head(), head);
    assert.equal((await records()).length, 1);
  });

  it("contain refuses an unknown partner with similar names, and the own server [CON-1]", async (t) => {
    const { contain, repository } = await control(t);
    const head = await repository.head();
    const hintOf = async (name: string) => {
      const error = await contain(name).then(
        () => assert.fail("it was taken"),
        (error: unknown) => error,
      );
      assert.ok(error instanceof DrawbridgeError);
      assert.equal(error.code, "usage");
      return `${error.message} ${error.hint}`;
    };
    assert.match(await hintOf("lighthosue"), /Did you mean lighthouse/);
    assert.match(await hintOf("matrix.lighthouse.example"), /Did you mean matrix\.lighthouse\.example:8448/);
    // `dredgers` is one edit from `dredger`, and others are further away: they are not offered.
    assert.match(await hintOf("dredgers"), /Did you mean dredger\?/);
    assert.match(await hintOf("nobody-at-all.test"), /no partner is called/);
    assert.match(await hintOf("\u001b[2Jx"), /no partner is called \?\[2Jx/);
    const own = loadRegistry(registryFiles()).organisation.serverName;
    assert.match(await hintOf(own), /own server/);
    assert.equal(await repository.head(), head);
  });

  it("concurrent containments make one record for one partner, and one for each of two [CON-1]", async (t) => {
    const one = await control(t);
    const other = await openControl(join(one.directory, "other state"), one.repository, one.clock);
    const act = (name: string, federation = one.federation) => performAct(federation, "contain", name);
    const same = await Promise.all([act("lighthouse"), act("lighthouse", other.federation)]);
    assert.equal(same.filter(({ record }) => record !== undefined).length, 1);
    assert.equal((await one.records()).length, 1);
    await one.clock.advance(1_000);
    await one.restore();
    await one.clock.advance(1_000);
    await Promise.all([act("lighthouse"), act("pilot-station", other.federation)]);
    assert.deepEqual(containedIn(await one.assertWhole()), ["dredger", "lighthouse", "pilot-station"]);
    assert.equal((await one.records()).length, 4);
  });

  it("contain finds a partner that is in force, although a refused head lacks it or names another server there [CON-1]", async (t) => {
    const { contain, repository, federation, assertWhole } = await control(t);
    await runPass(federation);
    const accepted = readHead(federation.state);
    const good = await repository.requireHead();
    const text = registryFiles().get(PILOTS) ?? "";
    const other = text.replaceAll("pilots.example", "others.example");
    const gull: [string, string] = ["registry/partners/gull.yaml", "not: [valid\n"];
    for (const bad of [[[PILOTS, null]], [[PILOTS, null], gull], [[PILOTS, other]]] as const) {
      await commitOnTop(repository, new Map<string, string | null>(bad));
      const { setAside } = await contain("pilot-station");
      assert.equal(setAside?.reason, "head_refused");
      const registry = await assertWhole();
      assert.deepEqual(containedIn(registry), ["dredger", "pilot-station"]);
      assert.equal(partnerEntry(registry, "pilots.example")?.partner.contained, true);
      assert.equal((await runPass(federation)).refusal, undefined);
      operatorGit(repository.path, "update-ref", "refs/heads/main", good);
      writeHead(federation.state, accepted);
    }
  });

  it("contain works whatever a commit has put into the tree [CON-1]", async (t) => {
    const { contain, repository, federation, assertWhole } = await control(t);
    await runPass(federation);
    const accepted = readHead(federation.state);
    const good = await repository.requireHead();
    const git = (args: readonly string[], input = "") =>
      execFileSync("git", args, { cwd: repository.path, input }).toString().trim();
    const blob = git(["hash-object", "-w", "--stdin"], "x");
    let endless = git(["mktree"], `100644 blob ${blob}\tx\n`);
    for (let level = 0; level < 12; level++) {
      const inside = Array.from({ length: 10 }, (_, index) => `040000 tree ${endless}\t${index}\n`);
      endless = git(["mktree"], inside.join(""));
    }
    // Git makes a folder of this name, and reads it into no index.
    const unreadable = git(["mktree"], `100644 blob ${blob}\tconfig\n`);
    const put = (tree: string, ...entries: readonly string[]) => {
      const names = new Set(entries.map((one) => one.split("\t")[1]));
      const kept = git(["ls-tree", tree]).split("\n");
      const all = [...kept.filter((one) => !names.has(one.split("\t")[1])), ...entries];
      return git(["mktree"], `${all.join("\n")}\n`);
    };
    /** Raw, as no program writes it that lists a tree first. */
    const add = (tree: string, mode: string, name: string, id: string) => {
      const raw = execFileSync("git", ["cat-file", "tree", tree], { cwd: repository.path });
      const added = [Buffer.from(`${mode} ${name}\0`, "latin1"), Buffer.from(id, "hex")];
      const items = name.length === 1 ? [...added, raw] : [raw, ...added];
      const write = ["hash-object", "-t", "tree", "-w", "--literally", "--stdin"];
      const input = Buffer.concat(items);
      return execFileSync("git", write, { cwd: repository.path, input }).toString().trim();
    };
    const registry = git(["rev-parse", `${good}:registry`]);
    const partners = git(["rev-parse", `${good}:registry/partners`]);
    const [first, ...others] = git(["ls-tree", partners]).split("\n");
    const parts = [[first], others].map((some) => {
      const inside = git(["mktree"], `${some.join("\n")}\n`);
      return put(registry, `040000 tree ${inside}\tpartners`);
    });
    const text = git(["rev-parse", `${good}:registry/partners/lighthouse.yaml`]);
    const readme = add(registry, "100644", "README.md", unreadable);
    const wrong = add(readme, "100644", "partners/lighthouse.yaml", text);
    const trees = {
      accepted: put(good, `040000 tree ${unreadable}\t.git`, `040000 tree ${endless}\tdocs`),
      // A folder that is called a file, a file that is called a submodule, and a path for a name.
      "accepted: wrong entries": add(
        add(add(put(good, `040000 tree ${wrong}\tregistry`), "100644", "a", unreadable), "160000", "b", blob),
        "100644",
        "z/b",
        blob,
      ),
      "accepted: a registry in two parts": put(good, ...parts.map((part) => `040000 tree ${part}\tregistry`)),
      registry_invalid: put(
        good,
        `040000 tree ${put(registry, `040000 tree ${unreadable}\t.git`)}\tregistry`,
      ),
      "render_differs: a name that is no text": put(
        good,
        `040000 tree ${add(git(["rev-parse", `${good}:rendered`]), "100644", "\xff", blob)}\trendered`,
      ),
      render_differs: put(good, `100644 blob ${blob}\trendered`),
      too_large: put(good, `040000 tree ${put(registry, `040000 tree ${endless}\tdocs`)}\tregistry`),
    };
    for (const [reason, tree] of Object.entries(trees)) {
      const head = operatorGit(repository.path, "commit-tree", "-m", "More", "-p", good, tree);
      operatorGit(repository.path, "update-ref", "refs/heads/main", head);
      assert.equal((await runPass(federation)).refusal?.reason ?? "accepted", reason.split(":")[0], reason);
      await contain();
      assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"], reason);
      assert.equal((await runPass(federation)).refusal, undefined, reason);
      operatorGit(repository.path, "update-ref", "refs/heads/main", good);
      writeHead(federation.state, accepted);
    }
  });

  it("contain puts another partner's broken file back to the last good revision [CON-1]", async (t) => {
    const { contain, restore, repository, federation, assertWhole } = await control(t);
    await runPass(federation);
    const good = await repository.requireHead();
    await commitOnTop(
      repository,
      new Map([
        [PILOTS, "version: 1\nallowed: everybody\n"],
        ["registry/partners/gull.yaml", "not: [valid\n"],
      ]),
    );
    await assert.rejects(restore("dredger"), { code: "head_refused" }, "a restore waits for a good registry");
    const { setAside } = await contain();
    assert.deepEqual(setAside, {
      reason: "registry_invalid",
      lastGood: good,
      paths: ["registry/partners/gull.yaml", PILOTS],
    });
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
    assert.equal((await runPass(federation)).refusal, undefined);
  });

  it("contain leaves out a head that forgets a retirement besides its broken file [CON-1]", async (t) => {
    const { contain, repository, federation, assertWhole } = await control(t);
    const salvage = "registry/partners/salvage.yaml";
    const text = registryFiles().get(salvage) ?? "";
    await commitRegistry(repository, new Map([[salvage, `${text}retired: { clients: [salvage-old] }\n`]]));
    assert.equal((await runPass(federation)).refusal, undefined);
    const good = await repository.requireHead();
    await commitOnTop(
      repository,
      new Map([
        [salvage, text],
        [PILOTS, "version: 0\n"],
      ]),
    );
    assert.equal((await runPass(federation)).refusal?.reason, "registry_invalid");
    const { setAside } = await contain();
    assert.deepEqual(setAside, { reason: "head_refused", lastGood: good, paths: [] });
    assert.equal((await runPass(federation)).refusal, undefined, "the containment is accepted");
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
  });

  it("contain uses the last good revision of the partner's own file when that is broken [CON-1]", async (t) => {
    const { contain, repository, federation, assertWhole } = await control(t);
    await runPass(federation);
    await commitOnTop(repository, new Map([[LIGHTHOUSE, "version: 1\n"]]));
    await contain(SERVER);
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
  });

  it("contain puts all files back that are each valid and contradict one another [CON-1]", async (t) => {
    const { contain, repository, assertWhole } = await control(t);
    const twin = (registryFiles().get(PILOTS) ?? "").replace("azp: ", "azp: lighthouse-bridge # ");
    await commitOnTop(repository, new Map([["registry/partners/twin.yaml", twin]]));
    const { setAside } = await contain();
    assert.equal(setAside?.reason, "registry_invalid");
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
  });

  it("contain renders and records when somebody has set the flag without rendering [CON-1]", async (t) => {
    const { contain, repository, assertWhole } = await control(t);
    const text = `${registryFiles().get(LIGHTHOUSE)}contained: true\n`;
    await commitRegistry(repository, new Map([[LIGHTHOUSE, text]]), { render: false });
    const { record } = await contain();
    assert.notEqual(record, undefined);
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
  });

  it("contain leaves out what a head holds that may not be taken up [CON-1]", async (t) => {
    const keys = temporaryFolder(t);
    const mine = signingKey(keys, "mine");
    const allowedSignersFile = allowedSigners(join(keys, "allowed"), mine.allowed);
    const settings = { allowedSignersFile, signingKeyFile: mine.file };
    const { contain, restore, repository, federation, assertWhole } = await control(t, { settings });
    const base = await repository.requireHead();
    await commitOnTop(repository, new Map([["README.md", "unsigned"]]));
    await assert.rejects(contain(), { code: "head_refused" }, "nothing was ever good");
    operatorGit(repository.path, "update-ref", "refs/heads/main", base);
    await commitOnTop(repository, new Map([["README.md", "signed"]]), { signingKeyFile: mine.file });
    await runPass(federation);
    const good = await repository.requireHead();
    const evil = (registryFiles().get(PILOTS) ?? "").replaceAll("pilot", "evil");
    await commitRegistry(repository, new Map([["registry/partners/evil.yaml", evil]]));
    const unsigned = await repository.requireHead();
    await assert.rejects(restore("dredger"), { code: "head_refused" });
    const { revision, setAside } = await contain();
    assert.deepEqual(setAside, { reason: "head_refused", lastGood: good, paths: [] });
    const parents = operatorGit(repository.path, "log", "-1", "--format=%P", `${revision}^`);
    assert.equal(parents, `${good} ${unsigned}`, "a merge keeps what was refused in the history alone");
    const registry = await assertWhole();
    assert.deepEqual(containedIn(registry), ["dredger", "lighthouse"]);
    assert.ok(!registry.partners.some(({ name }) => name === "evil"));
    assert.equal((await runPass(federation)).refusal, undefined);
  });

  it("a head that brings more commits than can be listed is refused, and contain leaves it out [CON-1] [GIT-1]", async (t) => {
    const keys = temporaryFolder(t);
    const mine = signingKey(keys, "mine");
    const allowedSignersFile = allowedSigners(join(keys, "allowed"), mine.allowed);
    const settings = { allowedSignersFile, signingKeyFile: mine.file };
    const { contain, repository, federation, assertWhole } = await control(t, { settings });
    await commitOnTop(repository, new Map([["README.md", "signed"]]), { signingKeyFile: mine.file });
    await runPass(federation);
    const good = await repository.requireHead();
    // A commit that names one parent many times takes as much of the listing as many commits do.
    const big = execFileSync("git", ["hash-object", "-t", "commit", "-w", "--stdin"], {
      cwd: repository.path,
      input: [
        `tree ${operatorGit(repository.path, "rev-parse", `${good}^{tree}`)}\n`,
        `parent ${good}\n`.repeat(825_000),
        ...["author", "committer"].map((role) => `${role} Any <any@a.test> ${AT / 1_000} +0000\n`),
        "\n",
      ].join(""),
      encoding: "utf8",
    }).trim();
    operatorGit(repository.path, "update-ref", "refs/heads/main", big);
    await commitOnTop(repository, new Map([["README.md", "on top"]]));
    const { refusal } = await runPass(federation);
    assert.equal(refusal?.reason, "too_large");
    const { setAside } = await contain();
    assert.deepEqual(setAside, { reason: "head_refused", lastGood: good, paths: [] });
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
    assert.equal((await runPass(federation)).refusal, undefined);
  });

  it("contain refuses to commit what the reconciler would refuse for its signature [CON-1]", async (t) => {
    const keys = temporaryFolder(t);
    const [mine, other] = [signingKey(keys, "mine"), signingKey(keys, "other")];
    const allowedSignersFile = allowedSigners(join(keys, "allowed"), mine.allowed);
    const refused = async (settings: Readonly<Record<string, string>>, message: RegExp) => {
      const { contain, repository, federation } = await control(t, {
        settings: { allowedSignersFile, ...settings },
      });
      await commitOnTop(repository, new Map([["README.md", "signed"]]), { signingKeyFile: mine.file });
      await runPass(federation);
      const head = await repository.head();
      await assert.rejects(contain(), { code: "config_invalid", message });
      assert.equal(await repository.head(), head);
      assert.equal((await runPass(federation)).refusal, undefined);
    };
    await refused({}, /signingKeyFile is not set; nothing was changed/);
    await refused({ signingKeyFile: other.file }, /the key of repository\.signingKeyFile is not among them/);
  });

  it("contain works on top of a commit in the future, by whoever may commit [CON-1] [GIT-1]", async (t) => {
    const keys = temporaryFolder(t);
    const [own, other] = [signingKey(keys, "own"), signingKey(keys, "other")];
    // The machine's own key expires, so that it could sign nothing that is dated as late.
    const expiring = own.allowed.replace('namespaces="git"', 'namespaces="git",valid-before="20270101"');
    const allowedSignersFile = allowedSigners(join(keys, "allowed"), expiring, other.allowed);
    const settings = { allowedSignersFile, signingKeyFile: own.file };
    const { federation, repository, contain, assertWhole } = await control(t, { settings });
    await runPass(federation);
    const good = await repository.requireHead();
    await commitOnTop(repository, new Map([["README.md", "Later"]]), {
      signingKeyFile: other.file,
      at: Date.UTC(2090, 0, 1),
    });
    const { refusal, revision } = await runPass(federation);
    assert.equal(refusal?.reason, "date_not_possible");
    assert.equal(revision, good);
    const act = await contain();
    assert.equal((await runPass(federation)).refusal, undefined);
    assert.equal(await repository.head(), act.revision);
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
  });

  it("contain works when the branch was moved to another history [CON-1]", async (t) => {
    const { contain, repository, federation, assertWhole } = await control(t);
    await runPass(federation);
    const good = await repository.requireHead();
    operatorGit(
      repository.path,
      "update-ref",
      "refs/heads/main",
      operatorGit(repository.path, "commit-tree", "-m", "Anew", `${good}^{tree}`),
    );
    const { revision } = await contain();
    assert.ok(await repository.isAncestor(good, revision));
    assert.deepEqual(containedIn(await assertWhole()), ["dredger", "lighthouse"]);
    assert.equal((await runPass(federation)).refusal, undefined);
  });

  it("plan shows what a containment changes on each plane, and changes nothing [CON-1]", async (t) => {
    const { repository, federation } = await control(t);
    const head = await repository.head();
    const { steps } = await plan(federation, CONTAIN, "lighthouse");
    assert.deepEqual(
      steps.map(({ plane, restarts }) => [plane, restarts]),
      CONTAINMENT_ORDER.map((plane) => [plane, null]),
    );
    const border = steps.find(({ plane }) => plane === "border")?.files ?? [];
    assert.match(
      border.find(({ path }) => path === "rendered/border/policy.json")?.diff ?? "",
      new RegExp(`^-.*${SERVER}`, "m"),
    );
    assert.ok(steps.every(({ plane, files }) => files.every(({ path }) => planeOfPath(path) === plane)));
    assert.equal(await repository.head(), head);
  });

  it("contain works around a refused commit that was pushed on top of the act when it is run again [CON-1]", async (t) => {
    const { contain, repository, federation } = await control(t);
    await runPass(federation);
    const { partner } = await contain();
    await commitRegistry(repository, new Map([[PILOTS, "version: 0\n"]]), { render: false });
    await assert.rejects(applyPlanes(federation, "contain", partner), (error: unknown) => {
      assert.ok(error instanceof DrawbridgeError);
      assert.match(error.message, /what was committed is not in force/);
      assert.match(error.hint ?? "", /^Give the same command again/);
      return true;
    });
    const again = await contain();
    assert.equal(again.setAside?.reason, "registry_invalid");
    assert.ok((await applyPlanes(federation, "contain", again.partner)).every(({ done }) => done));
  });
});
