// A whole removal between two organisations that share nothing but files.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { trustOf } from "../../../../src/federation/offboarding/run/context.ts";
import { complete } from "../../../../src/federation/offboarding/walk/complete.ts";
import { exportStatements, importStatements } from "../../../../src/federation/offboarding/walk/exchange.ts";
import { next } from "../../../../src/federation/offboarding/walk/next.ts";
import { sign } from "../../../../src/federation/offboarding/walk/sign.ts";
import { runPass } from "../../../../src/federation/reconcile/pass.ts";
import { STAGE_NAMES } from "../../../../src/records/stages.ts";
import { verifyRecord } from "../../../../src/records/verify/verify-record.ts";
import {
  A,
  B,
  makeParties,
  openRunAt,
  openSide,
  type Side,
  type SideOptions,
} from "../../../support/offboarding.ts";
import { temporaryFolder } from "../../../support/temporary.ts";

async function parties(t: TestContext, options: SideOptions = {}) {
  const directory = temporaryFolder(t);
  await makeParties(directory);
  const a = await openSide(directory, A, options);
  const b = await openSide(directory, B, options);
  for (const side of [a, b]) await runPass(side.federation);
  return { directory, a, b };
}

async function pass(from: Side, to: Side) {
  const { text } = await exportStatements(from.context);
  return importStatements(to.context, Buffer.from(text, "utf8"));
}

test("OFF-2: both walk the six stages in order, sign each other's, and hold one record that verifies", async (t) => {
  const { a, b } = await parties(t);
  const { run } = await openRunAt(a);
  await openRunAt(b, { run });
  for (const stage of STAGE_NAMES) {
    for (const side of [a, b]) {
      const { did, stage: done, record } = await next(side.context);
      assert.deepEqual([did, done], ["proved", stage], JSON.stringify(record?.proof?.conditions, null, 1));
    }
    assert.deepEqual((await sign(a.context)).signed, [stage]);
    await pass(a, b);
    const both = await sign(b.context);
    assert.deepEqual([both.signed, both.countersigned], [[stage], [stage]]);
    await pass(b, a);
    assert.deepEqual((await sign(a.context)).countersigned, [stage]);
    await pass(a, b);
  }
  assert.equal((await complete(a.context)).recordFile, null);
  await pass(a, b);
  const { recordFile: theirs } = await sign(b.context);
  const { recordFile: ours } = await pass(b, a);
  assert.ok(ours !== null && theirs !== null);
  const record = readFileSync(ours);
  assert.deepEqual(record, readFileSync(theirs));
  const report = verifyRecord(record, trustOf(a.context.config));
  assert.deepEqual([report.verified, report.problems], [true, []]);
});
