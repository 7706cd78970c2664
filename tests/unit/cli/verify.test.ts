// `drawbridge verify` and `drawbridge records keygen` as people call them.
import assert from "node:assert/strict";
import { createPrivateKey } from "node:crypto";
import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { readPublicKey } from "../../../src/records/format/ecdsa-p256.ts";
import { fileSigner } from "../../../src/records/sign/signer.ts";
import { runCliHere } from "../../support/cli-in-process.ts";
import { assertGolden } from "../../support/golden.ts";
import { type Changes, minute, party, removalOf } from "../../support/removal.ts";
import { runCli, temporaryFolder, writeFile } from "../../support/temporary.ts";
import { only, unmanaged } from "../records/verify/changed-records.ts";

const A = party("a.test");
const B = party("b.test");

/** A folder with a record, the keys and a trust file. */
async function folderOf(t: TestContext, changes: Changes = {}): Promise<string> {
  const folder = temporaryFolder(t);
  const { bytes } = await removalOf(A, B, changes);
  writeFile(join(folder, "record.json"), bytes.toString("utf8"));
  writeFile(join(folder, "keys", "a.pem"), A.pem);
  const indented = B.pem.trim().replaceAll(/^/gm, "          ");
  writeFile(
    join(folder, "trust.yaml"),
    `version: 1
parties:
  - organisation: a.test
    keys:
      - file: keys/a.pem
  - organisation: b.test
    keys:
      - text: |
${indented}
`,
  );
  return folder;
}

const verify = (folder: string, ...args: string[]) =>
  runCliHere(["verify", join(folder, "record.json"), "--trust", join(folder, "trust.yaml"), ...args]);

/** Without what is new each time. */
function steady(text: string): string {
  return text
    .replaceAll(A.signer.keyId, "<key of a.test>")
    .replaceAll(B.signer.keyId, "<key of b.test>")
    .replaceAll(/(Signed {2}.*\n)+/g, (lines) => `${lines.trimEnd().split("\n").sort().join("\n")}\n`)
    .replaceAll(/sha256:[0-9a-f]{64}/g, "sha256:<digest>");
}

describe("drawbridge verify", () => {
  it("a verified record fits on one screen and gives exit code 0 [OFF-3]", async (t) => {
    const out_of_reach = [
      { subject: "!old:a.test", reason: "no_power", waived_by: "security-owner", waiver: "room_is_empty" },
    ];
    const folder = await folderOf(t, {
      stage: (predicate) =>
        predicate.organisation === "a.test" && predicate.stage === "room"
          ? { ...predicate, out_of_reach }
          : predicate,
      completion: (predicate) => ({ ...predicate, out_of_reach }),
    });
    const { code, stdout, stderr } = await verify(folder);
    assert.deepEqual([code, stderr], [0, ""]);
    assert.ok(stdout.split("\n").length <= 40, "one screen");
    assertGolden("records/verified.txt", steady(stdout));
  });

  it("a record that does not verify is reported with every reason and its hint, and gives exit code 1 [OFF-3]", async (t) => {
    const folder = await folderOf(t, {
      completion: (predicate) => ({ ...predicate, attestations: [], completed_at: minute(2) }),
      file: (file) => ({ ...file, evidence: file.evidence.slice(4) }),
    });
    const { code, stdout, stderr } = await verify(folder);
    assert.deepEqual([code, stderr], [1, ""]);
    const places = /at {4}(?:[ab]\.test\/\w+ \(sha256:<digest>\)(?:, )?)+ and 1 more/;
    assertGolden(
      "records/not-verified.txt",
      steady(stdout).replace(places, "at    <three places> and 1 more"),
    );
  });

  it("a unilateral record says what the remover does not manage, and calls only the rest closed [ADO-1]", async (t) => {
    const folder = await folderOf(t, {
      items: (items, organisation, stage) =>
        organisation === "a.test" && stage === "a2a_stop" ? items.slice(0, 1) : items,
      item: (item, organisation, stage) => {
        if (organisation === "b.test") return stage === "data_duties" ? item : { ...item, probe: "other" };
        return stage === "a2a_stop" || item.probe === "card_fetch" ? unmanaged(item) : item;
      },
      stage: (predicate) =>
        predicate.organisation === "a.test"
          ? { ...predicate, scope: { ...predicate.scope, parts: ["homeserver", "bridge"] } }
          : predicate,
    });
    const { code, stdout } = await verify(folder);
    assert.equal(code, 6);
    assert.match(stdout, /^UNILATERAL: what the remover manages is closed; /);
    assert.match(stdout, /\nunilateral: /);
    assert.match(stdout, /\nUnmanaged: nothing is known of\n {2}1 a2a_stop {6}a\.test: in_force, /);
    assert.match(stdout, /\nLeft open\n/);
  });

  it("every item that a record attests is printed, also where there are many [OFF-3]", async (t) => {
    const words = Array.from({ length: 24 }, (_, number) => `word-${number}`);
    const folder = await folderOf(t, {
      stage: (predicate) =>
        predicate.stage === "data_duties"
          ? { ...predicate, attested: [...predicate.attested, ...words] }
          : predicate,
    });
    const { stdout } = await verify(folder);
    const { attested } = JSON.parse((await verify(folder, "--json")).stdout);
    assert.ok(attested.length > 48, String(attested.length));
    const [, printed = ""] = stdout.split("Only attested");
    for (const { what } of attested) assert.ok(printed.includes(what), what);
    assert.ok(stdout.split("\n").length <= 45, "still about one screen");
  });

  it("of more than forty items in one paragraph the rest is counted [OFF-3]", async (t) => {
    const words = Array.from({ length: 60 }, (_, number) => `word-${number}.`);
    const { stdout } = await verify(
      await folderOf(t, {
        stage: only("a.test", "data_duties", ({ attested }) => ({ attested: [...words, ...attested] })),
      }),
    );
    assert.ok(stdout.includes("word-39.; ") && !stdout.includes("word-40."));
    assert.match(stdout, /; \d+ more; see --json\n/);
  });

  it("a file of some kilobytes that is wrong in very many places is reported within seconds [OFF-3]", async (t) => {
    const folder = await folderOf(t, {
      file: (file) => ({ ...file, evidence: Array.from({ length: 60_000 }, () => 0) }),
    });
    const startedAt = performance.now();
    const { code, stdout } = await verify(folder);
    assert.equal(code, 1);
    assert.match(stdout, /at {4}evidence\[0\] \(\), .* and 59997 more/);
    assert.ok(performance.now() - startedAt < 10_000, "its time grows with the square of the places");
  });

  it("--json prints everything that was found [OFF-3]", async (t) => {
    const { code, stdout } = await verify(await folderOf(t), "--json");
    const report = JSON.parse(stdout);
    assert.equal(code, 0);
    assert.equal(report.verified, true);
    assert.deepEqual(Object.keys(report), [
      "outcome",
      "verified",
      "digest",
      "removal",
      "signers",
      "statements",
      "parts",
      "proved",
      "unmanaged",
      "waived",
      "attested",
      "missing",
      "problems",
    ]);
    const refused = await verify(
      await folderOf(t, { file: (file) => ({ ...file, evidence: [] }) }),
      "--json",
    );
    assert.equal(refused.code, 1);
    const [problem] = JSON.parse(refused.stdout).problems;
    assert.deepEqual(Object.keys(problem), ["reason", "where", "detail", "sentence", "hint"]);
  });

  it("a trust file or a record that cannot be used gives exit code 2 and a hint", async (t) => {
    const folder = await folderOf(t);
    const trusts = [
      "version: 2\nparties: []\n",
      "version: 1\nparties: [{organisation: a.test, keys: [{file: keys/none.pem}]}]\n",
      "version: 1\nparties: [{organisation: a.test, keys: [{text: no-such-value}]}]\n",
      "version: 1\nparties: [{organisation: a b, keys: [{file: keys/a.pem}]}]\n",
      "version: 1\nparties: [{organisation: a.test, keys: [{file: keys/a.pem}]}, {organisation: a.test, keys: [{file: keys/a.pem}]}]\n",
    ];
    for (const trust of trusts) {
      writeFile(join(folder, "trust.yaml"), trust);
      const { code, stdout, stderr } = await verify(folder);
      assert.deepEqual([code, stdout], [2, ""], trust);
      assert.match(stderr, /^error: .*\nhint: /s);
    }
    const absent = await runCli(["verify", join(folder, "none.json"), "--trust", join(folder, "trust.yaml")]);
    assert.equal(absent.code, 2);
  });

  it("a file that is no record cannot send control sequences to the terminal", async (t) => {
    const folder = await folderOf(t);
    for (const content of [
      '{"schema":"svc.federation.offboarding_record.v1","completion":{"\\u001b[2J":1},"stages":[],"evidence":[{"digest":"\\u001b]0;x"}]}',
      "\u001b[2J",
    ]) {
      writeFile(join(folder, "record.json"), content);
      const { code, stdout } = await verify(folder);
      assert.equal(code, 1);
      assert.ok(!stdout.includes("\u001b"), JSON.stringify(stdout));
    }
  });

  it("records keygen makes a key that only this user can read, and overwrites no file", async (t) => {
    const folder = join(temporaryFolder(t), "keys");
    const keygen = (...args: string[]) => runCliHere(["records", "keygen", "--output", folder, ...args]);
    const made = await keygen("--json");
    assert.equal(made.code, 0, made.stderr);
    const { keyId, privateKeyFile, publicKeyFile } = JSON.parse(made.stdout);
    assert.equal(statSync(privateKeyFile).mode & 0o777, 0o600);
    const pem = readFileSync(privateKeyFile, "utf8");
    assert.match(pem, /^-----BEGIN PRIVATE KEY-----\n/);
    assert.equal(createPrivateKey(pem).asymmetricKeyDetails?.namedCurve, "prime256v1");
    assert.equal(readPublicKey(readFileSync(publicKeyFile, "utf8"), "test").keyId, keyId);
    assert.equal(fileSigner(privateKeyFile).keyId, keyId);

    const again = await keygen();
    assert.deepEqual([again.code, again.stdout], [2, ""]);
    assert.match(again.stderr, /hint: .*never overwritten/);
    assert.equal(readFileSync(privateKeyFile, "utf8"), pem);

    const other = join(temporaryFolder(t), "half");
    writeFile(join(other, "records-key.pub.pem"), "somebody else's");
    const half = await runCli(["records", "keygen", "--output", other]);
    assert.equal(half.code, 2);
    assert.equal(existsSync(join(other, "records-key.pem")), false);
  });

  it("a missing record file is reported with what creates one [OFF-3]", async (t) => {
    const folder = temporaryFolder(t);
    const ended = await verify(folder);
    assert.deepEqual([ended.code, ended.stdout], [2, ""]);
    assert.match(
      ended.stderr,
      /^error: cannot read .*record\.json: ENOENT\nhint: .*drawbridge offboarding status/,
    );
  });
});
