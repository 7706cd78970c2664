import assert from "node:assert/strict";
import { it } from "node:test";
import type { TransactionHandler } from "../../../../src/bridge/intake/handle-transaction.ts";
import { throughFailover } from "../../../../src/bridge/intake/handle-transaction.ts";
import { DrawbridgeError } from "../../../../src/domain/errors.ts";
import { ManualClock, settled } from "../../../support/manual-clock.ts";

/** As long as a statement waits for a server that is gone without a word. */
const HANGS_MS = 12_000;
const HOMESERVER_WAITS_MS = 60_000;

it("begins no try that could outlast the homeserver's patience while the database hangs [INT-5]", async () => {
  const clock = new ManualClock(0);
  const begun: number[] = [];
  const gone = Object.assign(new Error("gone"), { code: "ECONNRESET" });
  const handle = throughFailover(
    (async () => {
      begun.push(clock.now());
      await clock.sleep(HANGS_MS);
      throw gone;
    }) as TransactionHandler,
    clock,
    new AbortController().signal,
  );
  let failed: unknown;
  void handle(...([] as unknown as Parameters<TransactionHandler>)).catch((error: unknown) => {
    failed = error;
  });
  await settled();
  while (failed === undefined) await clock.advance((clock.wakeTimes[0] ?? 0) - clock.now());
  assert.equal(failed, gone);
  assert.ok(begun.length > 1);
  // A try may also have to ask each of three servers, 4 s each, before its statement hangs.
  assert.ok((begun.at(-1) ?? 0) + 3 * 4_000 + HANGS_MS < HOMESERVER_WAITS_MS, String(begun));
});

it("handles a transaction again when a ghost's device could not commit its keys, and no other failure of the product [INT-3]", async () => {
  const clock = new ManualClock(0);
  const failures = [
    new DrawbridgeError("device_unavailable", "its keys are not durable"),
    new DrawbridgeError("internal", "a mistake"),
  ];
  let tries = 0;
  const handle = throughFailover(
    (async () => {
      throw failures[tries++];
    }) as unknown as TransactionHandler,
    clock,
    new AbortController().signal,
  );
  let failed: unknown;
  void handle(...([] as unknown as Parameters<TransactionHandler>)).catch((error: unknown) => {
    failed = error;
  });
  await settled();
  assert.deepEqual([tries, failed], [1, undefined]);
  await clock.advance(200);
  assert.deepEqual([tries, failed], [2, failures[1]]);
});
