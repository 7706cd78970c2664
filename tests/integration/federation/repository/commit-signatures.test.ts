import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import {
  refusedCommits,
  type SigningPolicy,
  unsignedAmong,
} from "../../../../src/federation/repository/commit-signatures.ts";
import {
  type Changes,
  type Revision,
  writeCommit,
} from "../../../../src/federation/repository/repository.ts";
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
  const refused = (
    head: Revision,
    more: Partial<SigningPolicy> = {},
    accepted: Revision | undefined = root,
  ) => refusedCommits(repository, head, { ...policy, ...more }, accepted, AT);
  const found = async (...args: Parameters<typeof refused>) =>
    (await refused(...args)).map(({ revision }) => revision);
  /** A signed commit with the root's tree; whoever holds a key dates a commit as it likes. */
  const dated = (seconds: number, parents: readonly Revision[] = [root], signingKeyFile = mine.file) => {
    const date = `@${seconds} +0000`;
    const tree = operatorGit(repository.path, "rev-parse", `${root}^{tree}`);
    const settings = ["-c", "gpg.format=ssh", "-c", `user.signingKey=${signingKeyFile}`];
    const who = ["-c", "user.name=x", "-c", "user.email=x@a.test"];
    const on = parents.flatMap((parent) => ["-p", parent]);
    return execFileSync("git", [...settings, ...who, "commit-tree", "-S", "-m", "x", ...on, tree], {
      cwd: repository.path,
      env: { ...process.env, GIT_AUTHOR_DATE: date, GIT_COMMITTER_DATE: date },
      encoding: "utf8",
    }).trim() as Revision;
  };
  return { folder, repository, root, mine, foreign, policy, commit, signed, unsigned, dated, refused, found };
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
    const { folder, repository, mine, policy, dated, found } = await signers(t);
    const dayBefore = mine.allowed.replace('namespaces="git"', 'namespaces="git",valid-before="20260102"');
    const expired = { allowedSignersFile: allowedSigners(join(folder, "expired"), dayBefore) };
    const at = AT / 1_000;
    const [later, backdated, skewed] = [dated(at), dated(at - 2 * 86_400), dated(at - 60)];
    assert.deepEqual(await found(later, expired), [later], "the key has expired");
    assert.deepEqual(await unsignedAmong(repository, [backdated], { ...policy, ...expired }), []);
    assert.deepEqual(await found(backdated, expired), [backdated], "its date is a lie");
    assert.deepEqual(await found(backdated), [backdated], "by any key");
    assert.deepEqual(await found(skewed), [], "two clocks may differ a little");
  });

  it("an expired key is not used again by a commit of two dates, of which git judges the key by one and shows the other [GIT-1]", async (t) => {
    const { folder, repository, root, mine, found } = await signers(t);
    const dayBefore = mine.allowed.replace('namespaces="git"', 'namespaces="git",valid-before="20260102"');
    const expired = { allowedSignersFile: allowedSigners(join(folder, "expired"), dayBefore) };
    const [at, who] = [AT / 1_000, `${AUTHOR.name} <${AUTHOR.email}>`];
    const tree = operatorGit(repository.path, "rev-parse", `${root}^{tree}`);
    const committed = (seconds: number) => `committer ${who} ${seconds} +0000\n`;
    const [old, now] = [committed(at - 2 * 86_400), committed(at)];
    // In this encoding a percent sign ends a line: git shows the second date when it has decoded the commit.
    const decoded = execFileSync("iconv", ["-f", "UTF-8", "-t", "IBM037"], { input: now.trimEnd() });
    const encoded = `${old}encoding IBM037\nx %${decoded.toString("latin1")}%%\n`;
    for (const dates of [`${old}${now}`, encoded]) {
      const headers = `tree ${tree}\nparent ${root}\nauthor ${who} ${at} +0000\n${dates}`;
      const sign = ["-q", "-Y", "sign", "-n", "git", "-f", mine.file];
      const payload = Buffer.from(`${headers}\nTwice\n`, "latin1");
      const signature = execFileSync("ssh-keygen", sign, { input: payload }).toString().trim();
      const signed = `${headers}gpgsig ${signature.replaceAll("\n", "\n ")}\n\nTwice\n`;
      const write = ["hash-object", "-t", "commit", "-w", "--literally", "--stdin"];
      const input = Buffer.from(signed, "latin1");
      const twice = execFileSync("git", write, { cwd: repository.path, input }).toString().trim() as Revision;
      assert.equal(operatorGit(repository.path, "log", "-1", "--format=%ct", twice), String(at));
      assert.deepEqual(await found(twice, expired), [twice]);
      assert.deepEqual(await found(twice), [twice], "by any key");
    }
  });

  it("an expired key is not used again by a merge that sets a younger accepted commit aside [GIT-1]", async (t) => {
    const { folder, root, mine, foreign, signed, dated, refused } = await signers(t);
    const day = 86_400;
    const before = AT / 1_000 - 2 * day;
    const expired = mine.allowed.replace('namespaces="git"', 'namespaces="git",valid-before="20260102"');
    const allowedSignersFile = allowedSigners(join(folder, "expired"), expired, foreign.allowed);
    const old = dated(before - day, []);
    const accepted = dated(AT / 1_000, [old, root], foreign.file);
    const aside = dated(before, [accepted], foreign.file);
    const rewind = dated(before, [old, aside]);
    const why = "backdated";
    for (const signedCommits of ["every", "first_parent"] as const) {
      const policy = { allowedSignersFile, signedCommits };
      assert.deepEqual(await refused(rewind, policy, accepted), [{ revision: rewind, why }], signedCommits);
    }
    assert.deepEqual(await refused(await signed(accepted), {}, accepted), [], "a key that has not expired");
  });

  it("a commit in the future is refused, and one that leaves it out is not [GIT-1]", async (t) => {
    const { repository, root, commit, mine, dated, refused } = await signers(t);
    const [ahead, skewed] = [dated(AT / 1_000 + 301), dated(AT / 1_000 + 299)];
    const why = "postdated";
    assert.deepEqual(await refused(ahead), [{ revision: ahead, why }]);
    assert.deepEqual(await refused(skewed), []);
    const leftOut = await commit(mine.file, [root, ahead], new Map());
    assert.equal(operatorGit(repository.path, "log", "-1", "--format=%ct", leftOut), String(AT / 1_000));
    assert.deepEqual(await refused(await commit(mine.file, [leftOut])), []);
  });

  it("what is written here is never dated before its parents [GIT-1]", async (t) => {
    const { repository, root, commit, mine, found } = await signers(t);
    const head = await commit(mine.file, [root], undefined, AT - 299_000);
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

  it("of many commits that nobody allowed has signed, few are looked at [GIT-1]", async (t) => {
    const { root, unsigned, found } = await signers(t);
    const bad = [root];
    for (let made = 0; made < 30; made++) bad.unshift(await unsigned(bad[0] ?? root));
    assert.deepEqual(await found(bad[0] ?? root), bad.slice(0, 20));
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
    const { folder, root, policy, signed, unsigned, repository } = await signers(t);
    const found = async (head: Revision, trustedBase: Revision | undefined) => {
      const refused = await refusedCommits(repository, head, { ...policy, trustedBase }, undefined, AT);
      return refused.map(({ revision }) => revision);
    };
    const base = await unsigned(root);
    const head = await signed(base);
    const at = (trustedBase: Revision | undefined) => found(head, trustedBase);
    assert.deepEqual(await at(undefined), [base, root]);
    assert.deepEqual(await at(root), [base]);
    assert.deepEqual(await at(base), []);
    const other = await bareRepository(join(folder, "other.git"), { "README.md": "Another.\n" });
    assert.deepEqual(await at(await other.requireHead()), [base, root], "an unknown base excludes nothing");
    assert.deepEqual(await found(base, base), []);
  });
});
