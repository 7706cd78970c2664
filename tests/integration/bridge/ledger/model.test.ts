// The ledger's tables beside its reference model (tests/integration/bridge/ledger/model), step by step, under random interleavings
// of three workers and crashes between statements; and that the comparison finds a mistake of each kind.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { systemRandom } from "../../../../src/domain/clock.ts";
import { testDatabase } from "../../../support/database.ts";
import { MODEL_RUNS, ORDERS_SEED } from "../../../support/kills.ts";
import type { Planted } from "./model/faulty-pool.ts";
import { findDisagreement } from "./model/run.ts";

const RUNS_SHORT = 25;
const RUNS = Number(process.env[MODEL_RUNS] ?? RUNS_SHORT);
/** A run that fails is shrunk to a few steps; it takes some seconds. */
const IS_LONG = RUNS > RUNS_SHORT;
const SEED = Number(process.env[ORDERS_SEED] ?? systemRandom.bytes(4).readInt32BE());
const STEPS_MAX = 80;
/** What is committed need not survive the server here, so the disk is not waited for. */
const DATABASE = { poolSize: 3, settings: "-c synchronous_commit=off" };

const PLANTED: readonly (Planted & { readonly mistake: string; readonly seed: number })[] = [
  {
    mistake: "a dropped fence",
    seed: 65,
    text: "d.fence = $3",
    by: "$3::bigint IS NOT NULL",
  },
  {
    mistake: "a broken order",
    seed: 14,
    statement: "claim_heads",
    text: "d.room_seq = r.head_seq AND d.room_ordinal = r.head_ordinal",
    by: "d.room_seq >= r.head_seq AND d.terminal_at IS NULL AND d.due_at IS NULL",
  },
  {
    mistake: "miscounted capacity",
    seed: 49,
    statement: "finish",
    text: "open_count = r.open_count - 1",
    by: "open_count = r.open_count",
  },
  {
    mistake: "a repeated notice",
    seed: 70,
    text: "n.created_at > $",
    by: "n.created_at = 'infinity' AND n.created_at > $",
  },
  {
    mistake: "content that is not cleared",
    seed: 57,
    statement: "record_accepted",
    text: "prompt = NULL,",
    by: "",
  },
];

describe("the ledger beside its reference model", () => {
  it(`agrees after every step of random histories (seed ${SEED}) [CRA-3]`, async (t) => {
    const { pool } = await testDatabase(t, DATABASE);
    t.diagnostic(`${RUNS} runs, seed ${SEED}`);
    const found = await findDisagreement(pool, { runs: RUNS, seed: SEED, stepsMax: STEPS_MAX });
    assert.equal(found, undefined, `seed ${SEED}: ${found}`);
  });

  for (const { mistake, seed, ...planted } of PLANTED)
    it(`finds ${mistake}${IS_LONG ? ", and shrinks the history that shows it" : ""} [CRA-3]`, async (t) => {
      const { pool } = await testDatabase(t, DATABASE);
      const options = { runs: 200, seed, stepsMax: STEPS_MAX, planted, shrinks: IS_LONG };
      const found = await findDisagreement(pool, options);
      // Not that the database refuses the changed statement.
      assert.match(found ?? "", /^Property failed after [0-9]+ tests.*\nAssertionError /s);
      if (!IS_LONG) return;
      const steps = /^Counterexample: (.*)$/m.exec(found ?? "")?.[1] ?? "";
      t.diagnostic(steps);
      assert.ok((steps.match(/\["/g) ?? []).length <= 8, steps);
    });
});
