// Where a private record may lie, and how it is written.
import assert from "node:assert/strict";
import {
  chmodSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, it, type TestContext } from "node:test";
import { parse } from "yaml";
import { RecordError } from "../../../../../src/federation/offboarding/private-record/check.ts";
import {
  changeRecordFile,
  createRecordFile,
  readRecordFile,
  requireRecord,
} from "../../../../../src/federation/offboarding/private-record/file.ts";
import { recordOfRun } from "../../../../../src/federation/offboarding/run/context.ts";
import { inspectLocation } from "../../../../../src/runtime/private-file-location.ts";
import { COMPLETE_RECORD, recordJson, recordWith } from "../../../../support/sample-files.ts";
import { temporaryFolder } from "../../../../support/temporary.ts";

function place(t: TestContext): { readonly folder: string; readonly file: string } {
  const folder = temporaryFolder(t);
  const file = join(folder, "record.yaml");
  writeFileSync(file, COMPLETE_RECORD, { mode: 0o600 });
  return { folder, file };
}

const rulesOf = (file: string) => inspectLocation(file).problems.map(({ rule }) => `record.${rule}`);

describe("private record file and its location", () => {
  it("requireRecord reads a record of mode 0600 in a folder of its owner's [OFF-1]", (t) => {
    const { file } = place(t);
    assert.deepEqual(rulesOf(file), []);
    assert.equal(requireRecord(file).change.rollback, "CHG-0012345#rollback");
  });

  for (const control of [".git", ".hg", ".svn", ".jj", ".bzr", "CVS"]) {
    it(`record.in_work_tree refuses a record below a folder with ${control}, new ones too [OFF-1]`, (t) => {
      const { folder, file } = place(t);
      mkdirSync(join(folder, control));
      mkdirSync(join(folder, "deep", "er"), { recursive: true });
      assert.deepEqual(rulesOf(file), ["record.in_work_tree"]);
      const fresh = join(folder, "deep", "er", "not", "there", "record.yaml");
      assert.throws(() => createRecordFile(fresh, COMPLETE_RECORD), RecordError);
      assert.deepEqual(readdirSync(join(folder, "deep", "er")), []);
    });
  }

  it("record.in_work_tree follows symbolic links of the file and of its folders [OFF-1]", (t) => {
    const { folder, file } = place(t);
    const outside = place(t);
    // A linked work tree has a file of that name.
    writeFileSync(join(folder, ".git"), "gitdir: /elsewhere\n");
    symlinkSync(file, join(outside.folder, "link.yaml"));
    symlinkSync(folder, join(outside.folder, "there"));
    symlinkSync(outside.file, join(folder, "back.yaml"));
    for (const path of [
      join(outside.folder, "link.yaml"),
      join(outside.folder, "there", "record.yaml"),
      join(folder, "back.yaml"),
    ]) {
      assert.deepEqual(rulesOf(path), ["record.in_work_tree"], path);
      assert.throws(() => readRecordFile(path), RecordError);
    }
  });

  it("record.in_repository refuses a bare repository's folder [OFF-1]", (t) => {
    const { folder, file } = place(t);
    for (const name of ["objects", "refs"]) mkdirSync(join(folder, name));
    writeFileSync(join(folder, "HEAD"), "ref: refs/heads/main\n");
    assert.deepEqual(rulesOf(file), ["record.in_repository"]);
  });

  it("record.permissions refuses any mode wider than 0600, and record.hard_link a second name [OFF-1]", (t) => {
    const { folder, file } = place(t);
    for (const mode of [0o640, 0o604, 0o620, 0o602, 0o601, 0o700, 0o644, 0o777]) {
      chmodSync(file, mode);
      assert.deepEqual(rulesOf(file), ["record.permissions"], mode.toString(8));
    }
    chmodSync(file, 0o400);
    assert.deepEqual(rulesOf(file), []);
    linkSync(file, join(folder, "second"));
    assert.deepEqual(rulesOf(file), ["record.hard_link"]);
  });

  it("record.folder_writable refuses a folder that others may write to, above it too [OFF-1]", (t) => {
    const { folder } = place(t);
    const inner = join(folder, "open", "inner");
    mkdirSync(inner, { recursive: true });
    const file = join(inner, "record.yaml");
    writeFileSync(file, COMPLETE_RECORD, { mode: 0o600 });
    for (const mode of [0o720, 0o702, 0o1777]) {
      chmodSync(inner, mode);
      assert.deepEqual(rulesOf(file), ["record.folder_writable"], mode.toString(8));
    }
    chmodSync(inner, 0o700);
    chmodSync(join(folder, "open"), 0o770);
    assert.deepEqual(rulesOf(file), ["record.folder_writable"]);
    chmodSync(join(folder, "open"), 0o1777);
    assert.deepEqual(rulesOf(file), []);
  });

  it("record.not_a_file refuses a folder and a link that leads nowhere [OFF-1]", (t) => {
    const { folder } = place(t);
    mkdirSync(join(folder, "dir"), { mode: 0o700 });
    symlinkSync(join(folder, "nothing"), join(folder, "dangling"));
    for (const name of ["dir", "dangling"]) {
      assert.ok(rulesOf(join(folder, name)).includes("record.not_a_file"), name);
      assert.throws(() => readRecordFile(join(folder, name)), RecordError);
    }
  });

  it("readRecordFile reports every problem of location and content at once [OFF-1]", (t) => {
    const { folder, file } = place(t);
    writeFileSync(file, recordWith("technical.owner", "anna@harbour.example"));
    chmodSync(file, 0o644);
    chmodSync(folder, 0o777);
    mkdirSync(join(folder, ".git"));
    assert.throws(
      () => readRecordFile(file),
      (error: unknown) => {
        assert.ok(error instanceof RecordError);
        assert.deepEqual(error.problems.map(({ rule }) => rule).sort(), [
          "personal.mail_address",
          "record.folder_writable",
          "record.in_work_tree",
          "record.permissions",
        ]);
        assert.ok(!error.message.includes("anna"));
        return true;
      },
    );
  });

  it("changeRecordFile writes a whole file of mode 0600, and changes nothing when it is refused [OFF-1]", (t) => {
    const { folder, file } = place(t);
    changeRecordFile(file, new Map([["technical.owner", "S-9"]]));
    assert.equal(requireRecord(file).technical.owner, "S-9");
    assert.equal(statSync(file).mode & 0o777, 0o600);
    const before = readFileSync(file, "utf8");
    for (const value of ["anna@harbour.example", "on call", "Anna Schmidt"]) {
      assert.throws(() => changeRecordFile(file, new Map([["technical.owner", value]])), RecordError);
    }
    assert.equal(readFileSync(file, "utf8"), before);
    assert.deepEqual(readdirSync(folder), ["record.yaml"]);
  });

  it("changeRecordFile changes one field alone, keeps comments, and leaves a JSON text JSON [OFF-1]", (t) => {
    const { file } = place(t);
    const wanted = parse(COMPLETE_RECORD);
    wanted.technical.rollbackOwner = "S-9";
    const { text } = changeRecordFile(file, new Map([["technical.rollbackOwner", "S-9"]]));
    assert.match(text, /# the on-call engineer of that night/);
    assert.deepEqual(parse(text), wanted);
    writeFileSync(file, recordJson());
    const json = changeRecordFile(file, new Map([["technical.rollbackOwner", "S-9"]])).text;
    assert.deepEqual(JSON.parse(json), wanted);
  });

  it("record.classified keeps partner, kind and trigger as the run was opened with [OFF-1]", (t) => {
    const { file } = place(t);
    const run = "0123456789abcdef0123456789abcdef";
    changeRecordFile(file, new Map([["run", run]]));
    const refused = (error: unknown) =>
      error instanceof RecordError && error.problems.every(({ rule }) => rule === "record.classified");
    const opened = {
      ...({ private_record_file: file, run, kind: "full", trigger: "contract_end" } as const),
      ...{ remover: "harbour.example", partner: "matrix.lighthouse.example:8448", self: "harbour.example" },
    };
    assert.equal(recordOfRun(opened).run, run);
    assert.throws(() => recordOfRun({ ...opened, trigger: "planned_departure" }), refused);
    assert.throws(() => recordOfRun({ ...opened, kind: "partial" }), refused);
    assert.throws(() => recordOfRun({ ...opened, partner: "other.example" }), refused);
    assert.throws(() => recordOfRun({ ...opened, run: "f".repeat(32) }), refused);
  });

  it("record.missing names each field that is still open, and what belongs there [OFF-1]", (t) => {
    const { file } = place(t);
    writeFileSync(file, recordWith("attestation", null));
    assert.throws(
      () => requireRecord(file),
      (error: unknown) =>
        error instanceof RecordError &&
        error.problems.map(({ rule, field }) => `${rule} ${field}`).join() ===
          "record.missing attestation.own,record.missing attestation.partner" &&
        error.problems.every(({ hint }) => hint.startsWith("Write it in the record: role that attests")),
    );
  });
});
