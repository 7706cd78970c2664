// Drives two organisations through a removal, step by step, as their operators and a courier would, and
// checks its end. Every step may be done again, and steps that are done already are found.

import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { trustOf } from "../../src/federation/offboarding/run/context.ts";
import { counterpartyIn, findRun, recordFileOf } from "../../src/federation/offboarding/run/run-file.ts";
import { exportStatements, importStatements } from "../../src/federation/offboarding/steps/exchange.ts";
import { next, type RunEnd, runSteps } from "../../src/federation/offboarding/steps/next-or-run.ts";
import { complete, sign } from "../../src/federation/offboarding/steps/sign-and-complete.ts";
import {
  nextStepsOf,
  type RunView,
  type Steps,
  viewOf,
} from "../../src/federation/offboarding/steps/status.ts";
import { PLANE_NAMES } from "../../src/federation/plane-order.ts";
import { runPass } from "../../src/federation/reconcile/pass.ts";
import type { DsseEnvelope } from "../../src/records/format/dsse-envelope.ts";
import {
  type Kind,
  PLANE_OF_STAGE,
  STAGE_NAMES,
  type Trigger,
} from "../../src/records/format/removal-stages.ts";
import { ExchangeFile, RecordFile } from "../../src/records/format/statements.ts";
import { placeOfStatement, statementIn } from "../../src/records/sign/export-and-import.ts";
import { verifyRecord } from "../../src/records/verify/verify-record.ts";
import { writeWhole } from "../../src/runtime/write-file.ts";
import { operatorGit } from "./control-repository.ts";
import { makeParties, openRunAt, openSide, type Side, type SideOptions } from "./offboarding.ts";
import { A, B } from "./offboarding-planes.ts";
import { temporaryFolder } from "./temporary.ts";

export type Step = "next" | "sign" | "export" | "import" | "complete";

export function viewAt({ federation, context }: Side): RunView {
  return viewOf(findRun(federation.state), trustOf(context.config).parties);
}

export function stepsAt(side: Side): Steps {
  return nextStepsOf(viewAt(side));
}

/** Where what a side has exported lies, each file under a name of its own. */
function outbox(directory: string, own: string): string {
  const folder = join(directory, "courier", own);
  mkdirSync(folder, { recursive: true });
  return folder;
}

export function exportedFiles(directory: string, own: string): readonly string[] {
  const folder = outbox(directory, own);
  const number = (name: string) => Number(name.split(".")[0]);
  return readdirSync(folder)
    .filter((name) => name.endsWith(".json"))
    .sort((left, right) => number(left) - number(right))
    .map((name) => join(folder, name));
}

/** One step of one side. @returns whether it did anything */
export async function stepAt(directory: string, side: Side, step: Step): Promise<boolean> {
  switch (step) {
    case "next":
      return (await next(side.context)).did !== "idle";
    case "sign":
      await sign(side.context);
      return true;
    case "complete":
      await complete(side.context);
      return true;
    case "export": {
      return writeOut(directory, side, (await exportStatements(side.context)).text);
    }
    case "import": {
      const file = exportedFiles(directory, side.other).at(-1);
      if (file === undefined) return false;
      const { added } = await importStatements(side.context, readFileSync(file));
      return added.statements + added.signatures > 0;
    }
  }
}

/**
 * Each side does what it can, and hands its file over, until both have ended.
 * @throws Error when nobody can go on
 */
export async function driveToEnd(directory: string, sides: readonly Side[]): Promise<void> {
  // What was taken in by a process before this one is taken in once more.
  const taken = new Set<string>();
  const goOn = (side: Side) =>
    runSteps(side.context, {
      takeIn: () => {
        const file = exportedFiles(directory, side.other).at(-1);
        if (file === undefined || taken.has(file)) return undefined;
        taken.add(file);
        return readFileSync(file);
      },
      passOn: (text) => writeOut(directory, side, text),
      waitMs: 0,
    });
  for (;;) {
    const before = taken.size;
    const ends: RunEnd[] = [];
    for (const side of sides) ends.push((await goOn(side)).end);
    if (ends.every((end) => end === "completed")) return;
    if (ends.includes("blocked") || taken.size === before) {
      throw new Error(`nobody can go on: ${JSON.stringify(sides.map(stepsAt))}`);
    }
  }
}

/** @returns false when that was handed over last */
function writeOut(directory: string, { own }: Side, text: string): boolean {
  const files = exportedFiles(directory, own);
  if (files.length > 0 && readFileSync(files.at(-1) ?? "", "utf8") === text) return false;
  writeWhole(join(outbox(directory, own), `${files.length}.json`), text, 0o600);
  return true;
}

export interface Parties {
  readonly directory: string;
  /** The remover. */
  readonly a: Side;
  readonly b: Side;
  readonly run: string;
  /** Hands over what is signed. */
  readonly pass: (from: Side, to: Side) => Promise<void>;
  /** Brings so many stages to both signatures. */
  readonly closeStages: (stages: number) => Promise<void>;
}

export async function openParties(
  t: Parameters<typeof temporaryFolder>[0],
  options: SideOptions & {
    readonly kind?: Kind;
    /** The remover's when absent. */
    readonly partnersTrigger?: Trigger | undefined;
    readonly lacks?: Readonly<Record<string, readonly string[]>>;
  } = {},
): Promise<Parties> {
  const directory = temporaryFolder(t);
  const { kind = "full", lacks, partnersTrigger: trigger } = options;
  await makeParties(directory, lacks === undefined ? {} : { lacks });
  const a = await openSide(directory, A, options);
  const b = await openSide(directory, B, options);
  for (const side of [a, b]) await runPass(side.federation);
  const { run } = await openRunAt(a, { kind });
  await openRunAt(b, { kind, run, ...(trigger !== undefined && { trigger }) });
  const pass = async (from: Side, to: Side) => {
    await stepAt(directory, from, "export");
    await stepAt(directory, to, "import");
  };
  const closeStages = async (stages: number) => {
    for (let stage = 0; stage < stages; stage++) {
      await stepAt(directory, a, "next");
      await stepAt(directory, a, "sign");
      await stepAt(directory, b, "next");
      await pass(a, b);
      await stepAt(directory, b, "sign");
      await pass(b, a);
      await stepAt(directory, a, "sign");
      await pass(a, b);
    }
  };
  return { directory, a, b, run, pass, closeStages };
}

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
    await assertClosed(side, counterpartyIn(run));
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
