import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chownSync, existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { gitLine } from "../../../../src/federation/repository/git.ts";
import { Repository, type Revision, writeCommit } from "../../../../src/federation/repository/repository.ts";
import {
  AT,
  AUTHOR,
  bareRepository,
  commitOnTop,
  operatorGit,
  workTree,
} from "../../../support/control-repository.ts";
import { run, temporaryFolder, writeFile } from "../../../support/temporary.ts";

const FILES = {
  "registry/organisation.yaml": "version: 1\n",
  "registry/partners/org-b.yaml": "serverName: b.test # ümlaut\n",
  "README.md": "Read me.\n",
};

describe("git repository", () => {
  it("a revision is read whole, with one call of git for all its texts [GIT-1]", async (t) => {
    const repository = await bareRepository(join(temporaryFolder(t), "control.git"), FILES);
    const head = await repository.requireHead();
    const files = await repository.read(head, ["registry"]);
    assert.deepEqual(Object.fromEntries(files), {
      "registry/organisation.yaml": "version: 1\n",
      "registry/partners/org-b.yaml": "serverName: b.test # ümlaut\n",
    });
  });

  it("a revision is read from git once, and the branch's head each time [GIT-1]", async (t) => {
    const folder = join(temporaryFolder(t), "control.git");
    const repository = await bareRepository(folder, FILES);
    const head = await repository.requireHead();
    const files = await repository.read(head, ["registry"]);
    const changes = new Map([["registry/partners/org-b.yaml", "serverName: c.test\n"]]);
    const next = await commitOnTop(repository, changes, { message: "Name another\n" });
    assert.equal(
      (await repository.read(next, ["registry"])).get("registry/partners/org-b.yaml"),
      "serverName: c.test\n",
    );
    // Nothing is left to be read again.
    rmSync(join(folder, "objects"), { recursive: true });
    assert.deepEqual(await repository.read(head, ["registry"]), files);
    await assert.rejects(repository.read(head, ["records"]), { code: "repository_unusable" });
    assert.equal(await repository.head(), next);
    rmSync(join(folder, "refs", "heads", "main"));
    assert.equal(await repository.head(), undefined);
  });

  it("a folder whose mode is written unusually is listed with its files, as git lists it", async (t) => {
    const repository = await bareRepository(join(temporaryFolder(t), "control.git"), FILES);
    const head = await repository.requireHead();
    const partners = operatorGit(repository.path, "rev-parse", `${head}:registry/partners`);
    const tree = Buffer.concat([Buffer.from("040000 partners\0"), Buffer.from(partners, "hex")]);
    const write = ["hash-object", "-t", "tree", "-w", "--literally", "--stdin"];
    const id = execFileSync("git", ["-C", repository.path, ...write], {
      input: tree,
      encoding: "utf8",
    }).trim();
    const commit = operatorGit(repository.path, "commit-tree", "-m", "Unusual", id) as Revision;
    const paths = (await repository.list(commit, ["partners"])).map(({ path }) => path);
    assert.deepEqual(paths, ["partners/org-b.yaml"]);
  });

  it("a text that is not UTF-8 is never taken for valid text", async (t) => {
    const folder = join(temporaryFolder(t), "control");
    workTree(folder, FILES);
    writeFileSync(join(folder, "registry/partners/org-c.yaml"), Buffer.from([0x61, 0xff, 0xfe, 0x0a]));
    operatorGit(folder, "add", "--all");
    operatorGit(folder, "commit", "--quiet", "--message=Binary");
    operatorGit(folder, "clone", "--quiet", "--bare", ".", `${folder}.git`);
    const repository = await Repository.open(`${folder}.git`, "main");
    const files = await repository.read(await repository.requireHead(), ["registry/partners"]);
    assert.match(files.get("registry/partners/org-c.yaml") ?? "", /^\0/);
  });

  it("a commit holds exactly the changes, on top of its parent, without a work tree [GIT-1]", async (t) => {
    const repository = await bareRepository(join(temporaryFolder(t), "control.git"), FILES);
    const head = await repository.requireHead();
    const made = await commitOnTop(
      repository,
      new Map<string, string | null>([
        ["registry/partners/org-b.yaml", null],
        ["rendered/border/policy.json", "{}\n"],
        ["records/a name with spaces.json", "{}\n"],
      ]),
      { message: "Contain b.test\n\nWhy.\n" },
    );
    assert.equal(await repository.head(), made);
    assert.equal(operatorGit(repository.path, "rev-parse", `${made}^`), head);
    assert.deepEqual(operatorGit(repository.path, "diff", "--name-status", head, made).split("\n"), [
      "A\trecords/a name with spaces.json",
      "D\tregistry/partners/org-b.yaml",
      "A\trendered/border/policy.json",
    ]);
    assert.equal(
      operatorGit(repository.path, "log", "-1", "--format=%s|%an|%cI"),
      `Contain b.test|${AUTHOR.name}|2026-01-02T03:04:05+00:00`,
    );
  });

  it("the branch moves only from the commit that a change was built on [GIT-1]", async (t) => {
    const repository = await bareRepository(join(temporaryFolder(t), "control.git"), FILES);
    const head = await repository.requireHead();
    const make = (text: string) =>
      writeCommit(repository, {
        parents: [head],
        changes: new Map([["README.md", text]]),
        message: text,
        author: AUTHOR,
        at: AT,
      });
    const [one, two] = [await make("one"), await make("two")];
    const moved = await Promise.all([
      repository.advance(head, one, "one"),
      repository.advance(head, two, "two"),
    ]);
    assert.deepEqual([...moved].sort(), [false, true]);
    assert.equal(await repository.head(), moved[0] ? one : two);
  });

  it("a branch whose lock was left behind is reported with a hint, and is not moved", async (t) => {
    const repository = await bareRepository(join(temporaryFolder(t), "control.git"), FILES);
    const head = await repository.requireHead();
    writeFileSync(join(repository.path, "refs/heads/main.lock"), "");
    await assert.rejects(
      commitOnTop(repository, new Map([["README.md", "x"]])),
      (error: Error & { hint?: string }) => {
        assert.match(error.hint ?? "", /remove the lock file/);
        return true;
      },
    );
    assert.equal(await repository.head(), head);
  });

  it("a folder that is no repository, or lies inside another, is refused", async (t) => {
    const folder = temporaryFolder(t);
    workTree(join(folder, "control"), FILES);
    for (const path of ["absent", "control/registry", "."]) {
      await assert.rejects(Repository.open(join(folder, path), "main"), { code: "repository_unusable" });
    }
    const { path: bare } = await bareRepository(join(folder, "control.git"), FILES);
    const other = await Repository.open(bare, "absent");
    assert.equal(await other.head(), undefined);
    await assert.rejects(other.requireHead(), { code: "repository_unusable" });
  });

  it("hooks, replacement objects and settings of the caller do not reach git", async (t) => {
    const folder = temporaryFolder(t);
    const repository = await bareRepository(join(folder, "control.git"), FILES);
    const before = await repository.requireHead();
    const trap = join(folder, "trapped");
    for (const hook of ["reference-transaction", "post-update", "pre-commit"]) {
      writeFile(join(repository.path, "hooks", hook), `#!/bin/sh\ntouch '${trap}'\n`, 0o755);
    }
    writeFile(
      join(folder, "caller.gitconfig"),
      `[core]\n\tfsmonitor = touch '${trap}'\n[user]\n\tname = Somebody\n`,
    );
    const kept = { ...process.env };
    t.after(() => {
      for (const name of ["GIT_DIR", "GIT_CONFIG_GLOBAL"]) {
        if (kept[name] === undefined) delete process.env[name];
        else process.env[name] = kept[name];
      }
    });
    process.env["GIT_DIR"] = join(folder, "elsewhere");
    process.env["GIT_CONFIG_GLOBAL"] = join(folder, "caller.gitconfig");
    const made = await commitOnTop(repository, new Map([["README.md", "new"]]));
    const again = await Repository.open(repository.path, "main");
    assert.equal(await again.head(), made);
    assert.equal(existsSync(trap), false);
    // What a replacement says of the new commit is not what it is.
    delete process.env["GIT_DIR"];
    operatorGit(repository.path, "update-ref", `refs/replace/${made}`, before);
    assert.equal((await repository.read(made, ["README.md"])).get("README.md"), "new");
  });

  it("a repository of another user is read and written", async (t) => {
    const folder = temporaryFolder(t);
    const repository = await bareRepository(join(folder, "control.git"), FILES);
    // Only root can give a folder away; for anybody else this is a repository of his own.
    const paths = process.getuid?.() === 0 ? ["", "HEAD", "config", "objects", "refs"] : [];
    for (const path of paths) chownSync(join(repository.path, path), 12_345, 12_345);
    const made = await commitOnTop(
      await Repository.open(repository.path, "main"),
      new Map([["README.md", "x"]]),
    );
    assert.equal(await repository.head(), made);
  });

  it("a signing key that is absent or asks for a passphrase is an error, never a question", async (t) => {
    const folder = temporaryFolder(t);
    const repository = await bareRepository(join(folder, "control.git"), FILES);
    const head = await repository.requireHead();
    const locked = join(folder, "locked");
    const made = await run("ssh-keygen", ["-q", "-t", "ed25519", "-N", "secret", "-f", locked]);
    assert.equal(made.code, 0);
    for (const signingKeyFile of [locked, join(folder, "absent")]) {
      await assert.rejects(commitOnTop(repository, new Map([["README.md", "x"]]), { signingKeyFile }), {
        code: "repository_unusable",
      });
    }
    assert.equal(await repository.head(), head);
  });

  it("a repository with a work tree, its own or a linked one, is refused", async (t) => {
    const folder = temporaryFolder(t);
    workTree(join(folder, "clone"), FILES);
    const isRefused = {
      code: "repository_unusable",
      message: /is no bare git repository, or has work trees/,
    };
    await assert.rejects(Repository.open(join(folder, "clone"), "main"), isRefused);
    const { path } = await bareRepository(join(folder, "control.git"), FILES);
    operatorGit(path, "worktree", "add", "--quiet", join(folder, "main"), "main");
    await assert.rejects(Repository.open(path, "main"), isRefused);
  });

  it("a commit has its parents, and is never dated before them", async (t) => {
    const repository = await bareRepository(join(temporaryFolder(t), "control"), { a: "1" });
    const base = await repository.requireHead();
    const child = (parent: Revision, text: string, at: number) =>
      writeCommit(repository, {
        ...{ parents: [parent], changes: new Map([["a", text]]), message: "Change", author: AUTHOR, at },
      });
    const one = await child(base, "2", AT + 60_000);
    const other = await child(base, "3", AT);
    const last = await child(one, "4", AT);
    // Settings of the repository's own that decide what git prints.
    for (const [name, value] of [
      ["log.showSignature", "true"],
      ["i18n.logOutputEncoding", "UTF-16"],
      ["diff.orderFile", "absent"],
    ] as const) {
      operatorGit(repository.path, "config", name, value);
      assert.ok(await child(one, name, AT), name);
      assert.equal((await repository.changesSince(base, one)).size, 0, name);
    }
    const isBelow = (one: Revision, descendant: Revision) => repository.isAncestor(one, descendant);
    assert.deepEqual([await isBelow(base, one), await isBelow(base, last)], [true, true]);
    assert.deepEqual([await isBelow(one, other), await isBelow(one, base)], [false, false]);
    const date = await gitLine(["log", "--no-walk", "--format=%ct", last], repository.call());
    assert.equal(Number(date), (AT + 60_000) / 1_000);
  });
});
