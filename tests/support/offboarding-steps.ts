// Drives two organisations through a removal, step by step, as their operators and a courier would: every step
// may be done again, and what is done already is found.
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { trustOf } from "../../src/federation/offboarding/run/context.ts";
import { findRun } from "../../src/federation/offboarding/run/run.ts";
import { complete } from "../../src/federation/offboarding/workflow/complete.ts";
import { exportStatements, importStatements } from "../../src/federation/offboarding/workflow/exchange.ts";
import { next } from "../../src/federation/offboarding/workflow/next.ts";
import { sign } from "../../src/federation/offboarding/workflow/sign.ts";
import { type RunView, type Steps, stepsOf, viewOf } from "../../src/federation/offboarding/workflow/view.ts";
import { writeWhole } from "../../src/runtime/write-file.ts";
import type { Side } from "./offboarding.ts";

export type Step = "next" | "sign" | "export" | "import" | "complete";

export function viewAt({ federation, context }: Side): RunView {
  return viewOf(findRun(federation.state), trustOf(context.config).parties);
}

export function movesAt(side: Side): Steps {
  return stepsOf(viewAt(side));
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
      const { text } = await exportStatements(side.context);
      const files = exportedFiles(directory, side.own);
      if (files.length > 0 && readFileSync(files.at(-1) ?? "", "utf8") === text) return false;
      writeWhole(join(outbox(directory, side.own), `${files.length}.json`), text, 0o600);
      return true;
    }
    case "import": {
      const file = exportedFiles(directory, side.other).at(-1);
      if (file === undefined) return false;
      const { added } = await importStatements(side.context, readFileSync(file));
      return added.statements + added.signatures > 0;
    }
  }
}

/** What a side would do now, if nothing hindered it. */
function wanted(side: Side): Step | undefined {
  const { ended, contain, work, sign: own, countersign, complete: completes } = movesAt(side);
  if (ended !== null) return undefined;
  if (own.length > 0 || countersign.length > 0) return "sign";
  if (contain || work !== null) return "next";
  return completes ? "complete" : undefined;
}

/** Goes on until both have ended. @throws Error when nobody can go on */
export async function driveToEnd(directory: string, sides: readonly Side[]): Promise<void> {
  // What was taken in by a process before this one is taken in once more.
  const taken = new Set<string>();
  for (;;) {
    let moved = false;
    for (const side of sides) {
      const step = wanted(side);
      if (step !== undefined) moved = (await stepAt(directory, side, step)) || moved;
      if (viewAt(side).statements.envelopes.length > 0) {
        moved = (await stepAt(directory, side, "export")) || moved;
      }
      const file = exportedFiles(directory, side.other).at(-1);
      if (file !== undefined && !taken.has(file)) {
        taken.add(file);
        moved = (await stepAt(directory, side, "import")) || moved;
      }
    }
    if (sides.every((side) => movesAt(side).ended !== null)) return;
    if (!moved) throw new Error(`nobody can go on: ${JSON.stringify(sides.map(movesAt))}`);
  }
}
