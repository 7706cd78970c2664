import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import type { Revision } from "../../../../src/federation/repository/repository.ts";
import {
  type SigningPolicy,
  unsignedAmong,
  unsignedCommits,
} from "../../../../src/federation/repository/signatures.ts";
import { type Changes, writeCommit } from "../../../../src/federation/repository/write-commit.ts";
import {
  AT,
  AUTHOR,
  allowedSigners,
  bareRepository,
  operatorGit,
  signingKey,
} from "../../../support/control-repository.ts";
import { temporaryFolder, writeFile } from "../../../support/temporary.ts";

async function signers(t: TestContext) {
  const folder = temporaryFolder(t);
  const repository = await bareRepository(join(folder, "control.git"), { "README.md": "Read me.\n" });
  const root = await repository.requireHead();
  const [mine, foreign] = [signingKey(folder, "mine"), signingKey(folder, "foreign")];
  const policy: SigningPolicy = {
    allowedSignersFile: allowedSigners(join(folder, "allowed signers"), mine.allowed),
    signedCommits: "every",
    trustedBase: undefined,
  };
  let made = 0;
  const commit = (
    signingKeyFile: string | undefined,
    parents: readonly Revision[],
    changes?: Changes,
    at = AT,
  ) =>
    writeCommit(repository, {
      parents: parents as [Revision],
      changes: changes ?? new Map([["README.md", `${made++}`]]),
      message: "Change",
      author: AUTHOR,
      at,
      signingKeyFile,
    });
  const signed = (...parents: readonly Revision[]) => commit(mine.file, parents);
  const unsigned = (...parents: readonly Revision[]) => commit(undefined, parents);
  const found = (head: Revision, more: Partial<SigningPolicy> = {}, accepted: Revision | undefined = root) =>
    unsignedCommits(repository, head, { ...policy, ...more }, accepted);
  return { folder, repository, root, mine, foreign, policy, commit, signed, unsigned, found };
}

describe("signatures of commits", () => {
  it("only a signature by a key that is allowed for git at the commit's date counts [GIT-1]", async (t) => {
    const { folder, repository, root, mine, foreign, policy, commit, signed } = await signers(t);
    const byMine = await signed(root);
    const byForeign = await commit(foreign.file, [byMine]);
    assert.deepEqual(await unsignedAmong(repository, [root, byMine, byForeign], policy), [root, byForeign]);

    // The signature stands over the commit's own text: another tree under it is a forgery.
    const text = operatorGit(repository.path, "cat-file", "commit", byMine);
    const tree = operatorGit(repository.path, "rev-parse", `${byForeign}^{tree}`);
    writeFile(join(folder, "forged"), `${text.replace(/^tree .*/, `tree ${tree}`)}\n`);
    const forged = operatorGit(repository.path, "hash-object", "-t", "commit", "-w", join(folder, "forged"));
    assert.deepEqual(await unsignedAmong(repository, [forged as Revision], policy), [forged]);

    const lines = [
      mine.allowed.replace('namespaces="git"', 'namespaces="file"'),
      mine.allowed.replace('namespaces="git"', 'namespaces="git",valid-before="20250101"'),
    ];
    for (const [index, line] of lines.entries()) {
      const allowedSignersFile = allowedSigners(join(folder, `allowed ${index}`), line);
      const other = { ...policy, allowedSignersFile };
      assert.deepEqual(await unsignedAmong(repository, [byMine], other), [byMine], line);
    }
    const absent = { ...policy, allowedSignersFile: join(folder, "absent") };
    assert.deepEqual(await unsignedAmong(repository, [byMine], absent), [byMine]);
  });

  it("a commit that is dated before its parent is refused, so that no key that has expired is used again [GIT-1]", async (t) => {
    const { folder, repository, mine, policy, root, found } = await signers(t);
    const dayBefore = mine.allowed.replace('namespaces="git"', 'namespaces="git",valid-before="20260102"');
    const expired = { allowedSignersFile: allowedSigners(join(folder, "expired"), dayBefore) };
    // Whoever holds a key dates a commit as it likes.
    const dated = (seconds: number) => {
      const date = `@${seconds} +0000`;
      const tree = operatorGit(repository.path, "rev-parse", `${root}^{tree}`);
      const settings = ["-c", "gpg.format=ssh", "-c", `user.signingKey=${mine.file}`];
      const who = ["-c", "user.name=x", "-c", "user.email=x@a.test"];
      return execFileSync("git", [...settings, ...who, "commit-tree", "-S", "-m", "x", "-p", root, tree], {
        cwd: repository.path,
        env: { ...process.env, GIT_AUTHOR_DATE: date, GIT_COMMITTER_DATE: date },
        encoding: "utf8",
      }).trim() as Revision;
    };
    const at = AT / 1_000;
    const [later, backdated, skewed] = [dated(at), dated(at - 2 * 86_400), dated(at - 60)];
    assert.deepEqual(await found(later, expired), [later], "the key has expired");
    assert.deepEqual(await unsignedAmong(repository, [backdated], { ...policy, ...expired }), []);
    assert.deepEqual(await found(backdated, expired), [backdated], "its date is a lie");
    assert.deepEqual(await found(backdated), [backdated], "by any key");
    assert.deepEqual(await found(skewed), [], "two clocks may differ a little");
  });

  it("what is written here is never dated before its parents [GIT-1]", async (t) => {
    const { repository, root, commit, mine, found } = await signers(t);
    const head = await commit(mine.file, [root], undefined, AT - 86_400_000);
    assert.equal(operatorGit(repository.path, "log", "-1", "--format=%ct", head), String(AT / 1_000));
    assert.deepEqual(await found(head), []);
  });

  it("a commit that was verified under one list of signers is verified again under another [GIT-1]", async (t) => {
    const { repository, root, foreign, policy, signed } = await signers(t);
    const byMine = await signed(root);
    assert.deepEqual(await unsignedAmong(repository, [byMine], policy), []);
    allowedSigners(policy.allowedSignersFile, foreign.allowed);
    assert.deepEqual(await unsignedAmong(repository, [byMine], policy), [byMine]);
  });

  it("an unsigned commit below a signed head is found, however many lie between [GIT-1]", async (t) => {
    const { root, signed, unsigned, found } = await signers(t);
    const bad = await unsigned(await signed(root));
    const head = await signed(await signed(bad));
    assert.deepEqual(await found(head), [bad]);
    assert.deepEqual(await found(head, { signedCommits: "first_parent" }), [bad]);
    assert.deepEqual(await found(head, {}, bad), [], "what was accepted is not examined again");
    assert.deepEqual(await found(bad, {}, bad), [bad], "the head itself always is");
  });

  it("commits that a signed merge brings are examined unless only first parents are to be [GIT-1]", async (t) => {
    const { root, signed, unsigned, found } = await signers(t);
    const [ours, side] = [await signed(root), await unsigned(root)];
    const theirs = await signed(side);
    const head = await signed(ours, theirs);
    assert.deepEqual(await found(head), [side]);
    assert.deepEqual(await found(head, { signedCommits: "first_parent" }), []);
  });

  it("a signed merge that keeps its first parent's tree leaves the other side out [GIT-1]", async (t) => {
    const { root, mine, commit, signed, unsigned, found } = await signers(t);
    const [ours, bad] = [await signed(root), await unsigned(root)];
    const nothing = new Map<string, string>();
    const leftOut = await commit(mine.file, [ours, bad], nothing);
    assert.deepEqual(await found(await signed(leftOut)), []);
    const kept = await commit(mine.file, [bad, ours], nothing);
    assert.deepEqual(await found(kept), [bad], "it keeps the tree of the commit nobody signed");
    const byNobody = await commit(undefined, [ours, bad], nothing);
    assert.deepEqual(await found(await signed(byNobody)), [byNobody]);
  });

  it("without an accepted head the whole history is examined, up to the trusted base [GIT-1]", async (t) => {
    const { folder, repository, root, policy, signed, unsigned } = await signers(t);
    const base = await unsigned(root);
    const head = await signed(base);
    const at = (trustedBase: Revision | undefined) =>
      unsignedCommits(repository, head, { ...policy, trustedBase }, undefined);
    assert.deepEqual(await at(undefined), [base, root]);
    assert.deepEqual(await at(root), [base]);
    assert.deepEqual(await at(base), []);
    const other = await bareRepository(join(folder, "other.git"), { "README.md": "Another.\n" });
    assert.deepEqual(await at(await other.requireHead()), [base, root], "an unknown base excludes nothing");
    assert.deepEqual(
      await unsignedCommits(repository, base, { ...policy, trustedBase: base }, undefined),
      [],
    );
  });
});
