// Admission: what is committed, recognised and refused when the homeserver repeats or a connection breaks.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { event, job, ledgerFixture, T0 } from "../../../support/ledger.ts";

describe("admission", () => {
  it("fails alone when its connection is cut in the middle [INT-5]", async (t) => {
    const { pool, admit, rows } = await ledgerFixture(t);
    const holder = await pool.connect();
    await holder.query("BEGIN; LOCK TABLE bridge_transactions");
    const admitting = admit([job("q1")]);
    admitting.catch(() => undefined);
    for (let cut = 0; cut === 0; ) {
      const { rowCount } = await pool.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
       WHERE datname = current_database() AND wait_event_type = 'Lock'`,
      );
      cut = rowCount ?? 0;
    }
    await assert.rejects(admitting);
    await holder.query("COMMIT");
    holder.release();
    assert.equal((await admit([job("q1")])).admitted, 1);
    assert.equal((await rows("SELECT 1 FROM bridge_delegations")).length, 1);
  });

  it("recognises a repeated transaction by its digest until it is pruned, and then by its events [INT-3]", async (t) => {
    const { ledger, admit, rows } = await ledgerFixture(t);
    const same = { transactionId: "t", body: Buffer.from("body") };
    await admit([job("q1")], same);
    await ledger.intake.prune(T0);
    assert.equal((await admit([job("q1")], same)).replayed, true);
    await ledger.intake.prune(T0 + 1);
    assert.deepEqual(await rows("SELECT 1 FROM bridge_transactions"), []);
    const late = await admit([job("q1")], same);
    assert.deepEqual([late.replayed, late.admitted], [false, 0]);
    assert.equal(
      (await rows("SELECT 1 FROM bridge_delegations WHERE matrix_event_id = $1", [event("q1")])).length,
      1,
    );
  });
});
