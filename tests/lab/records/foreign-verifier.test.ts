// Records verified without Drawbridge: the commands of docs/reference/verifying-without-drawbridge.md, as they
// stand there, with openssl and with Python's securesystemslib. Needs python3, openssl and the package
// registry, as the lab's own installation does.

import assert from "node:assert/strict";
import { copyFileSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { type EvidenceItem, evidenceItem } from "../../../src/records/format/evidence-item.ts";
import { fileText, type RecordFile, statementBytes } from "../../../src/records/format/statements.ts";
import { bySigners, type Changes, party, type Removal, removalOf } from "../../support/removal.ts";
import { ROOT, run, temporaryFolder, writeFile } from "../../support/temporary.ts";

const PAGE = readFileSync(join(ROOT, "docs", "reference", "verifying-without-drawbridge.md"), "utf8");
const block = (language: string) =>
  [...PAGE.matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, "gs"))].map((match) => match[1] ?? "");
const [takeApart = "", signatures = "", evidence = "", stages = "", install = "", check = ""] = block("sh");
const [checkProgram = ""] = block("python");

const A = party("a.test");
const B = party("b.test");

/** A folder as the page describes it. */
async function folderOf(
  t: TestContext,
  changes: Changes = {},
): Promise<{ folder: string; removal: Removal }> {
  const folder = temporaryFolder(t);
  const removal = await removalOf(A, B, changes);
  writeFile(join(folder, "record.json"), removal.bytes.toString("utf8"));
  writeFile(join(folder, "remover.pub.pem"), A.pem);
  writeFile(join(folder, "partner.pub.pem"), B.pem);
  return { folder, removal };
}

const shell = (folder: string, script: string) => run("bash", ["-c", script], { cwd: folder });

describe("verifying without Drawbridge", () => {
  it("openssl verifies both signatures of every statement, the evidence, and what is bound [OFF-3]", async (t) => {
    const { folder, removal } = await folderOf(t);
    const apart = await shell(folder, takeApart);
    assert.equal(apart.code, 0, apart.stderr);
    const signed = await shell(folder, signatures);
    assert.equal(signed.code, 0, signed.stderr);
    assert.equal(signed.stdout.match(/Verified OK/g)?.length, 26);
    const intact = await shell(folder, evidence);
    assert.equal(intact.stdout, "the evidence is what was signed\n", intact.stderr);
    assert.equal(readdirSync(join(folder, "parts", "evidence")).length, removal.file.evidence.length);
    assert.equal((await shell(folder, stages)).stdout.match(/is bound/g)?.length, 12);
  });

  it("openssl refuses an altered payload, another organisation's signature, and altered evidence [OFF-3]", async (t) => {
    const altered: Changes["file"] = (file) => ({
      ...file,
      completion: { ...file.completion, payload: file.stages[0]?.payload ?? "" },
    });
    const other = await folderOf(t, { file: altered });
    await shell(other.folder, takeApart);
    assert.notEqual((await shell(other.folder, signatures)).code, 0);

    const forged = await folderOf(t, {
      file: (file) => ({ ...file, evidence: file.evidence.map((item) => ({ ...item, status: 200 })) }),
    });
    await shell(forged.folder, takeApart);
    assert.equal((await shell(forged.folder, signatures)).code, 0);
    assert.notEqual((await shell(forged.folder, evidence)).code, 0);
  });

  it("openssl's commands refuse an item that nobody signed, and a stage that the completion does not bind [OFF-3]", async (t) => {
    const [{ digest: _, ...body }] = (await removalOf(A, B)).file.evidence as [EvidenceItem];
    const unsigned = evidenceItem({ ...body, subject: "!nobody-signed-this" });
    const added = await folderOf(t, {
      file: (file) => ({ ...file, evidence: [...file.evidence, unsigned] }),
    });
    await shell(added.folder, takeApart);
    assert.equal((await shell(added.folder, signatures)).code, 0);
    assert.notEqual((await shell(added.folder, evidence)).code, 0);

    const earlier = (await removalOf(A, B, { run: "f".repeat(32) })).file.stages[4];
    const exchanged = await folderOf(t, {
      file: (file) => ({ ...file, stages: file.stages.map((one, index) => (index === 4 ? earlier : one)) }),
    });
    await shell(exchanged.folder, takeApart);
    assert.equal((await shell(exchanged.folder, signatures)).stdout.match(/Verified OK/g)?.length, 26);
    const bound = await shell(exchanged.folder, stages);
    assert.equal(bound.code, 1);
    assert.match(bound.stdout, /stage05\.json is NOT BOUND\n$/);
  });

  it("what is read after openssl has verified it is what was signed, whatever an unsigned item names as its digest [OFF-3]", async (t) => {
    const { folder, removal } = await folderOf(t, {
      file: (file) => ({
        ...file,
        evidence: [...file.evidence, { digest: "sha256:../completion.json" }, { digest: "sha256:../../x" }],
      }),
    });
    await shell(folder, takeApart);
    assert.equal((await shell(folder, signatures)).stdout.match(/Verified OK/g)?.length, 26);
    const read = readFileSync(join(folder, "parts", "completion.json"), "utf8");
    assert.equal(read, statementBytes(removal.completion).toString("utf8"));
    assert.deepEqual(readdirSync(folder).sort(), [
      "partner.pub.pem",
      "parts",
      "record.json",
      "remover.pub.pem",
    ]);
  });

  it("Python's securesystemslib verifies a record without our code, and refuses forged ones [OFF-3]", async (t) => {
    const { folder, removal } = await folderOf(t);
    copyFileSync(join(ROOT, "requirements", "foreign-verifier.txt"), join(folder, "foreign-verifier.txt"));
    const installed = await shell(folder, install);
    assert.equal(installed.code, 0, installed.stderr);
    writeFile(join(folder, "check.py"), checkProgram);
    const checkRecord = () => shell(folder, check);
    const checkFile = (file: unknown) => {
      writeFile(join(folder, "record.json"), fileText(file));
      return checkRecord();
    };
    const whole = await checkRecord();
    assert.equal(whole.code, 0, whole.stderr);
    assert.match(whole.stdout, /^VERIFIED: a\.test removed b\.test, run [0-9a-f]{32}\n/);
    assert.ok(whole.stdout.includes(A.signer.keyId) && whole.stdout.includes(B.signer.keyId));

    const { file, completion } = removal;
    const [first, ...rest] = file.stages;
    const [item, ...items] = file.evidence;
    assert.ok(first !== undefined && item !== undefined);
    const [one, two] = first.signatures;
    assert.ok(one !== undefined && two !== undefined);
    const strange = party("b.test");
    const restated = await removalOf(A, B, {
      stage: (predicate) =>
        predicate.position === 6 ? { ...predicate, attested: [...predicate.attested, "other"] } : predicate,
    });
    const another = restated.file.stages[10];
    assert.ok(another !== undefined);
    const forged: readonly (readonly [string, Partial<RecordFile>])[] = [
      ["one signature", { stages: [{ ...first, signatures: [one] }, ...rest] }],
      [
        "exchanged signatures",
        { stages: [{ ...first, signatures: [{ ...one, sig: two.sig }, two] }, ...rest] },
      ],
      ["a signature of a stranger", { completion: await bySigners(completion, [A, strange]) }],
      ["a stage less", { stages: rest }],
      ["another statement of a stage", { stages: [another, ...file.stages] }],
      ["an item less", { evidence: items }],
      ["an altered item", { evidence: [{ ...item, status: item.status === 200 ? 403 : 200 }, ...items] }],
      ["another run's stages", { stages: (await removalOf(A, B, { run: "f".repeat(32) })).file.stages }],
    ];
    for (const [what, change] of forged) {
      const ended = await checkFile({ ...file, ...change });
      assert.notEqual(ended.code, 0, what);
      assert.doesNotMatch(ended.stdout, /VERIFIED/, what);
    }
    assert.equal((await checkFile(file)).code, 0);
    writeFile(join(folder, "remover.pub.pem"), B.pem);
    writeFile(join(folder, "partner.pub.pem"), A.pem);
    assert.match((await checkRecord()).stderr, /the remover attests with another key/);
    copyFileSync(join(folder, "remover.pub.pem"), join(folder, "partner.pub.pem"));
    assert.match((await checkRecord()).stderr, /the two keys are one/);
    rmSync(join(folder, "verifier"), { recursive: true });
  });
});
