// Which heads of the branch a pass accepts, and what is in force when it refuses one.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { performAct } from "../../../../src/federation/containment/contain-or-restore.ts";
import { federationStatus } from "../../../../src/federation/containment/federation-status.ts";
import { PLANE_NAMES } from "../../../../src/federation/plane-order.ts";
import { acceptedState } from "../../../../src/federation/reconcile/accept-head.ts";
import { runPass } from "../../../../src/federation/reconcile/pass.ts";
import { type Revision, writeCommit } from "../../../../src/federation/repository/repository.ts";
import { readHead } from "../../../../src/federation/state/plane-records.ts";
import {
  AUTHOR,
  allowedSigners,
  commitOnTop,
  commitRegistry,
  LIGHTHOUSE,
  openControl,
  operatorGit,
  PILOTS,
  signingKey,
} from "../../../support/control-repository.ts";
import { setPlane } from "../../../support/edit-partner.ts";
import { registryFiles } from "../../../support/sample-files.ts";
import { temporaryFolder } from "../../../support/temporary.ts";
import { control, lighthouseWith } from "./pass-repository.ts";

describe("accepting the branch's head", () => {
  it("an invalid registry, a differing render, a rewind and a missing branch leave the last good revision in force [GIT-1]", async (t) => {
    const { pass, events, parts, federation, repository, target } = await control(t);
    await pass();
    const good = await repository.requireHead();
    const policy = readFileSync(target("border/policy.json"), "utf8");
    const bad = {
      registry_invalid: () =>
        commitOnTop(repository, new Map([[PILOTS, "version: 1\nallowed: everybody\n"]])),
      render_differs: () =>
        commitOnTop(repository, new Map([["rendered/border/policy.json", '{"allowed_servers":["x"]}\n']])),
      not_descendant: async () => {
        const made = operatorGit(repository.path, "commit-tree", "-m", "Anew", `${good}^{tree}`);
        operatorGit(repository.path, "update-ref", "refs/heads/main", made);
      },
      branch_missing: async () => void operatorGit(repository.path, "update-ref", "-d", "refs/heads/main"),
    };
    for (const [reason, make] of Object.entries(bad)) {
      await make();
      const result = await pass({ checkDrift: true });
      assert.equal(result.refusal?.reason, reason);
      assert.equal(result.revision, good, "the last good revision");
      assert.deepEqual(parts.applied, []);
      assert.equal(events.find(({ event }) => event === "head_refused")?.event, "head_refused");
      assert.equal((await federationStatus(federation)).refused?.reason, reason);
      assert.equal(readHead(federation.state).refused?.reason, reason);
      // What is in force is still looked after.
      writeFileSync(target("border/policy.json"), "by hand");
      await pass({ checkDrift: true });
      assert.equal(readFileSync(target("border/policy.json"), "utf8"), policy);
      operatorGit(repository.path, "update-ref", "refs/heads/main", good);
    }
    assert.equal((await pass()).refusal, undefined);
    assert.equal(readHead(federation.state).refused, null);
  });

  it("an extra file below rendered/ makes the render differ [GIT-1]", async (t) => {
    const { pass, repository } = await control(t);
    await commitOnTop(repository, new Map([["rendered/border/extra.json", "{}\n"]]));
    const { refusal, planes } = await pass();
    assert.equal(refusal?.reason, "render_differs");
    assert.deepEqual(planes, [], "nothing was ever good, so nothing is applied");
  });

  it("a rewind is accepted only with allowNonFastForward [GIT-1]", async (t) => {
    const { pass, close, repository } = await control(t);
    const first = await repository.requireHead();
    await close("card");
    await pass();
    operatorGit(repository.path, "update-ref", "refs/heads/main", first);
    assert.equal((await pass()).refusal?.reason, "not_descendant");
    const result = await pass({ allowNonFastForward: true });
    assert.equal(result.revision, first);
    assert.equal((await pass()).refusal, undefined);
  });

  it("a signed commit on top of an unsigned one is refused, and the end of a containment in it has no effect [GIT-1]", async (t) => {
    const keys = temporaryFolder(t);
    const mine = signingKey(keys, "mine");
    const allowedSignersFile = allowedSigners(join(keys, "allowed"), mine.allowed);
    const { pass, parts, federation, repository } = await control(t, { allowedSignersFile });
    const sign = { signingKeyFile: mine.file };
    await commitRegistry(repository, new Map([[LIGHTHOUSE, lighthouseWith("contained: true")]]), sign);
    assert.equal((await pass()).refusal, undefined);
    const good = await repository.requireHead();

    await commitRegistry(repository, new Map([[LIGHTHOUSE, registryFiles().get(LIGHTHOUSE) ?? ""]]));
    const unsigned = await repository.requireHead();
    assert.equal((await pass()).refusal?.reason, "signature_not_allowed");
    await commitOnTop(repository, new Map([["README.md", "A word corrected"]]), sign);
    const { refusal, revision } = await pass();
    assert.equal(refusal?.reason, "signature_not_allowed");
    assert.ok(refusal.detail.startsWith(unsigned), "the commit that nobody signed is named");
    assert.equal(revision, good);
    assert.deepEqual(parts.applied, []);
    const { contained } = await federationStatus(federation);
    assert.deepEqual(contained.map(({ name }) => name).sort(), ["dredger", "lighthouse"]);
  });

  it("nothing is accepted for the first time while any commit since the trusted base is unsigned [GIT-1]", async (t) => {
    const keys = temporaryFolder(t);
    const [mine, foreign] = [signingKey(keys, "mine"), signingKey(keys, "foreign")];
    const allowedSignersFile = allowedSigners(join(keys, "allowed"), mine.allowed);
    const { pass, parts, repository, directory, clock } = await control(t, { allowedSignersFile });
    await commitOnTop(repository, new Map([["README.md", "1"]]), { signingKeyFile: foreign.file });
    assert.equal((await pass()).refusal?.reason, "signature_not_allowed");
    await commitOnTop(repository, new Map([["README.md", "2"]]), { signingKeyFile: mine.file });
    assert.equal((await pass()).refusal?.reason, "signature_not_allowed");
    assert.deepEqual(parts.applied, []);
    const trustedBase = operatorGit(repository.path, "rev-parse", "main^");
    const other = await openControl(directory, repository, clock, { allowedSignersFile, trustedBase });
    assert.equal((await runPass(other.federation)).refusal, undefined);
  });

  it("a head that retires less than the last accepted one is refused, whatever else it changes [GIT-1] [RDM-1]", async (t) => {
    const { pass, federation, repository } = await control(t);
    const closed =
      "planes: {transport: closed, rooms: closed, border: closed, card: closed, gateway: closed}";
    const key = `{keyId: card-3, thumbprint: "sha256:${"a".repeat(64)}"}`;
    const pilots = (...lines: string[]) => [registryFiles().get(PILOTS)?.trimEnd(), ...lines, ""].join("\n");
    const withLines = (...lines: string[]) => new Map([[PILOTS, pilots(...lines)]]);
    const retired = `retired: {cardKeys: [${key}], clients: [gone, gone-2], serverKeys: ["ed25519:old"]}`;
    await commitRegistry(repository, withLines(closed, retired));
    assert.equal((await pass()).refusal, undefined);
    const good = await repository.requireHead();

    const renamed = "registry/partners/renamed.yaml";
    const weaker: Readonly<Record<string, ReadonlyMap<string, string | null>>> = {
      "the planes opened again without the list": new Map([[PILOTS, registryFiles().get(PILOTS) ?? ""]]),
      "the list gone while all stays closed": withLines(closed),
      "a client gone": withLines(closed, retired.replace(", gone-2", "")),
      "a server key exchanged": withLines(closed, retired.replace("ed25519:old", "ed25519:new")),
      "a card key without its thumbprint": withLines(closed, retired.replace(key, "{keyId: card-3}")),
      "the entry deleted": new Map([[PILOTS, null]]),
      "the entry renamed, without the list": new Map([
        [PILOTS, null],
        [renamed, pilots(closed)],
      ]),
    };
    for (const [name, changes] of Object.entries(weaker)) {
      await commitRegistry(repository, changes);
      const { refusal, revision } = await pass();
      assert.equal(refusal?.reason, "retirement_withdrawn", name);
      assert.ok(refusal.detail.startsWith(PILOTS), refusal.detail);
      assert.equal(revision, good, name);
      operatorGit(repository.path, "update-ref", "refs/heads/main", good);
    }
    const before = await repository.history(good, 2);
    operatorGit(repository.path, "update-ref", "refs/heads/main", before[1] ?? assert.fail());
    assert.equal((await pass({ allowNonFastForward: true })).refusal?.reason, "retirement_withdrawn");
    operatorGit(repository.path, "update-ref", "refs/heads/main", good);

    await commitRegistry(
      repository,
      new Map([
        [PILOTS, null],
        [renamed, pilots(closed, retired.replace("[gone,", "[gone-3, gone,"))],
      ]),
    );
    assert.equal((await pass()).refusal, undefined, "a longer list, and another file name");
    assert.equal(readHead(federation.state).accepted?.revision, await repository.requireHead());
  });

  it("a commit that takes back what one before it retired is refused, whether a pass came in between or nothing was accepted yet [GIT-1] [RDM-1]", async (t) => {
    const keys = temporaryFolder(t);
    const mine = signingKey(keys, "mine");
    const allowedSignersFile = allowedSigners(join(keys, "allowed"), mine.allowed);
    const { pass, repository, directory, clock } = await control(t, { allowedSignersFile });
    assert.equal((await pass()).refusal, undefined);
    const good = await repository.requireHead();
    const text = registryFiles().get(PILOTS) ?? "";
    const closed = PLANE_NAMES.reduce((found, plane) => setPlane(found, plane, "closed"), text);
    const retire = (found: string) => `${found}retired: {clients: [pilot-gone]}\n`;
    const commit = (found: string, render = true) =>
      commitRegistry(repository, new Map([[PILOTS, found]]), { render, signingKeyFile: mine.file });

    // What could not have been accepted either has retired nothing.
    await commit(retire(closed), false);
    await commit(text);
    assert.equal((await pass()).refusal, undefined, "the files that it renders were never committed");
    const base = await repository.requireHead();

    await commit(retire(closed));
    const removed = await repository.requireHead();
    await commit(text);
    const { refusal, revision } = await pass();
    assert.equal(refusal?.reason, "retirement_withdrawn");
    assert.ok(refusal.detail.startsWith(PILOTS), refusal.detail);
    assert.equal(revision, base);

    const fresh = async (trustedBase: string) => {
      rmSync(join(directory, "state"), { recursive: true });
      const other = await openControl(directory, repository, clock, { allowedSignersFile, trustedBase });
      return (await runPass(other.federation)).refusal?.reason;
    };
    assert.equal(await fresh(good), "retirement_withdrawn");
    assert.equal(await fresh(removed), undefined, "the history up to the trusted base is trusted");

    // A merge whose first parent is from before the removal.
    const mergeOf = async (...parents: readonly Revision[]) => {
      const message = "Merge";
      const common = { parents, changes: new Map(), message, author: AUTHOR, at: clock.now() };
      const made = await writeCommit(repository, { ...common, signingKeyFile: mine.file });
      operatorGit(repository.path, "update-ref", "refs/heads/main", made);
    };
    await mergeOf(base, removed);
    assert.equal(await fresh(good), "retirement_withdrawn");
    operatorGit(repository.path, "update-ref", "refs/heads/main", base);
    const unsigned = await commitRegistry(repository, new Map([[PILOTS, retire(closed)]]));
    await mergeOf(base, unsigned);
    assert.equal(await fresh(good), undefined, "what nobody has signed has retired nothing");

    const tree = (entry: string, id: string) => {
      writeFileSync(join(keys, "tree"), Buffer.concat([Buffer.from(`${entry}\0`), Buffer.from(id, "hex")]));
      return operatorGit(repository.path, "hash-object", "-t", "tree", "-w", join(keys, "tree"));
    };
    const noFile = tree("100644 x.yaml", "1".repeat(40));
    const odd = tree("40000 registry", noFile);
    await mergeOf(base, operatorGit(repository.path, "commit-tree", "-m", "x", "-p", base, odd) as Revision);
    assert.equal(await fresh(good), undefined, "and nothing of it is read");
  });

  it("a removed partner with a new client is admitted by no commit without the record of its re-admission [OFF-5] [RDM-1]", async (t) => {
    const { pass, repository } = await control(t);
    const text = registryFiles().get(PILOTS) ?? "";
    const closed = PLANE_NAMES.reduce((found, plane) => setPlane(found, plane, "closed"), text);
    const [azp = assert.fail()] = /(?<=^azp: )\S+/m.exec(text) ?? [];
    const removed = `${closed}retired: {clients: [${azp}]}\n`;
    await commitRegistry(repository, new Map([[PILOTS, removed]]));
    assert.equal((await pass()).refusal, undefined);
    const good = await repository.requireHead();

    const renewed = removed.replace(`azp: ${azp}`, "azp: pilots-renewed");
    const [serverName = assert.fail()] = /(?<=^serverName: )\S+/m.exec(text) ?? [];
    const record = {
      ...{ schema: "svc.federation.readmission.v1", act: "opened", readmission: "1".repeat(32) },
      ...{ server_name: serverName, azp: "pilots-renewed", approval: "CHG-1", git_revision: good },
      ...{ timestamp: "2026-05-04T10:00:00.000Z", rooms: null, rooms_replaced: 0, planes: [] },
      retired: { card_keys: [], clients: [azp], server_keys: [] },
      new_identities: `sha256:${"0".repeat(64)}`,
    };
    const refusalWith = async (registry: string, written?: object) => {
      operatorGit(repository.path, "update-ref", "refs/heads/main", good);
      await commitRegistry(repository, new Map([[PILOTS, registry]]));
      if (written !== undefined) {
        const path = "records/readmission/a.json";
        await commitOnTop(repository, new Map([[path, JSON.stringify(written)]]));
      }
      return (await pass()).refusal;
    };
    for (const plane of PLANE_NAMES) {
      const refusal = await refusalWith(setPlane(renewed, plane, "open"));
      assert.equal(refusal?.reason, "readmission_missing", plane);
      assert.ok(refusal.detail.startsWith(PILOTS), refusal.detail);
    }
    const open = setPlane(renewed, "transport", "open");
    for (const other of [
      { azp },
      { server_name: "other.example" },
      { act: "completed" },
      { approval: undefined },
    ]) {
      assert.equal((await refusalWith(open, { ...record, ...other }))?.reason, "readmission_missing");
    }
    assert.equal(await refusalWith(open, record), undefined);
  });

  it("no commit by hand ends a containment: by clearing the flag, deleting the entry or naming another server in it [CON-1]", async (t) => {
    const { pass, repository, federation, clock } = await control(t);
    const contained = `${registryFiles().get(PILOTS) ?? ""}contained: true\n`;
    await commitRegistry(repository, new Map([[PILOTS, contained]]));
    assert.equal((await pass()).refusal, undefined);
    const good = await repository.requireHead();
    const [serverName = assert.fail()] = /(?<=^serverName: )\S+/m.exec(contained) ?? [];
    const renamed = contained.replace(serverName, `${serverName}:8448`);
    for (const text of [null, renamed, registryFiles().get(PILOTS) ?? null]) {
      operatorGit(repository.path, "update-ref", "refs/heads/main", good);
      await commitRegistry(repository, new Map([[PILOTS, text]]));
      const { refusal, revision } = await pass();
      assert.deepEqual([refusal?.reason, revision], ["containment_withdrawn", good]);
    }
    assert.ok((await federationStatus(federation)).contained.some((one) => one.serverName === serverName));
    // Another partner is contained all the same, and the entry's file may have another name.
    const { setAside } = await performAct(federation, "contain", "lighthouse");
    assert.equal(setAside?.reason, "head_refused");
    assert.equal((await pass()).refusal, undefined);
    const moved = PILOTS.replace("pilot-station", "pilots");
    await commitRegistry(
      repository,
      new Map([
        [PILOTS, null],
        [moved, contained],
      ]),
    );
    assert.equal((await pass()).refusal, undefined);
    // A record of an earlier restore does not stand for a later one: after a later containment, nor after a pass.
    const refuses = async () => {
      await commitRegistry(repository, new Map([[moved, registryFiles().get(PILOTS) ?? null]]));
      assert.equal((await pass()).refusal?.reason, "containment_withdrawn");
    };
    await performAct(federation, "restore", "pilots");
    await clock.advance(1);
    const { revision } = await performAct(federation, "contain", "pilots");
    await refuses();
    operatorGit(repository.path, "update-ref", "refs/heads/main", revision);
    await clock.advance(1);
    await performAct(federation, "restore", "pilots");
    await commitRegistry(repository, new Map([[moved, contained]]));
    assert.equal((await pass()).refusal, undefined);
    await refuses();
  });

  it("a head whose files in kubernetes/ are not what the registry renders is refused [GIT-1]", async (t) => {
    const { pass, repository, directory, close } = await control(t);
    const opened = (await repository.read(await repository.requireHead(), ["kubernetes/gateway"])).entries();
    const before = new Map(opened);
    assert.ok(before.size > 0);
    await close("gateway");
    await pass();
    const good = await repository.requireHead();
    // A submodule, which a program that follows the folder would check out as well.
    const submodule = `160000,${good},kubernetes/gateway/more`;
    const changes: Readonly<Record<string, () => unknown>> = {
      "the closed client again": () => commitOnTop(repository, before),
      "a file that nothing renders": () =>
        commitOnTop(repository, new Map([["kubernetes/kustomization.yaml", "patches: []\n"]])),
      "a submodule": () => {
        const env = { GIT_INDEX_FILE: join(directory, "index") };
        const git = (...args: readonly string[]) =>
          execFileSync("git", args, { cwd: repository.path, env: { ...process.env, ...env } });
        git("read-tree", good);
        git("update-index", "--add", "--cacheinfo", submodule);
        const tree = git("write-tree").toString().trim();
        const made = operatorGit(repository.path, "commit-tree", "-m", "More", "-p", good, tree);
        operatorGit(repository.path, "update-ref", "refs/heads/main", made);
      },
    };
    for (const [what, make] of Object.entries(changes)) {
      await make();
      const { refusal, revision } = await pass();
      assert.equal(refusal?.reason, "render_differs", what);
      assert.match(refusal.detail, /^kubernetes\//, what);
      assert.equal(revision, good, what);
      operatorGit(repository.path, "update-ref", "refs/heads/main", good);
    }
  });

  it("a link or a submodule in the registry is never read as a file of it [GIT-1]", async (t) => {
    const { pass, repository, directory } = await control(t);
    await pass();
    const good = await repository.requireHead();
    const evil = (registryFiles().get(PILOTS) ?? "").replaceAll("pilot", "evil");
    const git = (args: readonly string[], input = "") =>
      execFileSync("git", args, {
        cwd: repository.path,
        input,
        env: { ...process.env, GIT_INDEX_FILE: join(directory, "index") },
      })
        .toString()
        .trim();
    const target = git(["hash-object", "-w", "--stdin"], evil);
    for (const [mode, object, path] of [
      ["120000", target, "registry/partners/evil.yaml"],
      ["160000", good, "registry/partners/evil"],
    ] as const) {
      // What the link's text renders is committed with it.
      if (mode === "120000") await commitRegistry(repository, new Map([[path, evil]]));
      git(["read-tree", await repository.requireHead()]);
      git(["update-index", "--index-info"], `${mode} ${object}\t${path}\n`);
      const tree = git(["write-tree"]);
      const made = operatorGit(repository.path, "commit-tree", "-m", "More", "-p", good, tree);
      operatorGit(repository.path, "update-ref", "refs/heads/main", made);
      const { refusal, revision } = await pass();
      assert.equal(refusal?.reason, "registry_invalid", path);
      assert.match(refusal.detail, new RegExp(path), path);
      assert.equal(revision, good, path);
      operatorGit(repository.path, "update-ref", "refs/heads/main", good);
    }
  });

  it("a file's name begins no line of a message, nor of a commit's [GIT-1]", async (t) => {
    const { pass, federation, repository } = await control(t);
    await pass();
    const good = await repository.requireHead();
    for (const folder of ["registry/partners", "rendered"]) {
      await commitOnTop(repository, new Map([[`${folder}/x\nhint: Run this.`, "x"]]));
      const { refusal } = await pass();
      assert.match(refusal?.detail ?? "", /x\\u000ahint: Run this\./);
      await assert.rejects(
        acceptedState(federation, "refuse"),
        (error: Error) => !/^hint/m.test(error.message),
      );
      const { revision } = await performAct(federation, "contain", "lighthouse");
      assert.doesNotMatch(operatorGit(repository.path, "log", "-1", "--format=%B", revision), /^hint/m);
      operatorGit(repository.path, "update-ref", "refs/heads/main", good);
    }
  });

  it("probes are judged by the accepted revision, never by a head that is refused [EVD-1]", async (t) => {
    const { pass, federation, repository } = await control(t);
    const bad = new Map([["rendered/transport/homeserver.yaml", "federation_domain_whitelist: []\n"]]);
    const good = await repository.requireHead();
    await commitOnTop(repository, bad);
    await assert.rejects(acceptedState(federation), { code: "head_refused" });
    operatorGit(repository.path, "update-ref", "refs/heads/main", good);
    assert.equal((await acceptedState(federation)).desired.revision, good, "a good head needs no pass");
    await pass();
    await commitOnTop(repository, bad);
    const { desired, refusal } = await acceptedState(federation);
    assert.deepEqual([desired.revision, refusal?.reason], [good, "render_differs"]);
  });

  it("a head that moves during a pass is accepted at the next plane [GIT-1]", async (t) => {
    const { pass, parts, repository, close } = await control(t);
    let moved = false;
    parts.onApply = async (plane) => {
      if (plane !== "card" || moved) return;
      moved = true;
      await close("gateway");
    };
    const { revision } = await pass();
    assert.equal(revision, await repository.requireHead());
    assert.deepEqual(parts.applied, ["gateway", "card", "gateway", "rooms", "border", "transport"]);
  });
});
