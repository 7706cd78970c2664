// A run: random steps on an empty ledger and on the model, compared after each, and then patient workers that finish
// what is left. fast-check makes the steps, and shrinks a run that fails.
import assert from "node:assert/strict";
import fc from "fast-check";
import type { Pool } from "pg";
import { LEASE_MS } from "../../../../support/ledger.ts";
import type { Fault, Planted } from "./faulty-pool.ts";
import { LedgerModel } from "./model.ts";
import { OTHER_STEPS, type OtherSteps } from "./other-steps.ts";
import { STEPS, type Steps } from "./steps.ts";
import { GHOSTS, LIMITS, OUTCOMES, ROOMS, SENDERS, World } from "./world.ts";

type AllSteps = Steps & OtherSteps;
const HANDLERS = { ...STEPS, ...OTHER_STEPS };

type Step = { [Kind in keyof AllSteps]: readonly [Kind, AllSteps[Kind]] }[keyof AllSteps];

const make = (w: World, [kind, step]: Step) =>
  (HANDLERS[kind] as (w: World, step: AllSteps[keyof AllSteps]) => Promise<unknown>)(w, step);

class Command implements fc.AsyncCommand<LedgerModel, World> {
  readonly #step: Step;

  constructor(step: Step) {
    this.#step = step;
  }

  check(): boolean {
    return true;
  }

  async run(_model: LedgerModel, w: World): Promise<void> {
    await make(w, this.#step);
    await w.compare();
  }

  toString(): string {
    return JSON.stringify(this.#step);
  }
}

const which = fc.oneof({ weight: 3, arbitrary: fc.nat(2) }, { weight: 1, arbitrary: fc.nat(12) });
const fault: fc.Arbitrary<Fault> = fc.oneof(
  fc.record({ kind: fc.constant("rolled_back" as const), at: fc.integer({ min: 1, max: 9 }) }),
  fc.constant({ kind: "in_doubt" as const, at: 0 }),
);
const limit = fc.integer({ min: 1, max: 4 });
const later = fc.constantFrom(1_000, 5_000, 20_000, 90_000);

const of = <Kind extends keyof AllSteps>(
  weight: number,
  kind: Kind,
  step: { [Name in keyof Omit<AllSteps[Kind], "fault">]: fc.Arbitrary<AllSteps[Kind][Name]> },
  canFail = true,
) => ({
  weight,
  arbitrary: fc
    .tuple(
      fc.record(step as Record<string, fc.Arbitrary<unknown>>),
      fc.oneof({ weight: 7, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: fault }),
    )
    .map(
      ([fields, failing]) =>
        new Command([
          kind,
          canFail && failing !== undefined ? { ...fields, fault: failing } : fields,
        ] as unknown as Step),
    ),
});

const COMMANDS = fc.oneof(
  of(10, "admit", {
    room: fc.nat(ROOMS.length - 1),
    sender: fc.nat(SENDERS.length - 1),
    what: fc.array(fc.constantFrom(0, 1, 1, 2), { minLength: 1, maxLength: 3 }),
    claims: fc.boolean(),
  }),
  of(1, "repeat", { which }, false),
  of(3, "answer", { which, isRepeated: fc.boolean() }),
  of(2, "redact", { which: fc.nat(9) }),
  of(2, "cancel", { which, by: fc.constantFrom("sender", "operator") }),
  of(1, "retry", { which }, false),
  of(16, "claim", { worker: fc.constantFrom(0, 0, 1, 2), limit }),
  of(16, "hand_over", {
    which,
    dies: fc.constantFrom("never", "never", "never", "never", "begun", "called"),
    gets: fc.constantFrom("task", "task", "question", "reply"),
  }),
  of(6, "poll", { which, gets: fc.constantFrom("question", "reply") }),
  of(10, "send", {
    which,
    purpose: fc.constantFrom("reply", "reply", "question"),
    dies: fc.constantFrom("never", "never", "never", "attempted", "sent"),
  }),
  of(1, "echo", { which }, false),
  of(4, "finish", {
    which,
    outcome: fc.constantFrom(...(Object.keys(OUTCOMES) as (keyof typeof OUTCOMES)[])),
  }),
  of(1, "end_wait", { which }),
  of(4, "defer", { which, ms: later, isUndelivered: fc.boolean() }),
  of(1, "release", { which }, false),
  of(2, "renew", { which }, false),
  of(5, "claim_envelopes", { limit }),
  of(5, "derive", { which, ghosts: fc.nat(2) }),
  of(2, "expire", {
    which,
    reason: fc.constantFrom("key_wait_elapsed", "key_wait_elapsed", "undecryptable"),
  }),
  of(2, "put_off", { which, ms: later }),
  of(1, "wake", { room: fc.nat(1) }, false),
  of(2, "claim_notices", { limit }),
  of(2, "notice", { which, how: fc.constantFrom("attempted", "sent", "dropped", "deferred") }),
  of(2, "claim_statuses", { limit }, false),
  of(2, "status", { which, how: fc.constantFrom("attempted", "shown", "ended") }),
  of(1, "prune", {}, false),
  of(
    9,
    "wait",
    { ms: fc.constantFrom(1, 5_000, LEASE_MS, LEASE_MS, LEASE_MS, 400_000, 400_000, 3_600_001) },
    false,
  ),
);

/** A head that does not get on holds its room for this long, or longer than every run. */
const GATES_MS = [6_000, 60_000, 86_400_000];

/** Nothing is lost: workers that never crash end whatever is left. */
async function finishAll(w: World): Promise<void> {
  const { model } = w;
  for (let round = 0; round < 60; round++) {
    w.now += 100_000;
    const held = [w.envelopes.length, w.claims.length] as const;
    await make(w, ["claim_envelopes", { limit: 50 }]);
    const waiting = w.envelopes.length - held[0];
    for (let which = 0; which < waiting; which++) await make(w, ["derive", { which, ghosts: which % 3 }]);
    await make(w, ["claim", { worker: 0, limit: 50 }]);
    const claimed = w.claims.length - held[1];
    for (let which = 0; which < claimed; which++) await make(w, ["finish", { which, outcome: "failed" }]);
    await w.compare();
    if (waiting + claimed === 0) break;
  }
  assert.equal(
    model.openIn(() => true),
    0,
    "delegations that no worker is given",
  );
  assert.deepEqual(
    [...model.dueEnvelopes(Number.MAX_SAFE_INTEGER)],
    [],
    "intake envelopes that no worker is given",
  );
}

export interface ModelRuns {
  readonly runs: number;
  readonly seed: number;
  readonly stepsMax: number;
  readonly planted?: Planted;
  /** Whether a run that fails is shrunk, which takes some tens of further runs. */
  readonly shrinks?: boolean;
}

/**
 * Runs the model beside the ledger on a database.
 * @returns the counter-example, as fast-check reports it; undefined when every run agreed
 */
export async function findDisagreement(
  pool: Pool,
  { runs, seed, stepsMax, planted, shrinks = true }: ModelRuns,
): Promise<string | undefined> {
  const property = fc.asyncProperty(
    fc.constantFrom(...GATES_MS),
    fc.commands([COMMANDS], { maxCommands: stepsMax, size: "max" }),
    async (gateMs, commands) => {
      const speaker = GHOSTS[0] as string;
      const model = new LedgerModel(gateMs, LIMITS, speaker);
      const w = new World(pool, model, gateMs, planted);
      await w.clear(ROOMS, speaker);
      await fc.asyncModelRun(() => ({ model, real: w }), commands);
      await finishAll(w);
    },
  );
  const details = await fc.check(property, { numRuns: runs, seed, endOnFailure: !shrinks });
  return details.failed ? `${fc.defaultReportMessage(details)}\n${String(details.errorInstance)}` : undefined;
}
