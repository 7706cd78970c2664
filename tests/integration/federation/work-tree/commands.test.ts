// `drawbridge federation render` and `check` as an operator runs them, in a work tree.
import assert from "node:assert/strict";
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { runCliHere } from "../../../support/cli-in-process.ts";
import { HARBOUR } from "../../../support/sample-files.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

const federation = (...words: string[]) => runCliHere(["federation", ...words]);

function workTree(t: TestContext): string {
  const directory = temporaryFolder(t);
  cpSync(HARBOUR, directory, { recursive: true });
  return directory;
}

describe("federation render and federation check", () => {
  it("render writes the registry's files, lists the changes, and changes nothing the second time [GIT-1]", async (t) => {
    const tree = workTree(t);
    const first = await federation("render", "--directory", tree);
    assert.equal(first.code, 0);
    assert.match(first.stdout, /^added {4}kubernetes\/border\/policy\.yaml\n/);
    assert.ok(existsSync(join(tree, "rendered/border/policy.json")));
    const second = await federation("render", "--directory", tree);
    assert.deepEqual([second.code, second.stdout], [0, ""]);
  });

  it("render removes files that are rendered no more, and leaves other files alone [GIT-1]", async (t) => {
    const tree = workTree(t);
    await federation("render", "--directory", tree);
    writeFileSync(join(tree, "kubernetes/kustomization.yaml"), "resources: []\n");
    writeFileSync(join(tree, "notes.md"), "ours\n");
    writeFileSync(join(tree, "kubernetes/gateway/salvage.yaml"), "kind: ConfigMap\n");
    const { stdout } = await federation("render", "--directory", tree);
    assert.match(stdout, /^removed {2}kubernetes\/gateway\/salvage\.yaml$/m);
    assert.ok(!existsSync(join(tree, "kubernetes/gateway/salvage.yaml")));
    assert.ok(!existsSync(join(tree, "kubernetes/kustomization.yaml")), "it could patch what is rendered");
    assert.ok(existsSync(join(tree, "notes.md")));
  });

  it("render changes nothing when the registry is invalid, and reports every error with its line [REG-1]", async (t) => {
    const tree = workTree(t);
    await federation("render", "--directory", tree);
    const partner = join(tree, "registry/partners/dredger.yaml");
    writeFileSync(
      partner,
      readFileSync(partner, "utf8").replace("contained: true", "contained: maybe\nsecret: hunter2"),
    );
    const before = readFileSync(join(tree, "rendered/border/policy.json"), "utf8");
    const { code, stderr, stdout } = await federation("render", "--directory", tree);
    assert.deepEqual([code, stdout], [2, ""]);
    assert.match(stderr, /registry\/partners\/dredger\.yaml:5: contained: /);
    assert.match(stderr, /registry\/partners\/dredger\.yaml:6: .*\[secret\.named_value\]\n {4}hint: /);
    assert.ok(!stderr.includes("hunter2"));
    assert.equal(readFileSync(join(tree, "rendered/border/policy.json"), "utf8"), before);
  });

  it("render follows no link out of the tree [GIT-1]", async (t) => {
    const tree = workTree(t);
    const outside = temporaryFolder(t);
    symlinkSync(outside, join(tree, "rendered"));
    assert.equal((await federation("render", "--directory", tree)).code, 2);
    rmSync(join(tree, "rendered"));
    mkdirSync(join(tree, "rendered"));
    symlinkSync(outside, join(tree, "rendered/border"));
    assert.equal((await federation("render", "--directory", tree)).code, 2);
    assert.ok(!existsSync(join(outside, "policy.json")));
  });

  it("check succeeds for a rendered tree and fails for another, in a table and in JSON [CHK-1]", async (t) => {
    const tree = workTree(t);
    const before = await federation("check", tree);
    assert.equal(before.code, 1);
    assert.match(before.stdout, /^renders equal the registry +failed$/m);
    await federation("render", "--directory", tree);
    const after = await federation("check", tree);
    assert.equal(after.code, 0);
    assert.match(after.stdout, /^CHECK +RESULT\nregistry is valid +ok\n/);
    const json = JSON.parse((await federation("check", tree, "--json")).stdout) as {
      ok: boolean;
      checks: unknown[];
    };
    assert.deepEqual([json.ok, json.checks.length], [true, 11]);
  });

  it("render completes a registry that a person has begun with organisation.yaml alone, so that check succeeds [CHK-1]", async (t) => {
    const tree = temporaryFolder(t);
    mkdirSync(join(tree, "registry"));
    const entry = "version: 1\nserverName: gull.example\nquotas: {default: {perMinute: 60, burst: 20}}\n";
    writeFileSync(join(tree, "registry/organisation.yaml"), entry);
    const schema = "registry/abuse-report.schema.json";
    assert.match(
      (await federation("render", "--directory", tree)).stdout,
      new RegExp(`^added {4}${schema}$`, "m"),
    );
    assert.equal((await federation("check", tree)).code, 0);
    assert.equal(readFileSync(join(tree, "registry/organisation.yaml"), "utf8"), entry);
    writeFileSync(join(tree, schema), "{}\n");
    assert.equal((await federation("render", "--directory", tree)).stdout, `changed  ${schema}\n`);
  });

  it("a folder without a registry is an error of usage [CHK-1]", async (t) => {
    assert.equal((await federation("check", temporaryFolder(t))).code, 2);
  });
});
