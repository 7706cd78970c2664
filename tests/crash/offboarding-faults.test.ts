// A removal in any order of steps on both sides, where any write and any move of the branch may be the last
// before a crash: nothing goes ahead of the order, and what follows ends as if nothing had been.
import assert from "node:assert/strict";
import { cpSync } from "node:fs";
import { join } from "node:path";
import { describe, it } from "node:test";
import fc from "fast-check";
import { DrawbridgeError } from "../../src/domain/errors.ts";
import { runPass } from "../../src/federation/reconcile/pass.ts";
import { makeParties, openRunAt, openSide, type Side } from "../support/offboarding.ts";
import { A, B } from "../support/offboarding-planes.ts";
import { assertOneEnd, driveToEnd, type Step, stepAt, viewAt } from "../support/offboarding-steps.ts";
import { temporaryFolder } from "../support/temporary.ts";

class Crash extends Error {}

interface Fault {
  /** How many writes and moves of the branch go well first. */
  readonly after: number;
  /** Whether the last one was still done. */
  readonly done: boolean;
}

/** Lets a side die at one of its writes, or as it moves its branch. */
function inject(side: Side, fault: Fault): void {
  const { state, repository } = side.federation;
  let left = fault.after;
  const strike = <Result>(act: () => Result): Result => {
    if (left-- > 0) return act();
    if (fault.done) act();
    throw new Crash();
  };
  const { write, writeText } = state;
  state.write = (name, value) => strike(() => write(name, value));
  state.writeText = (name, text) => strike(() => writeText(name, text));
  const advance = repository.advance.bind(repository);
  repository.advance = async (from, to, reason) => {
    if (left-- > 0) return advance(from, to, reason);
    if (fault.done) await advance(from, to, reason);
    throw new Crash();
  };
}

/** No stage is begun on one side before both have signed the one before it. */
function assertInOrder(side: Side): void {
  const { stages } = viewAt(side);
  stages.forEach(({ own, stage }, index) => {
    const before = stages[index - 1];
    if (before === undefined || own.state === "pending") return;
    assert.equal(before.own.state, "countersigned", `${stage} at ${side.own}`);
    assert.equal(before.other.state, "countersigned", `${stage} at ${side.own}`);
  });
}

const moves = fc.array(
  fc.record({
    own: fc.constantFrom(A, B),
    step: fc.constantFrom<Step>("next", "next", "sign", "export", "import", "complete"),
    fault: fc.option(
      fc.record({ after: fc.oneof(fc.nat({ max: 2 }), fc.nat({ max: 7 })), done: fc.boolean() }),
      {
        nil: undefined,
        freq: 2,
      },
    ),
  }),
  { minLength: 10, maxLength: 40 },
);

describe("removal with faults", () => {
  it("a removal ends in one record when both sides step in any order and are cut off at any write [OFF-2]", async (t) => {
    const folder = temporaryFolder(t);
    const seed = join(folder, "seed");
    await makeParties(seed);
    for (const own of [A, B]) await runPass((await openSide(seed, own)).federation);
    let runs = 0;
    let crashes = 0;
    await fc.assert(
      fc.asyncProperty(moves, async (steps) => {
        const directory = join(folder, `run ${runs++}`);
        cpSync(seed, directory, { recursive: true });
        const sides = new Map([
          [A, await openSide(directory, A)],
          [B, await openSide(directory, B)],
        ]);
        const at = (own: string): Side => {
          const side = sides.get(own);
          assert.ok(side !== undefined);
          return side;
        };
        const { run } = await openRunAt(at(A));
        await openRunAt(at(B), { run });
        for (const { own, step, fault } of steps) {
          if (fault !== undefined) inject(at(own), fault);
          try {
            await stepAt(directory, at(own), step);
          } catch (error) {
            if (error instanceof Crash) crashes += 1;
            // What is not this side's turn is refused, and nothing else is.
            else if (
              !(error instanceof DrawbridgeError) ||
              !["offboarding_blocked", "usage"].includes(error.code)
            )
              throw error;
          }
          if (fault !== undefined) sides.set(own, await openSide(directory, own));
          for (const side of sides.values()) assertInOrder(side);
        }
        await driveToEnd(directory, [at(A), at(B)]);
        await assertOneEnd(directory, [at(A), at(B)]);
      }),
      { numRuns: 6 },
    );
    t.diagnostic(`${runs} runs, ${crashes} crashes`);
    assert.ok(crashes > 0);
  });
});
