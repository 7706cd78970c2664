// The queries that the operating guide gives can be made, in a session that may only read.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, it } from "node:test";
import { testDatabase } from "../../../support/database.ts";
import { ROOT } from "../../../support/temporary.ts";

const GUIDE = readFileSync(`${ROOT}/docs/operating/encrypted-rooms.md`, "utf8");
const QUERIES = [...GUIDE.matchAll(/<!-- query -->\n```sql\n([\s\S]*?)```/g)].map(([, query = ""]) => query);

const INSERT = `
  INSERT INTO bridge_encrypted_intake (matrix_event_id, room_id, sender_mxid, origin_server_ts, transaction_id,
    ingress, intake_fingerprint, room_seq, state, due_at, deadline, admitted_at, terminal_at, terminal_reason)
  VALUES
    ('$1', '!r', '@a:a.test', 0, 't', 'transaction', sha256('1'), 1, 'awaiting_key', now(), now(), now(), NULL, NULL),
    ('$2', '!r', '@a:a.test', 0, 't', 'transaction', sha256('2'), 2, 'awaiting_key', now(), now(), now(), NULL, NULL),
    ('$3', '!s', '@a:a.test', 0, 't', 'transaction', sha256('3'), 1, 'expired', NULL, now(), now(), now(),
      'key_wait_elapsed')`;

describe("the queries of the operating guide", () => {
  it("show which rooms wait, and why intake envelopes ended [ENC-6]", async (t) => {
    const { pool } = await testDatabase(t);
    await pool.query(INSERT);
    assert.equal(QUERIES.length, 2);
    const client = await pool.connect();
    try {
      await client.query("BEGIN READ ONLY");
      const [waiting, ended] = await Promise.all(QUERIES.map((query) => client.query(query)));
      assert.deepEqual(
        waiting?.rows.map(({ room_id, waiting: count }) => [room_id, Number(count)]),
        [["!r", 2]],
      );
      assert.deepEqual(
        ended?.rows.map(({ room_id, state, terminal_reason, events }) => [
          room_id,
          state,
          terminal_reason,
          Number(events),
        ]),
        [["!s", "expired", "key_wait_elapsed", 1]],
      );
      await client.query("ROLLBACK");
    } finally {
      client.release();
    }
  });
});
