// What must be true of a removal at its end, however often it was cut off on the way.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { trustOf } from "../../src/federation/offboarding/run/context.ts";
import { counterpartyOf, findRun } from "../../src/federation/offboarding/run/run.ts";
import { recordFileOf } from "../../src/federation/offboarding/workflow/complete.ts";
import { PLANE_NAMES } from "../../src/federation/plane-order.ts";
import type { DsseEnvelope } from "../../src/records/format/dsse-envelope.ts";
import { ExchangeFile, RecordFile } from "../../src/records/format/record-file.ts";
import { PLANE_OF_STAGE, STAGE_NAMES } from "../../src/records/format/stages.ts";
import { placeOfStatement, statementIn } from "../../src/records/sign/held-statements.ts";
import { verifyRecord } from "../../src/records/verify/verify-record.ts";
import type { Side } from "./offboarding.ts";
import { exportedFiles } from "./offboarding-steps.ts";
import { operatorGit } from "./repository.ts";

/** Complete on both sides, one record, one commit a stage, every statement made once and signed once. */
export async function assertOneEnd(directory: string, sides: readonly Side[]): Promise<void> {
  const signatures = new Map<string, string>();
  const see = (envelope: DsseEnvelope) => {
    const statement = statementIn(envelope);
    assert.ok(statement !== undefined);
    const place = placeOfStatement(statement);
    for (const { keyid, sig } of envelope.signatures) {
      const text = `${envelope.payload} ${sig}`;
      assert.equal(
        signatures.get(`${place} ${keyid}`) ?? text,
        text,
        `${place} was signed twice by ${keyid}`,
      );
      signatures.set(`${place} ${keyid}`, text);
    }
  };
  const records: string[] = [];
  for (const side of sides) {
    const run = findRun(side.federation.state);
    assert.equal(run.ended?.how, "completed", side.own);
    const text = readFileSync(recordFileOf(run), "utf8");
    records.push(text);
    const report = verifyRecord(Buffer.from(text, "utf8"), trustOf(side.context.config));
    assert.deepEqual([report.verified, report.problems], [true, []]);
    const record = RecordFile.parse(JSON.parse(text));
    for (const envelope of [record.completion, ...record.stages]) see(envelope);
    for (const file of exportedFiles(directory, side.own)) {
      for (const envelope of ExchangeFile.parse(JSON.parse(readFileSync(file, "utf8"))).envelopes)
        see(envelope);
    }
    assertCommits(side, run.run, run.baseline.revision, run.kind === "emergency");
    await assertClosed(side, counterpartyOf(run));
  }
  assert.equal(new Set(records).size, 1, "both hold the same bytes");
}

/** Since the run was opened: one commit for each stage that closes a plane, and no other. */
function assertCommits(side: Side, run: string, since: string, contained: boolean): void {
  const { path } = side.federation.repository;
  const log = operatorGit(
    path,
    "log",
    "--reverse",
    "--format=%(trailers:key=Offboarding-Stage,valueonly,separator=)|%(trailers:key=Offboarding-Run,valueonly,separator=)",
    `${since}..main`,
  );
  const lines = log.split("\n").filter((line) => line !== "");
  const wanted = STAGE_NAMES.filter((stage) => PLANE_OF_STAGE[stage] !== null).map(
    (stage) => `${stage}|${run}`,
  );
  assert.deepEqual(lines, contained ? ["|", ...wanted] : wanted);
}

async function assertClosed(side: Side, other: string): Promise<void> {
  const { repository } = side.federation;
  const head = await repository.requireHead();
  for (const [path, text] of await repository.read(head, ["rendered"])) {
    assert.equal(readFileSync(join(side.parts, path.slice("rendered/".length)), "utf8"), text, path);
  }
  const [entry = ""] = (await repository.read(head, ["registry/partners"])).values();
  for (const plane of PLANE_NAMES) assert.match(entry, new RegExp(`^ {2}${plane}: closed$`, "m"));
  assert.match(entry, /classification: internal # agreed/);
  assert.ok(entry.includes(other));
}
