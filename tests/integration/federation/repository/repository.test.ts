import assert from "node:assert/strict";
import { chownSync, existsSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, it } from "node:test";
import { Repository, type Revision } from "../../../../src/federation/repository/repository.ts";
import { writeCommit } from "../../../../src/federation/repository/write-commit.ts";
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

  it("what git has not packed yet is read without starting git, and as git reads it", async (t) => {
    const folder = temporaryFolder(t);
    const { path } = await bareRepository(join(folder, "control.git"), FILES);
    const clone = join(folder, "clone");
    operatorGit(folder, "clone", "--quiet", path, clone);
    writeFile(join(clone, "registry/partners/Ümlaut.yaml"), "a\n", 0o755);
    writeFile(join(clone, "registry/partners.yaml"), "b\n");
    symlinkSync("elsewhere", join(clone, "registry/link"));
    const commit = (message: string) => {
      operatorGit(clone, "add", "--all");
      operatorGit(clone, "commit", "--quiet", "--allow-empty", `--message=${message}`);
    };
    commit("More");
    operatorGit(clone, "switch", "--quiet", "--create", "side", "HEAD^");
    writeFile(join(clone, "registry/side.yaml"), "c\n");
    commit("Side");
    operatorGit(clone, "switch", "--quiet", "main");
    operatorGit(clone, "merge", "--quiet", "--no-edit", "side");
    operatorGit(clone, "rm", "--quiet", "registry/organisation.yaml");
    commit("Less");
    operatorGit(clone, "update-index", "--add", "--cacheinfo", `160000,${"1".repeat(40)},registry/module`);
    operatorGit(clone, "commit", "--quiet", "--message=Submodule");
    operatorGit(clone, "push", "--quiet", "origin", "main", "side");
    const names = ["main", "side", "main~1", "main~2", "main~3", "main~4"];
    const revisions = names.map((name) => operatorGit(path, "rev-parse", name) as Revision);
    const [head, side] = revisions as [Revision, Revision];
    const first = revisions.at(-1);
    const readAll = async () => {
      const repository = await Repository.open(path, "main");
      const before = process.env["PATH"];
      if (!existsSync(join(path, "objects/info/packs"))) process.env["PATH"] = folder;
      try {
        const texts = await repository.read(head, ["registry"]);
        return {
          files: [...texts],
          lists: await Promise.all(
            [
              ["registry", "README.md"],
              ["registry/partners"],
              ["registry/link"],
              ["absent"],
              ["registry/p"],
            ].map((folders) => repository.list(head, folders)),
          ),
          ancestors: await Promise.all(
            revisions.flatMap((one) => revisions.map((other) => repository.isAncestor(one, other))),
          ),
          dates: (await repository.datesOf(revisions)).length,
          changes: await Promise.all(
            [undefined, first].map(async (since) => [
              ...(await repository.changesSince(since, head, "registry")),
            ]),
          ),
        };
      } finally {
        process.env["PATH"] = before;
      }
    };
    const unpacked = await readAll();
    assert.equal(unpacked.files.length, 5);
    operatorGit(path, "gc", "--quiet");
    assert.deepEqual(await readAll(), unpacked);
    assert.equal(await (await Repository.open(path, "main")).isAncestor(side, head), true);
  });

  it("a text that is not UTF-8 is never taken for valid text", async (t) => {
    const folder = join(temporaryFolder(t), "control");
    workTree(folder, FILES);
    writeFileSync(join(folder, "registry/partners/org-c.yaml"), Buffer.from([0x61, 0xff, 0xfe, 0x0a]));
    operatorGit(folder, "add", "--all");
    operatorGit(folder, "commit", "--quiet", "--message=Binary");
    operatorGit(folder, "switch", "--quiet", "--detach");
    const repository = await Repository.open(folder, "main");
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

  it("the tree of a commit is the one that git makes of the same files", async (t) => {
    const folder = temporaryFolder(t);
    for (const format of ["sha1", "sha256"]) {
      const path = join(folder, format);
      operatorGit(
        folder,
        "init",
        "--quiet",
        "--bare",
        "--initial-branch=main",
        `--object-format=${format}`,
        path,
      );
      const repository = await Repository.open(path, "main");
      const write = (parents: readonly Revision[], changes: Readonly<Record<string, string | null>>) =>
        writeCommit(repository, {
          ...{
            parents,
            changes: new Map(Object.entries(changes)),
            message: "Change",
            author: AUTHOR,
            at: AT,
          },
        });
      const first = await write([], {
        "a/b/c": "1",
        "a.b": "2",
        a0: "3",
        "d/e": "4",
        "d/f/g": "x".repeat(5_000),
      });
      const second = await write([first], {
        "a/b/c": null,
        "a/ü": "5",
        "d/e": "6",
        "d/f/g": null,
        "d/f/h": "4",
      });
      const files = { "a/ü": "5", "a.b": "2", a0: "3", "d/e": "6", "d/f/h": "4" };
      for (const [name, text] of Object.entries(files))
        writeFile(join(folder, `${format} files`, name), text);
      const git = (...args: readonly string[]) =>
        operatorGit(folder, `--git-dir=${path}`, `--work-tree=${format} files`, ...args);
      git("add", "--all");
      assert.equal(await repository.treeOf(second), git("write-tree"));
      assert.equal(git("fsck", "--strict", "--full", second), "");
      assert.equal(git("show", `${first}:d/f/g`), "x".repeat(5_000));
      for (const changes of [{ "a.b/c": "7" }, { d: "7" }]) {
        await assert.rejects(write([second], changes), { code: "repository_unusable" });
      }
      // What git alone can put there stays as it is.
      writeFileSync(
        Buffer.concat([Buffer.from(join(folder, `${format} files`, "d/")), Buffer.of(0xff)]),
        "8",
      );
      git("add", "--all");
      git("update-index", "--add", "--cacheinfo", `160000,${first},d/module`);
      const others = operatorGit(path, "commit-tree", "-m", "Others", git("write-tree")) as Revision;
      const third = await write([others], { "d/i": "9" });
      assert.equal(git("diff", "--name-status", others, third), "A\td/i");
      const empty = await write([second], Object.fromEntries(Object.keys(files).map((name) => [name, null])));
      assert.deepEqual(await repository.list(empty, ["a", "d"]), []);
    }
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
    const other = await Repository.open(join(folder, "control"), "absent");
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

  it("a repository whose branch is checked out, in its own work tree or a linked one, is refused", async (t) => {
    const folder = temporaryFolder(t);
    workTree(join(folder, "clone"), FILES);
    const isCheckedOut = { code: "repository_unusable", message: /is checked out in / };
    await assert.rejects(Repository.open(join(folder, "clone"), "main"), isCheckedOut);
    const { path } = await bareRepository(join(folder, "control.git"), FILES);
    operatorGit(path, "worktree", "add", "--quiet", "-b", "other", join(folder, "other"));
    await Repository.open(path, "main");
    operatorGit(path, "worktree", "add", "--quiet", join(folder, "main"), "main");
    await assert.rejects(Repository.open(path, "main"), isCheckedOut);
  });

  it("knows of commits that it has written what git knows of them: their parents and dates", async (t) => {
    const repository = await bareRepository(join(temporaryFolder(t), "control"), { a: "1" });
    const base = await repository.requireHead();
    const child = (parent: Revision, text: string, at: number) =>
      writeCommit(repository, {
        ...{ parents: [parent], changes: new Map([["a", text]]), message: "Change", author: AUTHOR, at },
      });
    const one = await child(base, "2", AT + 60_000);
    const other = await child(base, "3", AT);
    const last = await child(one, "4", AT);
    for (const known of [repository, await Repository.open(repository.path, "main")]) {
      assert.deepEqual([await known.isAncestor(base, one), await known.isAncestor(base, last)], [true, true]);
      assert.deepEqual(
        [await known.isAncestor(one, other), await known.isAncestor(one, base)],
        [false, false],
      );
      assert.deepEqual(await known.datesOf([last]), [(AT + 60_000) / 1_000]);
    }
  });
});
